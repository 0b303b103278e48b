"""Attempts at a run: when each process began to train, and how that ended; ``attempts.json``. Needs no TensorFlow.

A run has as many as it was started and resumed. The file is written when an attempt begins, when its loop begins, and
when it ends: so one that nobody has ended, and whose lock nobody holds, was killed.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from tpk.checkpoint.durable_files import replace_file
from tpk.errors import Preempted, StopTraining, TpkError, in_one_line
from tpk.train.run.names import ATTEMPTS_NAME

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

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


class AttemptRecord:
    """Record of the attempt under way.

    Args:
        directory: of the run.
        from_step: the global step of the checkpoint from which the training goes on.
        clock: returns the seconds since 1970.
    """

    def __init__(self, directory: Path, from_step: int | None, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        try:
            self._former = read_attempts(directory)
        except TpkError as error:
            logger.warning("%s", error)
            self._former = []
        self._attempt = Attempt(
            began=clock(),
            host=platform.node(),
            pid=os.getpid(),
            cwd=os.getcwd(),
            argv=list(sys.argv) if os.path.isfile(sys.argv[0]) else None,
            from_step=from_step,
        )
        self._write()

    def take_directions(self, grows: Mapping[str, bool]) -> None:
        """Write down which statistics become better by growing (True), or by falling."""
        self._attempt = attrs.evolve(
            self._attempt, directions={name: "max" if up else "min" for name, up in grows.items()}
        )
        self._write()

    def end(self, trainer: TrainerProtocol, failure: BaseException | None) -> None:
        """Write down how it ended.

        Args:
            trainer: whose training it was.
            failure: what has passed through it.
        """
        last = trainer.checkpoints.last_path
        self._attempt = attrs.evolve(
            self._attempt,
            ended=self._clock(),
            end=_kind_of(failure),
            reason=_reason_of(trainer, failure),
            epoch=trainer.epoch_num,
            step=trainer.global_step,
            checkpoint=None if last is None else Path(last).name,
        )
        self._write()

    def _write(self) -> None:
        """Write the file; that it cannot be is no reason to end a training, or to hide what has ended it."""
        content = {"attempts": [attrs.asdict(each) for each in [*self._former, self._attempt]]}
        path = self._directory / ATTEMPTS_NAME
        try:
            replace_file(path, f"{json.dumps(content, indent=1)}\n".encode(), path.with_name(f".{ATTEMPTS_NAME}.new"))
        except OSError as error:
            logger.warning("%s could not be written (%s): `tpk runs` will not know how this training went", path, error)


@contextmanager
def attempt_recorded(
    trainer: TrainerProtocol, directory: Path, from_step: int | None, clock: Callable[[], float] = time.time
) -> Iterator[AttemptRecord]:
    """Within the context a trainer is set up and trains; give the record of that, which is on disk from the start.

    Args:
        trainer: the trainer of the chief.
        directory: of the run.
        from_step: the global step of the checkpoint from which the training goes on; None if it starts afresh.
        clock: returns the seconds since 1970.
    """
    record = AttemptRecord(directory, from_step, clock)
    try:
        yield record
    except BaseException as failure:
        record.end(trainer, failure)
        raise
    record.end(trainer, None)


def _kind_of(failure: BaseException | None) -> str:
    if failure is None:
        return "finished"
    return "interrupted" if isinstance(failure, KeyboardInterrupt | Preempted) else "failed"


def _reason_of(trainer: TrainerProtocol, failure: BaseException | None) -> str:
    if isinstance(failure, Preempted):
        return signal.Signals(failure.signum).name
    if isinstance(failure, KeyboardInterrupt):
        return "SIGINT (Ctrl-C)"
    if failure is not None:
        reason = in_one_line(failure)
        notes = "".join(f"; {note}" for note in getattr(failure, "__notes__", ()) if note != reason)
        return reason[:1000] + notes
    if trainer.loop.ended_by is None:
        return f"max_epoch={trainer.loop.max_epoch} is reached"
    return str(trainer.loop.ended_by) if isinstance(trainer.loop.ended_by, StopTraining) else "the data ended"
