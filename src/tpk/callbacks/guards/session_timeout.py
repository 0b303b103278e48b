"""Timeout of the runs of a session: a step that waits for ever becomes an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.errors import ConfigError, HangError
from tpk.graph.step.fetches import ops_run_for
from tpk.plugin import Callback, hookimpl

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

_WAITS = re.compile(r"Queue(De|En)queue|Unstage|Stage$|(Eager)?PyFunc|Collective|Horovod|Nccl|Barrier|IteratorGetNext")
_WAITS_TOO = re.compile(r"TakeGradient|MultiDeviceIterator")
_MOST_NAMED = 8


class SessionRunTimeout(Callback):
    """Gives each run of a step a timeout; a run that takes longer is cancelled, and an error says what it waits for.

    It is the one of `tf.compat.v1.RunOptions`. What TensorFlow can cancel ends at once: waiting for a queue, for a
    `tf.data` iterator, for another device. Python code within the run (`tf.py_function`) and a kernel that computes
    are waited for; `Watchdog` interrupts these, too, and watches what is between the runs.

    When it runs: never in a step: the timeout is compiled into the runs, and costs nothing; but where TensorFlow's
    servers run the steps (`collective`, `distributed_replicated`, `distributed_parameter_server`), whose compiled runs
    know none, steps are made by the ordinary `Session.run`, which is slower. It holds for the runs of
    `trainer.hooked_sess`, the first of which may take long (XLA, the first datapoints), not for those that callbacks
    make by themselves, such as evaluations. With ``steps_per_run=k`` a run is k steps. It works on every strategy; each
    process watches its own runs.

    Args:
        timeout_in_ms: how many milliseconds a run may take.

    Raises:
        ConfigError: if `timeout_in_ms` is no positive whole number.
        HangError: in the training, if a run takes longer.

    Example:
        ```python
        callbacks=[tpk.SessionRunTimeout(60_000)]
        ```
    """

    chief_only = False

    def __init__(self, timeout_in_ms: int) -> None:
        if not isinstance(timeout_in_ms, int) or isinstance(timeout_in_ms, bool) or timeout_in_ms <= 0:
            raise ConfigError(
                f"SessionRunTimeout({timeout_in_ms!r}): expected a positive whole number of milliseconds."
            )
        self._timeout_in_ms = timeout_in_ms

    @hookimpl(tryfirst=True)
    def before_train(self, trainer: TrainerProtocol) -> None:
        """Set the timeout."""
        trainer.hooked_sess.timeout_in_ms = self._timeout_in_ms

    def translate_error(self, error: BaseException) -> HangError | None:
        """Return what says which step has waited, and for what; None for other errors."""
        if not isinstance(error, tf.errors.DeadlineExceededError):
            return None
        trainer = self.trainer
        return HangError(
            f"a run of the session took longer than {self._timeout_in_ms} ms, and was cancelled, in "
            f"{trainer.loop.progress} (after global step {trainer.global_step}); {_what_may_wait(trainer.train_ops)}. "
            "Give SessionRunTimeout more, if that is how long it takes."
        )


def _what_may_wait(train_ops: list[Any]) -> str:
    """Say which ops of a step wait for something else than what the step computes."""
    fetched = [getattr(each, "op", each) for each in tf.nest.flatten(train_ops)]
    waiting = [op for op in ops_run_for(fetched) if _WAITS.match(op.type) or _WAITS_TOO.search(op.type)]
    if not waiting:
        return "nothing in a step waits for data or for other processes, so it was computing"
    names = [f"{op.name} ({op.type})" for op in waiting[:_MOST_NAMED]]
    more = f" and {len(waiting) - _MOST_NAMED} more" if len(waiting) > _MOST_NAMED else ""
    return f"what waits in a step is {', '.join(names)}{more}"
