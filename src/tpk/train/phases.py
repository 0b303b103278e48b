"""The phases of a training: each is entered once and in order, and a failed one releases all resources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tpk.errors import TrainerStateError


class Phases:
    """The phases that a trainer has entered.

    Args:
        trainer: the trainer, for messages.

    Attributes:
        resources: the resources of the training: files, the session, its membership in the process group. Closed when
            the training ends or a phase fails, so that other processes do not wait for this one.
    """

    def __init__(self, trainer: object) -> None:
        self._trainer = type(trainer).__name__
        self._entered: set[str] = set()
        self.resources = ExitStack()

    def has(self, phase: str) -> bool:
        """Return whether a phase has been entered."""
        return phase in self._entered

    @contextmanager
    def enter(self, phase: str, after: str = "") -> Iterator[None]:
        """Enter a phase, which runs within the context.

        Args:
            phase: the method.
            after: the phase that must have been entered before; empty for none.

        Raises:
            TrainerStateError: if the phase has been entered before, or comes too early.
        """
        if phase in self._entered:
            raise TrainerStateError(
                f"{phase}() was called already on this {self._trainer}; a trainer trains once. Create a new one, with "
                "session_init=tpk.SaverRestore(<the checkpoint>) to continue from a checkpoint."
            )
        if after and after not in self._entered:
            raise TrainerStateError(f"{phase}() comes after {after}().")
        self._entered.add(phase)
        with ExitStack() as failing:
            failing.push(self.resources)
            yield
            failing.pop_all()
