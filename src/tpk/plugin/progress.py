"""Progress: how far a training has come."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import attrs

COUNTERS = ("epoch_num", "local_step", "global_step")


@attrs.define
class Progress:
    """The three counters of a training, kept in one place so that a checkpoint holds them together.

    The loop begins a step, the first run of the session in it claims it, and completes it. So a step counts once,
    however often it runs the session, and a run outside of a step counts none.

    Attributes:
        epoch_num: the epoch under way, from just before ``before_epoch`` until after ``trigger_epoch``; between
            epochs, the last one.
        local_step: the step under way within the epoch, from 0 on; -1 before the first.
        global_step: how many steps have completed; the one under way counts from its first ``hooked_sess.run`` on.
        in_run_step: whether ``run_step`` itself is running, rather than a hook.
    """

    epoch_num: int = 0
    local_step: int = -1
    global_step: int = 0
    in_run_step: bool = attrs.field(default=False, init=False, eq=False, repr=False)
    _begun: int = attrs.field(default=0, init=False, eq=False, repr=False)
    _lock: Any = attrs.field(factory=Lock, init=False, eq=False, repr=False)

    def begin_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; or stay where it is, if it is the one under way already.

        A training that is resumed in the middle of an epoch has that epoch under way before it begins.
        """
        if epoch != self.epoch_num:
            self.epoch_num, self.local_step = epoch, -1

    def begin(self, steps: int = 1) -> None:
        """Let the next run of the session count `steps` steps."""
        self._begun = steps

    def claim(self) -> int:
        """Return the number of steps that have begun, once: a second claim returns 0. Safe to call from any thread."""
        if not self._begun:
            return 0
        with self._lock:
            steps, self._begun = self._begun, 0
        return steps

    def complete(self, steps: int) -> None:
        """Count steps that a run of the session has completed; from any thread."""
        with self._lock:
            self.global_step += steps

    def __str__(self) -> str:
        """Say where the training is; steps are counted from 1 on in prose."""
        return f"epoch {self.epoch_num}, step {self.local_step + 1}"

    def state_dict(self) -> dict[str, int]:
        """Return the counters as plain data."""
        return {name: getattr(self, name) for name in COUNTERS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        for name in COUNTERS:
            setattr(self, name, int(state[name]))
