"""Learning rates, reported once an epoch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpk.graph.gradients import recorded_optimizers
from tpk.graph.optimizers.learning_rate import learning_rate_of
from tpk.graph.reports.summaries import names_of_scalar_summaries
from tpk.plugin import Callback

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class LearningRateMonitor(Callback):
    """Reports the learning rate at the end of each epoch, before callbacks set another one, as ``learning_rate``.

    It is that of the optimizer which the training uses, whether that was given a number, a variable, or a tensor such
    as a schedule. Of several objectives each has its own: ``generator/learning_rate``. What a summary of the model
    reports under such a name already is left to that; an optimizer whose learning rate cannot be told, such as one that
    depends on the data, has none.

    Example:
        ```python
        trainer.train(callbacks=["LearningRateMonitor"], monitors=["JSONWriter"], steps_per_epoch=100, max_epoch=10)
        ```
    """

    def __init__(self) -> None:
        self._rates: dict[str, Any] = {}

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the learning rates."""
        taken = names_of_scalar_summaries(trainer.graph)
        found = {name: learning_rate_of(optimizer) for name, optimizer in _optimizers_of(trainer).items()}
        unknown = [name for name, rate in found.items() if rate is None]
        if unknown:
            logger.debug("the optimizers have no learning rates that could be reported as %s", ", ".join(unknown))
        self._rates = {name: rate for name, rate in found.items() if rate is not None and name not in taken}

    def after_epoch(self, trainer: TrainerProtocol) -> None:
        """Report."""
        tensors = {name: rate for name, rate in self._rates.items() if not isinstance(rate, float)}
        rates = {**self._rates, **(trainer.sess.run(tensors) if tensors else {})}
        for name, rate in rates.items():
            trainer.monitors.put_scalar(name, rate)


def _optimizers_of(trainer: TrainerProtocol) -> dict[str, Any]:
    """Return the optimizers of the first tower, by the names of what is reported of them."""
    main_tower = trainer.towers.main
    output = main_tower.output if main_tower is not None else None
    objectives = {cost.ref(): f"{name}/" for name, cost in output.items()} if isinstance(output, Mapping) else {}
    found: dict[str, Any] = {}
    for cost, optimizer in recorded_optimizers(trainer.graph):
        found.setdefault(f"{objectives.get(cost.ref(), '')}learning_rate", optimizer)
    return found
