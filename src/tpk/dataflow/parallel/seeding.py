"""Random numbers of worker processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from tpk.dataflow.parallel.transport.receiver import Receiver
from tpk.dataflow.parallel.transport.sender import Sender


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


class GlobalRandom:
    """The global random numbers of Python and NumPy in a worker process, so that a resumed worker draws on.

    A worker whose user code draws none has nothing to keep.
    """

    def __init__(self) -> None:
        self._at_first: Any = None

    def begin(self) -> None:
        """Note where the numbers start; called in the worker."""
        self._at_first = _states()

    def state(self) -> Any:
        """Return where the numbers are, as plain data; None if none has been drawn."""
        python, numpy = now = _states()
        if now == self._at_first:
            return None
        version, words, gauss = python
        name, key, *rest = numpy
        return [[version, list(words), gauss], [name, np.frombuffer(key, np.uint32).tolist(), *rest]]

    def restore(self, state: Any) -> None:
        """Go on where the numbers were."""
        if state is not None:
            (version, words, gauss), numpy_state = state
            random.setstate((version, tuple(words), gauss))
            np.random.set_state(tuple(numpy_state))


def _states() -> tuple[Any, Any]:
    """Return where both generators are, as values that can be compared."""
    name, key, *rest = np.random.get_state()
    return random.getstate(), (name, np.asarray(key).tobytes(), *rest)
