"""Progress: how far a training has come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.define
class Progress:
    """The three counters of a training, kept in one place so that a checkpoint holds them together.

    Attributes:
        epoch_num: the epoch under way, from just before ``before_epoch`` until after ``trigger_epoch``; between
            epochs, the last one.
        local_step: the step under way within the epoch, from 0 on; -1 before the first.
        global_step: how many steps have completed; the one under way counts from its first ``hooked_sess.run`` on.
    """

    epoch_num: int = 0
    local_step: int = -1
    global_step: int = 0

    def begin_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; or stay where it is, if it is the one under way already.

        A training that is resumed in the middle of an epoch has that epoch under way before it begins.
        """
        if epoch != self.epoch_num:
            self.epoch_num, self.local_step = epoch, -1

    def __str__(self) -> str:
        """Say where the training is; steps are counted from 1 on in prose."""
        return f"epoch {self.epoch_num}, step {self.local_step + 1}"

    def state_dict(self) -> dict[str, int]:
        """Return the counters as plain data."""
        return attrs.asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        for field in attrs.fields(Progress):
            setattr(self, field.name, int(state[field.name]))
