"""Attempts at a run: when each process began to train, and how that ended; ``attempts.json``. Needs no TensorFlow.

A run has as many as it was started and resumed. The file is written when an attempt begins, when its loop begins, and
when it ends: so one that nobody has ended, and whose lock nobody holds, was killed.
"""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from tpk.errors import TpkError
from tpk.train.run.names import ATTEMPTS_NAME

ENDS = ("finished", "interrupted", "failed")

_text = attrs.validators.instance_of(str)
_count = attrs.validators.instance_of(int)
_number = attrs.validators.instance_of((int, float))


@attrs.frozen(kw_only=True)
class Attempt:
    """One process that has trained in the directory of a run.

    Attributes:
        began: when, in seconds since 1970.
        host: where.
        pid: the number of its process there.
        cwd: its current directory.
        argv: the command that started it, without the interpreter; None if it was none, as in a notebook.
        from_step: the global step of the checkpoint from which it went on; None if it started afresh.
        directions: of the statistics of which that is known, whether ``"min"`` or ``"max"`` is better.
        ended: when; None if it has not, or was killed.
        end: ``"finished"`` in good order, ``"interrupted"`` by a signal, or ``"failed"``.
        reason: by what.
        epoch: the last one.
        step: the global step up to which it came.
        checkpoint: the name of the last checkpoint of which it knew; None if there was none.
    """

    began: float = attrs.field(validator=_number)
    host: str = attrs.field(validator=_text)
    pid: int = attrs.field(validator=_count)
    cwd: str = attrs.field(validator=_text)
    argv: list[str] | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(list))
    )
    from_step: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count))
    directions: dict[str, str] = attrs.field(
        factory=dict, validator=attrs.validators.deep_mapping(_text, attrs.validators.in_(("min", "max")))
    )
    ended: float | None = attrs.field(default=None, validator=attrs.validators.optional(_number))
    end: str | None = attrs.field(default=None, validator=attrs.validators.in_((*ENDS, None)))
    reason: str = attrs.field(default="", validator=_text)
    epoch: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count))
    step: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count))
    checkpoint: str | None = attrs.field(default=None, validator=attrs.validators.optional(_text))


def read_attempts(directory: Path) -> list[Attempt]:
    """Return the attempts at the run of a directory, the first one first; none where none were recorded.

    Raises:
        TpkError: if the file is there, and is not what tpk writes.
    """
    path = directory / ATTEMPTS_NAME
    try:
        content = json.loads(path.read_bytes())
        names = {field.name for field in attrs.fields(Attempt)}
        # What a later version has added is left out.
        return [Attempt(**{name: each[name] for name in each if name in names}) for each in content["attempts"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TpkError(
            f"{str(path)!r} is not what tpk writes of a run's attempts ({type(error).__name__}: {error}). Remove it; "
            "only commands such as `tpk runs` read it."
        ) from error
