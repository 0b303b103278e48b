"""Gradients: how they are distributed, and how large they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tpk.callbacks.inspection.tensors import LooksAtTensors
from tpk.callbacks.run_companions import RunTensor
from tpk.errors import ConfigError
from tpk.graph.gradients import recorded_gradients
from tpk.graph.variables import name_in_tower

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol


class GradientHistogram(LooksAtTensors):
    """Reports how the gradients are distributed and how large they are: at the end of each epoch, or every k steps.

    To the monitors, for each variable that is trained:

    - ``gradients/<variable>``: a histogram;
    - ``gradients/<variable>/norm``: the Euclidean norm, a scalar;
    - ``gradients/global_norm``: that of all gradients of the cost together, as `tf.linalg.global_norm` has it.

    Of several costs each has its own, with its name: ``gradients/<cost>/<variable>``. They are the gradients of the
    main training tower as they were computed: before they are averaged with those of other towers, clipped, or
    processed otherwise. A sparse gradient is taken for its values.

    - **When it runs**: along with the last step of each epoch, or each k-th step. Of an objective that is not minimized
      in that step, along with the next one in which it is.
    - **What it costs**: in these steps all gradients are copied out of the graph, which takes the memory of the weights
      once more. In all others nothing.
    - **Where it works**: on every strategy; it looks at the main training tower of the chief. It knows the gradients
      that `tpk.graph.gradients.compute_gradients` computed, as all trainers with towers compute theirs.

    Args:
        every_k_steps: report in steps whose number is a multiple of it; by default in the last step of each epoch.
            Where one run makes several steps, in the last step of the run that passes such a one.

    Raises:
        ConfigError: if `every_k_steps` is not positive; when the graph is set up, if the trainer's gradients are not
            known.

    Example:
        ```python
        callbacks=[tpk.callbacks.GradientHistogram(every_k_steps=500)]
        ```
    """

    def __init__(self, every_k_steps: int | None = None) -> None:
        super().__init__("gradients", 1 if every_k_steps is None else every_k_steps)
        self._at_epoch_end = every_k_steps is None
        # The cost and the variable of each gradient.
        self._costs: dict[str, str] = {}

    def find_tensors(self, trainer: TrainerProtocol) -> list[RunTensor]:
        """Return the gradients of the main training tower.

        Raises:
            ConfigError: if none are known.
        """
        first: dict[tuple[str, str], Any] = {}
        for record in recorded_gradients(trainer.graph):
            cost = name_in_tower(record.cost.name).removesuffix(":0")
            first.setdefault((cost, name_in_tower(record.variable)), record.gradient)
        if not first:
            raise ConfigError(
                f"GradientHistogram does not know the gradients of a {type(trainer).__name__}. Compute them by "
                "tpk.graph.gradients.compute_gradients."
            )
        has_several = len({cost for cost, _ in first}) > 1
        found = []
        for (cost, variable), gradient in first.items():
            prefix = f"gradients/{cost}" if has_several else "gradients"
            self._costs[f"{prefix}/{variable}"] = prefix
            found.append(RunTensor(f"{prefix}/{variable}", gradient))
        return found

    def next_due(self, step: int) -> float:
        """Return the number of the first step to look at after `step`."""
        if not self._at_epoch_end:
            return super().next_due(step)
        end = self._offset - 1  # of an epoch
        return end + ((step - end) // self._steps_per_epoch + 1) * self._steps_per_epoch

    def begin_step(self) -> None:
        """Go on waiting for what is still to come; if nothing is, wait for all gradients."""
        if not self._missing:
            self._missing = set(self._tensors)

    def take(self, values: dict[str, Any]) -> None:
        """Report the gradients of a run, without those of other objectives, which are minimized in other ones."""
        self.look(values)

    def look(self, values: dict[str, Any]) -> None:
        """Report gradients."""
        monitors = self.trainer.monitors
        squares: dict[str, float] = {}
        for name, value in values.items():
            gradient = np.asarray(value, np.float64)
            if gradient.size:
                monitors.put_histogram(name, gradient)
            square = float(np.sum(np.square(gradient)))
            monitors.put_scalar(f"{name}/norm", np.sqrt(square))
            squares[self._costs[name]] = squares.get(self._costs[name], 0.0) + square
        for prefix, square in squares.items():
            monitors.put_scalar(f"{prefix}/global_norm", np.sqrt(square))

    def state_dict(self) -> dict[str, Any]:
        """Return which step is the next to look at, and what is still to come."""
        return {**super().state_dict(), "missing": sorted(self._missing)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        super().load_state_dict(state)
        self._missing = set(state["missing"]) & self._tensors.keys()
