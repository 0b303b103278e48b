"""Attempts at a run: when each process started to train, and how it ended; ``attempts.json``. Needs no TensorFlow.

A run has an attempt for each time that it was started or resumed. The file is written when an attempt starts, when its
loop starts, and when it ends. So an attempt without an end, in a directory that is not locked, was killed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import attrs

from tpk.durable_files import replace_file
from tpk.errors import TpkError
from tpk.train.run.names import ATTEMPTS_NAME


@attrs.frozen(kw_only=True)
class Attempt:
    """A process that has trained in the directory of a run.

    Attributes:
        began: the start time, in seconds since 1970.
        host: the name of the host.
        pid: the process ID.
        cwd: the current directory.
        argv: the command, without the interpreter; None without a script, as in a notebook.
        from_step: the global step of the checkpoint from which it was resumed; None if it started from the beginning.
        directions: ``"min"`` or ``"max"`` for each statistic of which it is known which is better.
        ended: the end time; None while it runs, and if it was killed.
        end: ``"finished"`` normally, ``"interrupted"`` by a signal, or ``"failed"``.
        reason: the reason for the end.
        epoch: the last epoch.
        step: the last global step.
        checkpoint: the name of the last checkpoint, or None.
    """

    began: float
    host: str
    pid: int
    cwd: str
    argv: list[str] | None = None
    from_step: int | None = None
    directions: dict[str, str] = attrs.field(factory=dict)
    ended: float | None = None
    end: str | None = None
    reason: str = ""
    epoch: int | None = None
    step: int | None = None
    checkpoint: str | None = None


def read_attempts(directory: Path) -> list[Attempt]:
    """Return the attempts at the run in a directory, the first one first; an empty list if none were recorded.

    Raises:
        TpkError: if the file is not what tpk writes.
    """
    path = directory / ATTEMPTS_NAME
    try:
        content = json.loads(path.read_bytes())
        names = {field.name for field in attrs.fields(Attempt)}
        # Ignore fields that a later version has added.
        return [Attempt(**{name: each[name] for name in each if name in names}) for each in content["attempts"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TpkError(
            f"{str(path)!r} is not what tpk writes of a run's attempts ({type(error).__name__}: {error}). Remove it; "
            "only commands such as `tpk runs` read it."
        ) from error


def write_attempts(directory: Path, attempts: Sequence[Attempt]) -> None:
    """Write the attempts at the run in a directory.

    Raises:
        OSError: if the file could not be written.
    """
    content = {"attempts": [attrs.asdict(each) for each in attempts]}
    replace_file(directory / ATTEMPTS_NAME, f"{json.dumps(content, indent=1)}\n".encode())
