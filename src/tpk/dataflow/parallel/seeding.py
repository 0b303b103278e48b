"""Random numbers of worker processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from tpk.dataflow.parallel.receiver import Receiver
from tpk.dataflow.parallel.sender import Sender


@attrs.frozen
class SeededWork:
    """Work of a worker process, with the global random numbers of Python and NumPy seeded for the user's code.

    Attributes:
        work: called with the sender of results and the receiver of tasks.
        seed: the seed of all workers.
        worker: which of them this is.
    """

    work: Callable[[Sender, Receiver], Any]
    seed: int
    worker: tuple[int, ...]

    def __call__(self, sender: Sender, tasks: Receiver) -> None:
        """Do the work."""
        state = np.random.SeedSequence(self.seed, spawn_key=self.worker).generate_state(2)
        random.seed(int(state[0]))
        np.random.seed(state[1])
        self.work(sender, tasks)
