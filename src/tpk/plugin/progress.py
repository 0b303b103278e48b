"""The counters of a training run and the request to end it, shared by its loop, session and plugins."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import attrs

from tpk.errors import StopTraining

COUNTERS = ("epoch_num", "local_step", "global_step")


@attrs.define
class Progress:
    """The three counters of a training run, in one place, so that a checkpoint holds them together.

    The loop offers a step; the first run of the session in it claims the step, and completes it. So a step counts once,
    however often it runs the session, and a run outside of a step counts none.

    Attributes:
        epoch_num: the current epoch, from just before ``before_epoch`` until after ``trigger_epoch``; between epochs,
            the last one.
        local_step: the current step of the epoch, from 0; -1 before the first.
        global_step: the number of completed steps. The current step counts once its first ``hooked_sess.run`` is done.
    """

    epoch_num: int = 0
    local_step: int = -1
    global_step: int = 0
    _offered: int = attrs.field(default=0, init=False, eq=False, repr=False)
    _lock: Any = attrs.field(factory=Lock, init=False, eq=False, repr=False)

    def begin_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, unless it is the current one.

        It is the current one if the run was resumed in the middle of it.
        """
        if epoch != self.epoch_num:
            self.epoch_num, self.local_step = epoch, -1

    def offer(self, steps: int = 1) -> None:
        """Let the next run of the session make and count `steps` steps."""
        self._offered = steps

    def withdraw(self) -> int:
        """Return the number of steps that were offered and that no run has claimed; no later run counts them."""
        with self._lock:
            steps, self._offered = self._offered, 0
        return steps

    def claim(self) -> int:
        """Return the number of steps that a run makes and counts: those that were offered, once. Thread-safe."""
        return self._offered and self.withdraw()

    def complete(self, steps: int) -> None:
        """Count steps that a run of the session has completed. Thread-safe."""
        with self._lock:
            self.global_step += steps

    def __str__(self) -> str:
        """Return the position, for messages. In prose, steps count from 1."""
        return f"epoch {self.epoch_num}, step {self.local_step + 1}"

    def state_dict(self) -> dict[str, int]:
        """Return the counters as plain data."""
        return {name: getattr(self, name) for name in COUNTERS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name in COUNTERS:
            setattr(self, name, int(state[name]))


class StopRequest:
    """The request to end a run after the current step. Hooks, session, signals and loop share one.

    Attributes:
        reason: why the run ends; for the log.
        signum: the signal that made the request; None if none did.
    """

    def __init__(self) -> None:
        self.reason = "a hook asked for the end of the training"
        self.signum: int | None = None
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether the run is to end."""
        return self._is_set

    def set(self, reason: str = "") -> None:
        """Make the request; from any thread, or a signal handler."""
        self.reason = reason or self.reason
        self._is_set = True

    def set_by_signal(self, signum: int) -> None:
        """Make the request for a signal: the run ends with a checkpoint, and raises `Preempted`."""
        self.signum = signum
        self.set()

    def set_by_exception(self, stop: StopTraining) -> None:
        """Turn the `StopTraining` of a hook into a request, so that the other plugins are still called."""
        notes = "; ".join(getattr(stop, "__notes__", ()))
        self.set(f"{stop}" or f"StopTraining was raised {notes}".rstrip())
