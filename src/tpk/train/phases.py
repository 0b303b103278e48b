"""The phases of a training: each is entered once and in order, and a failed one releases all resources."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import tpk
from tpk.errors import TrainerStateError
from tpk.other_libraries import METHODS
from tpk.tf_internals import is_closed


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


def open_session(trainer: tpk.Trainer, sess: Any) -> Any:
    """Return the session of a trainer.

    Raises:
        TrainerStateError: if it does not exist yet, or is closed.
    """
    if sess is None or is_closed(sess):
        raise TrainerStateError(
            f"this {type(trainer).__name__} has a session only while it trains. Use it in run_step(), or in a hook "
            "from before_train to after_train. Later, read the values of variables with tpk.CheckpointReader(path)."
        )
    return sess


def explain_missing(trainer: tpk.Trainer, name: str) -> NoReturn:
    """Raise the error of using an attribute that a trainer does not have, or not yet."""
    kind = type(trainer).__name__
    advice = METHODS.get(name, "")
    if "phases" not in vars(trainer):
        advice = f"call super().__init__() first, in {kind}.__init__"
    elif name == "hooked_sess":
        advice = "it exists while the trainer trains. Use it in run_step(), or in a hook from before_train on"
    raise AttributeError(f"{kind!r} object has no attribute {name!r}{advice and f': {advice}'}")
