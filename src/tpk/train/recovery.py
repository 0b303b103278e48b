"""Steps that fail, and callbacks that can do something about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpk.train.trainer import Trainer


def recovering_step(trainer: Trainer) -> Callable[[], None]:
    """Return what runs a step of `trainer`: its `run_step`, once more if a callback can recover from its failure.

    A callback that has a method ``recover(error) -> bool`` is asked when a step has failed. If it returns true, it has
    put things right, and the step is taken anew. Without such a callback, this costs nothing.
    """
    found = [getattr(plugin, "recover", None) for plugin in trainer.hooks.plugins.values()]
    recoveries: list[Callable[[Exception], bool]] = [recover for recover in found if callable(recover)]
    if not recoveries:
        return trainer.run_step

    def run_step() -> None:
        while True:
            try:
                return trainer.run_step()
            except Exception as error:
                if not any(recover(error) for recover in recoveries):
                    raise

    return run_step
