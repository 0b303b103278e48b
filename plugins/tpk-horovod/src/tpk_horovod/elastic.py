"""Training that continues when processes die or join, with Horovod's elastic mode.

`horovodrun` keeps track of the hosts, starts processes on new hosts, and notifies the running processes. When a process
dies or hosts are added, training stops in the remaining processes, Horovod is initialized again with the current
processes, and training resumes from the last checkpoint, which is the committed state.

The training function is called once for each of these rounds, so it must create the model, the data, the callbacks and
the config each time. It needs ``resume="auto"``, and a `run_dir` that all hosts share, because any process can become
the next chief.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import tpk
from tpk.errors import PeerError
from tpk_horovod.library import load_horovod

if TYPE_CHECKING:
    from tpk.train import Trainer

logger = logging.getLogger(f"tpk.{__name__}")

T = TypeVar("T")

_FRUITLESS_ROUNDS = 3

_round: Round | None = None


def is_elastic() -> bool:
    """Whether this process was started by `horovodrun` in elastic mode."""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def run_elastic(train: Callable[[], T]) -> T:
    """Train while processes join and leave.

    If a process dies, the steps since the last checkpoint are lost. If processes are added, or a process receives
    SIGTERM or SIGUSR1, a checkpoint is saved first. If the number of processes differs from the checkpoint, the data
    starts from the beginning.

    Args:
        train: trains with the strategy `horovod`, in a `run_dir` that all hosts share, with ``resume="auto"`` and a
            `ModelSaver`. It is called repeatedly, until training completes.

    Returns:
        The result of the last call of `train`.

    Raises:
        ConfigError: if the process was not started by `horovodrun` in elastic mode.
        PeerError: if several consecutive rounds failed before their first step.
        Exception: any error of `train` that was not caused by another process.

    Example:
        ```python
        # horovodrun -np 8 --min-np 4 --max-np 12 --host-discovery-script ./hosts.sh python script.py
        from tpk_horovod.elastic import run_elastic


        def train():
            config = tpk.TrainConfig(
                model=Linear(), dataflow=batches(), callbacks=["ModelSaver"], run_dir="/shared/run", resume="auto"
            )
            tpk.launch_train_with_config(config, "horovod")


        run_elastic(train)
        ```
    """
    global _round
    if not is_elastic():
        raise tpk.ConfigError(
            "run_elastic needs the elastic mode of horovodrun, but this process was started without it. Start it with "
            "`horovodrun -np 2 --min-np 1 --host-discovery-script ./hosts.sh python script.py`."
        )
    load_horovod()
    from horovod.common.elastic import run_fn
    from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

    def train_a_round(current: Round) -> T:
        try:
            return train()
        except PeerError as error:
            current.fail(error)
            raise HorovodInternalError(str(error)) from error
        except tpk.Preempted as error:
            if current.is_own_end:
                raise
            raise HostsUpdatedInterrupt(skip_sync=True) from error

    _round = Round()
    try:
        # The reset function does nothing: the strategy has shut Horovod down, and initializes it again.
        result: T = run_fn(train_a_round, lambda: None)(_round)
    finally:
        _round = None
    return result


def callbacks_of_round() -> list[tpk.Callback]:
    """Return the callbacks that training under `run_elastic` needs."""
    return [] if _round is None else [Listener(_round)]


class Round:
    """The training between two changes of the processes; to Horovod, it is the state to synchronize.

    Resuming already synchronizes the processes, so the methods for this do nothing.
    """

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._hosts_have_changed = False
        self._was_told_to_end = False
        self._fruitless = 0

    # Called by Horovod:

    def sync(self) -> None:
        """Do nothing: the chief broadcasts the state that it has restored."""

    def restore(self) -> None:
        """Do nothing: the chief restores its last checkpoint."""

    def on_reset(self) -> None:
        """Start the next round."""
        self._trainer, self._hosts_have_changed, self._was_told_to_end = None, False, False
        logger.warning("the processes of this training run have changed; it continues from its last checkpoint")

    def on_hosts_updated(self, timestamp: int, result: Any) -> None:
        """Stop training with a checkpoint; called in a thread of Horovod, in the chief only."""
        self._hosts_have_changed = True
        self._end_if_hosts_have_changed()

    # Called by the training loop:

    def begin(self, trainer: Trainer) -> None:
        """Record the trainer."""
        self._trainer = trainer
        self._end_if_hosts_have_changed()

    def step(self, trainer: Trainer) -> None:
        """Record that training makes progress, and whether this process has received a signal to stop."""
        self._fruitless = 0
        self._was_told_to_end = trainer.loop.stop.signum is not None

    def fail(self, error: PeerError) -> None:
        """Record that the round has failed because of another process.

        Raises:
            PeerError: `error`, after too many failures in a row.
        """
        self._fruitless += 1
        if self._fruitless > _FRUITLESS_ROUNDS:
            raise error

    @property
    def is_own_end(self) -> bool:
        """Whether this process must end, instead of continuing in the next round."""
        return self._was_told_to_end and not self._hosts_have_changed

    def _end_if_hosts_have_changed(self) -> None:
        if self._hosts_have_changed and self._trainer is not None:
            # Stop like a preempted run: all processes stop after the same step, and a checkpoint is saved.
            self._trainer.loop.stop.set_by_signal(signal.SIGUSR1)


class Listener(tpk.Callback):
    """Reports the progress of training to the current round.

    Args:
        current: the round.
    """

    chief_only = False

    def __init__(self, current: Round) -> None:
        self._round = current

    def before_train(self, trainer: Trainer) -> None:
        """Report the start of training."""
        self._round.begin(trainer)

    def trigger_step(self, trainer: Trainer) -> None:
        """Report a completed step."""
        self._round.step(trainer)
