"""Numerics of a training: the op in which a NaN or an infinity arises."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpk.callbacks.guards.nan_guard import NanGuard, refuse_loss_scale
from tpk.callbacks.run_companions import NamedTensors, RunTensor
from tpk.errors import ConfigError
from tpk.graph.gradients import recorded_gradients
from tpk.graph.optimizers.non_finite import check_each_finite
from tpk.graph.step.fetches import ops_run_for
from tpk.tf_internals import is_reference, output_context

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class CheckNumerics(NanGuard):
    """Finds the op in which a NaN or an infinity arises: checks all numbers that a step computes, and stops at a bad
    one.

    It is a `NanGuard` that looks not only at the costs, but at every floating-point tensor that goes into the train op
    or a cost, in all towers: what `tf.compat.v1.add_check_numerics_ops` checks, and it says which of these comes first
    in the order of computation. The error is a `NonFiniteError`; it names the op and its type, what it has, the step,
    the datapoints where the input can tell, and the last good checkpoint.

    What is inside of a loop, a condition or a function is checked where it comes out. Constants are taken for what is
    wanted. A model that has infinities by design, such as the mask of an attention that is computed, stops at once:
    write ``-1e9`` there.

    - **When it runs**: along with each step, or those that `EnableCallbackIf` and `PeriodicCallback` choose.
    - **What it costs**: in these steps every tensor is read once more; the graph has an op more for each of them, so
      that to set up the training takes several times as long. It is for finding the cause, once a `NanGuard` has told
      that there is one.
    - **Where it works**: on every strategy, in every process. Of towers that do not wait for each other (``async``) it
      checks the first. Not with a `DynamicLossScaleOptimizer` (``precision="float16"``), under which gradients are
      infinite by design.

    Raises:
        ConfigError: when the graph is set up, if the trainer has no train op, or one with a dynamic loss scale.

    Example:
        ```python
        callbacks=[tpk.EnableCallbackIf(tpk.CheckNumerics(), lambda self: self.global_step >= 12_000)]
        ```
    """

    def __init__(self) -> None:
        super().__init__(on_nan="stop")

    def tensors_to_check(self, trainer: TrainerProtocol) -> list[RunTensor]:
        """Return all floating-point tensors that a step computes, in the order of computation.

        Raises:
            ConfigError: if nobody knows what a step computes, or infinities are part of it.
        """
        if not trainer.train_ops:
            raise ConfigError(
                f"CheckNumerics does not know what a step of a {type(trainer).__name__} computes, which has no "
                "train_op. Set it, or name tensors to a NanGuard."
            )
        refuse_loss_scale(trainer, "CheckNumerics", "Look for the op with precision='float32'.")
        gradients: dict[Any, list[Any]] = {}
        for record in recorded_gradients(trainer.graph):
            gradients.setdefault(record.cost.ref(), []).append(record.gradient.op)
        # First the costs, so that each op comes before its gradient, which may be as bad. The run of a train op may not
        # need the value of the cost: what only that needs belongs to the run all the same.
        belongs_to: dict[Any, list[Any]] = {}
        for cost, ops in gradients.items():
            for op in ops_run_for(cost.deref()):
                belongs_to.setdefault(op, []).extend(ops)
        needed = ops_run_for(trainer.train_ops)
        belongs_to |= {op: [op] for op in needed}
        computed = [op for op in belongs_to if op.type != "Const"]
        # What is in a loop or a condition has no value outside of it.
        reachable = [op for op in computed if output_context(op) is None]
        if len(reachable) < len(computed):
            logger.info(
                "CheckNumerics: %d of %d ops are inside of loops or conditions; what they compute is checked where it "
                "comes out",
                len(computed) - len(reachable),
                len(computed),
            )
        return [RunTensor(tensor.name, tensor, belongs_to[op]) for op in reachable for tensor in _numbers_of(op)]

    def _check(self, named: NamedTensors, run: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """Return the op that checks `named`, which are many, along with a run that takes `inputs`."""
        return check_each_finite(named, self.plugin_name, after=inputs) if named else None

    def explain(self, found: Mapping[str, str]) -> str:
        """Return which op it is, given the tensors in the order of computation."""
        first = next(iter(found))
        op = self.trainer.graph.get_tensor_by_name(first).op
        return f"the first op that computed a bad number is {op.name!r} ({op.type})"


def _numbers_of(op: Any) -> list[Any]:
    """Return the floating-point tensors that an op computes, but for what it keeps for its gradient as it likes."""
    arguments = op.op_def.output_arg if len(op.op_def.output_arg) == len(op.outputs) else ()
    opaque = {index for index, argument in enumerate(arguments) if argument.name.startswith("reserve")}
    return [
        tensor
        for index, tensor in enumerate(op.outputs)
        if index not in opaque and tensor.dtype.is_floating and not is_reference(tensor)
    ]
