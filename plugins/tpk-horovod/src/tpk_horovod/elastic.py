"""Trainings that go on when processes die or join, by Horovod's elastic mode.

`horovodrun` keeps track of the hosts, starts processes on new ones, and tells those that run. When a process is gone,
or hosts have been added, the training of the others ends; Horovod is initialized anew with those that are there now;
and the training begins again, from its last checkpoint: that is what is committed.

The training function is called once for each of these rounds, so it makes all that it needs anew: the model, the data,
the callbacks, the config. It has a `run_dir` that all hosts share, since any process may be the next chief, and
``resume="auto"``.
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
    from tpk.train.trainer import Trainer

logger = logging.getLogger(f"tpk.{__name__}")

T = TypeVar("T")

_FRUITLESS_ROUNDS = 3

_round: Round | None = None


def is_elastic() -> bool:
    """Whether this process was started by `horovodrun` in elastic mode."""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def run_elastic(train: Callable[[], T]) -> T:
    """Train while processes come and go.

    A process that dies costs what has been trained since the last checkpoint. When processes are added, or one is told
    to end by SIGTERM or SIGUSR1, the others take a checkpoint of that moment first. If the number of processes is
    another one than that of the checkpoint, the data starts from its beginning.

    Args:
        train: trains with the strategy `horovod`, in a `run_dir` that all hosts share, with ``resume="auto"`` and a
            `ModelSaver`. It is called again and again, until a training has come to its end.

    Returns:
        What `train` returned in the end.

    Raises:
        ConfigError: if the process was not started by `horovodrun` in elastic mode.
        PeerError: if several rounds, one after the other, failed before their first step.
        Exception: what `train` raised, if it was not another process that was to blame.

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
            "run_elastic needs the elastic mode of horovodrun, which this process was not started in. Start it with "
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
        # There is nothing to reset: the strategy has shut Horovod down, and initializes it anew.
        result: T = run_fn(train_a_round, lambda: None)(_round)
    finally:
        _round = None
    return result


def callbacks_of_round() -> list[tpk.Callback]:
    """Return the callbacks that a training under `run_elastic` needs."""
    return [] if _round is None else [Listener(_round)]


class Round:
    """A training from one change of the processes to the next; to Horovod, it is the state that it synchronizes.

    There is nothing to synchronize besides what the training does by itself when it resumes.
    """

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._hosts_have_changed = False
        self._was_told_to_end = False
        self._fruitless = 0

    # What Horovod calls.

    def sync(self) -> None:
        """Do nothing: the chief sends what it has restored."""

    def restore(self) -> None:
        """Do nothing: the chief restores its last checkpoint."""

    def on_reset(self) -> None:
        """Begin the next round."""
        self._trainer, self._hosts_have_changed, self._was_told_to_end = None, False, False
        logger.warning("the processes of the training have changed; it goes on from its last checkpoint")

    def on_hosts_updated(self, timestamp: int, result: Any) -> None:
        """End the training with a checkpoint; called by a thread of Horovod, in the chief only."""
        self._hosts_have_changed = True
        self._end_if_hosts_have_changed()

    # What the training calls.

    def begin(self, trainer: Trainer) -> None:
        """Take note of the trainer."""
        self._trainer = trainer
        self._end_if_hosts_have_changed()

    def step(self, trainer: Trainer) -> None:
        """Take note that the training advances, and whether it was this process that was told to end."""
        self._fruitless = 0
        self._was_told_to_end = trainer.loop.stop.signum is not None

    def fail(self, error: PeerError) -> None:
        """Take note that the round has failed because of another process.

        Raises:
            PeerError: `error`, if it was not the first in a row.
        """
        self._fruitless += 1
        if self._fruitless > _FRUITLESS_ROUNDS:
            raise error

    @property
    def is_own_end(self) -> bool:
        """Whether this process is to end, rather than to go on with those that remain."""
        return self._was_told_to_end and not self._hosts_have_changed

    def _end_if_hosts_have_changed(self) -> None:
        if self._hosts_have_changed and self._trainer is not None:
            # As if it were preempted: all processes end after the same step, and save.
            self._trainer.loop.stop.set_by_signal(signal.SIGUSR1)


class Listener(tpk.Callback):
    """Tells the round under way what the training does.

    Args:
        current: the round.
    """

    chief_only = False

    def __init__(self, current: Round) -> None:
        self._round = current

    def before_train(self, trainer: Trainer) -> None:
        """The training begins."""
        self._round.begin(trainer)

    def trigger_step(self, trainer: Trainer) -> None:
        """A step is done."""
        self._round.step(trainer)
