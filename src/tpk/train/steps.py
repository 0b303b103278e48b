"""How the steps of a trainer are run, and what callbacks can do about one that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tpk.session.hooked import HookedSession

if TYPE_CHECKING:
    from tpk.graph.global_step import StepCounter
    from tpk.train.trainer import Trainer


def hooked_session(trainer: Trainer, counter: StepCounter) -> HookedSession:
    """Return the session that runs the steps of `trainer` together with its hooks.

    Args:
        trainer: with its session and its compiled hooks.
        counter: what counts the runs in the graph.
    """
    translators = [getattr(plugin, "translate_error", None) for plugin in trainer.hooks.plugins.values()]
    return HookedSession(
        trainer.sess,
        trainer.step_hooks,
        trainer.progress,
        count_op=counter.op_for,
        translators=[translate for translate in translators if translate is not None],
    )


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
