"""Guards against NaNs and infinities, and the search for the op in which one arises."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least, check_one_of, given
from tpk.callbacks.hyper_params.setters import GraphVarParam
from tpk.callbacks.run_tensors import NamedTensors, RunCompanions, RunTensor, find_in_each_tower, run_tensors
from tpk.errors import ConfigError, NonFiniteError, add_note, noting
from tpk.graph.fetches import FetchDependencies, ops_run_for
from tpk.graph.gradients import gradient_ops_by_cost, recorded_gradients
from tpk.graph.optimizers.loss_scale import DynamicLossScaleOptimizer
from tpk.graph.optimizers.non_finite import (
    GATES_KEY,
    check_all_finite,
    check_each_finite,
    fail_unless,
    read_failure,
    skip_non_finite,
)
from tpk.graph.reports.summary_ops import MOVING_SUMMARY_OPS_KEY
from tpk.graph.step_counter import get_global_step_var
from tpk.graph.variables import assign_values, saveable_variables, variable_name
from tpk.plugin import Callback, hookimpl
from tpk.tf_internals import is_reference, output_context

logger = logging.getLogger(__name__)

_SHARING = ("Identity", "StopGradient", "Reshape", "ExpandDims", "Squeeze", "Slice", "StridedSlice", "Split", "Unpack")
"""The types of ops whose outputs may share the memory of an input."""


class NanGuard(Callback):
    """Stops, skips an update, or rolls back in the step in which a NaN or an infinity arises.

    The check is an op that runs along with each step, on the devices of the tensors that it checks; nothing is fetched
    unless it fails. It checks what belongs to the step: of several objectives that are minimized in turn, the one whose
    turn it is; of towers that do not wait for each other (``async``), the first.

    - ``"stop"`` ends the training with a `NonFiniteError`, which names the tensor, the step, the step's datapoints if
      the input source knows them, and the last good checkpoint. The bad values of the variables are not saved.
    - ``"skip"`` continues without the update. It needs an optimizer that can skip: return
      `SkipNonFiniteOptimizer(optimizer)` from the model's `optimizer()`. All gradients are checked. Moving averages,
      such as those of batch normalization, also skip values that are not finite. After `max_skips` skipped updates in a
      row the training stops.
    - ``"rollback"`` restores all variables, including optimizer variables, from the last good checkpoint, multiplies
      the variable ``learning_rate`` by `lr_factor`, and repeats the step with new data: the data, the counters and
      other callbacks do not go back. After `max_rollbacks` rollbacks the training stops.

    In any case no checkpoint is saved in which a trainable variable has a NaN or an infinity, or another variable a
    NaN.

    Args:
        tensors: what to check with ``"stop"`` and ``"rollback"``: ``"cost"`` for each cost that is minimized,
            ``"gradients"`` for all gradients, the name of a tensor inside the tower, a tensor, or a list of these.
            Names are looked up in every tower.
        on_nan: ``"stop"``, ``"skip"`` or ``"rollback"``.
        max_skips: the maximum number of skipped updates in a row; None for no limit.
        max_rollbacks: the maximum number of rollbacks.
        lr_factor: the factor of the learning rate at a rollback, more than 0 and at most 1. With 1, no variable
            ``learning_rate`` is needed.

    Raises:
        ConfigError: if an option is invalid; and, when the training is set up, if the graph lacks something it needs.

    Example:
        ```python
        callbacks=[tpk.ModelSaver(), tpk.NanGuard("gradients", on_nan="rollback", max_rollbacks=5)]
        ```
    """

    chief_only = False
    state_attributes = ("rollbacks", "_skipped")

    def __init__(
        self,
        tensors: Any = "cost",
        on_nan: str = "stop",
        *,
        max_skips: int | None = 10,
        max_rollbacks: int = 3,
        lr_factor: float = 0.5,
    ) -> None:
        check_one_of(self, ("stop", "skip", "rollback"), on_nan=on_nan)
        check_at_least(self, 1, max_rollbacks=max_rollbacks, **given(max_skips=max_skips))
        if not 0 < lr_factor <= 1:
            raise ConfigError(f"NanGuard: lr_factor must be more than 0 and at most 1, not {lr_factor!r}")
        self._wanted = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        if not self._wanted:
            raise ConfigError("NanGuard(tensors=[]): nothing to check. Name a tensor, or 'cost'.")
        self._on_nan = on_nan
        self._max_skips = max_skips
        self._max_rollbacks = max_rollbacks
        self._lr_factor = lr_factor
        self._learning_rate = GraphVarParam("learning_rate") if on_nan == "rollback" and lr_factor < 1 else None
        self._gates: list[Any] = []
        self._checks: RunCompanions
        self._variables_are_finite: Any = None
        self._skipped = 0
        self.rollbacks = 0

    # Last, so that the variables of other callbacks exist.
    @hookimpl(trylast=True)
    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Add the checks to the graph."""
        if self._on_nan == "skip":
            self._find_gates(trainer)
        if self._on_nan == "rollback":
            self._prepare_rollback(trainer)
        with tf.name_scope(f"{self.plugin_name.replace('#', '_')}/"):
            wanted = self.tensors_to_check(trainer)
            self._checks = RunCompanions(trainer, wanted, self._check)
            left_out = ", ".join(each.name for each in self._checks.left_out)
            if left_out and len(self._checks.left_out) == len(wanted):
                raise ConfigError(
                    f"NanGuard: no step takes the data on which {left_out} depend, so they cannot be checked along "
                    "with one. Name something on which the cost depends."
                )
            if left_out:
                logger.info("NanGuard: not computed in the runs of the steps, so not checked: %s", left_out)
            values = _values_of_variables(trainer.graph)
            self._variables_are_finite = check_all_finite(values, self.plugin_name) if values else tf.no_op()

    def tensors_to_check(self, trainer: tpk.Trainer) -> list[RunTensor]:
        """Return the tensors to check, in every tower.

        Raises:
            ConfigError, TowerError: if one of them does not exist, or is not a floating-point tensor.
        """
        found: list[RunTensor] = []
        for each in self._wanted:
            if isinstance(each, tf.Tensor):
                found += run_tensors(trainer.graph, [(each.name, each)])
            elif each == "cost":
                found += _find_costs(trainer)
            elif each == "gradients":
                if not self._gates:
                    _refuse_loss_scale(trainer, "NanGuard(tensors='gradients')", "Check the cost, or use on_nan='skip'")
                found += _find_gradients(trainer)
            elif isinstance(each, str):
                tensors = find_in_each_tower(trainer, each)
                found += run_tensors(trainer.graph, [(tensor.name, tensor) for tensor in tensors])
            else:
                raise ConfigError(f"NanGuard(tensors=...): expected names or tensors, got {each!r}.")
        for checked in found:
            if not checked.tensor.dtype.is_floating:
                raise ConfigError(
                    f"NanGuard: {checked.name} is {checked.tensor.dtype.name}, which is always finite. Leave it out."
                )
        return found

    def before_run(self, run_context: Any) -> Any:
        """Return the check that belongs to the run."""
        return self._checks.request_for(run_context.original_args.fetches)

    def translate_error(self, error: BaseException) -> NonFiniteError | None:
        """Return an error that names the bad tensors, if a check failed."""
        found = read_failure(error, self.plugin_name)
        if found is None:
            return None
        return self._make_error(found, self.explain(found), _datapoints_of_run(self.trainer, self._checks.fetches))

    def explain(self, found: Mapping[str, str]) -> str:
        """Return the beginning of the message of a failed check; may be empty.

        Args:
            found: the tensors that are not finite, and how many bad numbers each has.
        """
        return f"{self._max_skips} updates in a row were skipped" if self._gates else ""

    def recover(self, error: BaseException) -> bool | None:
        """Roll back to the last good checkpoint."""
        if self._on_nan != "rollback" or not isinstance(error, NonFiniteError):
            return None
        if self.rollbacks >= self._max_rollbacks:
            add_note(error, f"it has been rolled back {self.rollbacks} times already (max_rollbacks)")
            return None
        checkpoint = self.trainer.checkpoints.newest()
        if checkpoint is None:
            add_note(error, "it cannot be rolled back, because there is no checkpoint yet")
            return None
        self.rollbacks += 1
        rate = None if self._learning_rate is None else self._learning_rate.get_value() * self._lr_factor
        self.trainer.checkpoints.restore_variables(checkpoint.prefix)
        # The failed run may or may not have incremented the variable.
        assign_values(self.trainer.sess, [(get_global_step_var(), np.array(self.trainer.global_step))])
        if self._learning_rate is not None:
            self._learning_rate.set_value(rate)
        logger.warning(
            "%s. The variables are restored from %s (rollback %d of %d)%s",
            error,
            checkpoint.prefix,
            self.rollbacks,
            self._max_rollbacks,
            "" if rate is None else f"; the learning rate is now {rate:g}",
        )
        return True

    def before_checkpoint(self) -> None:
        """Raise if the variables are not finite and cannot be rolled back."""
        self._check_variables("no checkpoint can be saved")

    def _check_variables(self, consequence: str) -> None:
        """Raise if the variables are not finite and cannot be rolled back."""
        try:
            self.trainer.sess.run(self._variables_are_finite)
        except tf.errors.InvalidArgumentError as failure:
            found = read_failure(failure, self.plugin_name)
            if found is None:
                raise
            error = self._make_error(found, consequence)
            if not self.recover(error):
                raise error from failure

    def trigger_epoch(self, trainer: tpk.Trainer) -> None:
        """Log how many updates were skipped."""
        counters = [gate.skipped for gate in self._gates if hasattr(gate, "skipped")]
        skipped = int(sum(trainer.sess.run(counters))) if counters else 0
        if skipped > self._skipped:
            new = skipped - self._skipped
            logger.warning("epoch %d: %d updates were skipped, %d in all", trainer.epoch_num, new, skipped)
        self._skipped = skipped

    def _find_gates(self, trainer: tpk.Trainer) -> None:
        self._gates = trainer.graph.get_collection(GATES_KEY)
        if not self._gates:
            raise ConfigError(
                "NanGuard(on_nan='skip'): no optimizer of this graph skips updates. Return "
                "tpk.graph.SkipNonFiniteOptimizer(optimizer) from the model's optimizer()."
            )
        if not all(isinstance(each, str) and each == "cost" for each in self._wanted):
            raise ConfigError(
                f"NanGuard(tensors={self._wanted}, on_nan='skip'): whether an update is skipped depends on all "
                "gradients. Leave `tensors` out; add another NanGuard to stop at something else."
            )
        self._wanted = ["gradients"]
        for key in (tf.compat.v1.GraphKeys.UPDATE_OPS, MOVING_SUMMARY_OPS_KEY):
            skip_non_finite(trainer.graph.get_collection(key))

    def _prepare_rollback(self, trainer: tpk.Trainer) -> None:
        strategy = trainer.strategy
        if max(strategy.world_size, strategy.process_group.world_size) > 1:
            raise ConfigError(
                "NanGuard(on_nan='rollback') works within one process: several would have to roll back together. Use "
                "'skip', or 'stop', and start the processes again with resume='auto'."
            )
        if self._learning_rate is not None:
            with noting("NanGuard lowers the learning rate at a rollback; lr_factor=1 leaves it alone", ConfigError):
                self._learning_rate.setup_graph()

    def _check(self, named: NamedTensors, run: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """Return the op that checks `named` along with the ops `run`, which take `inputs`."""
        if not named:
            return None
        if not self._gates:
            # If it fails after all towers have taken their data, the next step's data does not depend on chance.
            return check_all_finite(named, self.plugin_name, after=inputs)
        if self._max_skips is None:
            return None
        with tf.control_dependencies(list(run)), tf.device("/cpu:0"):
            in_a_row = tf.reduce_max(tf.stack([gate.skipped_in_a_row.read_value() for gate in self._gates]))
            return fail_unless(in_a_row < self._max_skips, named, self.plugin_name)

    def _make_error(self, found: Mapping[str, str], consequence: str, datapoints: range = range(0)) -> NonFiniteError:
        trainer = self.trainer
        what = [consequence] if consequence else []
        what += [f"{name} has {counts}" for name, counts in found.items()]
        where = f"{trainer.loop.progress} (after global step {trainer.global_step})"
        if datapoints:
            first, last = datapoints[0], datapoints[-1]
            numbers = f"datapoint {first}" if first == last else f"datapoints {first} to {last}"
            where += f", with {numbers} of {type(trainer.input_source).__name__}"
            where += f" in rank {trainer.strategy.rank}" if trainer.strategy.world_size > 1 else ""
        checkpoint = trainer.checkpoints.newest_prefix()
        error = NonFiniteError(f"{'; '.join(what)}, in {where}. The last good checkpoint: {checkpoint or 'none yet'}")
        error.tensors = tuple(found)
        error.epoch_num, error.local_step = trainer.epoch_num, trainer.local_step
        error.global_step = trainer.global_step
        error.checkpoint = checkpoint
        error.datapoints = datapoints
        return error


class CheckNumerics(NanGuard):
    """Stops at the first NaN or infinity in a step, and names the op that computed it.

    A `NanGuard` that checks every floating-point tensor that the train op or a cost needs, in all towers, like
    `tf.compat.v1.add_check_numerics_ops`, and reports the first bad one in the order of computation. The error is a
    `NonFiniteError`. It names the op and its type, the step, the step's datapoints if the input source knows them, and
    the last good checkpoint.

    The result of a loop, condition or function is checked, not its inner tensors. Constants are assumed to be
    intended. A model with computed infinities, such as the mask of an attention, fails at once: use ``-1e9`` instead.

    - **When it runs**: along with each step, or with the steps chosen by `EnableCallbackIf` or `PeriodicCallback`.
    - **What it costs**: in these steps every tensor is read again. The graph has one more op for each tensor, so
      setting up the training takes several times as long. Use it to find the cause of a failure that `NanGuard` has
      reported.
    - **Where it works**: on every strategy, in every process. Of towers that do not wait for each other (``async``),
      it checks the first. It does not work with a `DynamicLossScaleOptimizer` (``precision="float16"``), under which
      gradients overflow by design.

    Raises:
        ConfigError: when the graph is set up, if the trainer has no train op, or a dynamic loss scale.

    Example:
        ```python
        callbacks=[tpk.EnableCallbackIf(tpk.CheckNumerics(), lambda self: self.global_step >= 12_000)]
        ```
    """

    def __init__(self) -> None:
        super().__init__(on_nan="stop")
        self._has_references = False

    def before_run(self, run_context: Any) -> Any:
        """Return the check that belongs to the run; check reference variables first."""
        if self._has_references:
            self._check_variables("before the step")
        return super().before_run(run_context)

    def tensors_to_check(self, trainer: tpk.Trainer) -> list[RunTensor]:
        """Return all floating-point tensors that a step computes, in the order of computation."""
        if not trainer.train_ops:
            raise ConfigError(
                f"CheckNumerics does not know what a step of a {type(trainer).__name__} computes, which has no "
                "train_op. Set it, or name tensors to a NanGuard."
            )
        _refuse_loss_scale(trainer, "CheckNumerics", "Look for the op with precision='float32'")
        # Costs first, so that each op comes before its gradient, which may be as bad. A train op may not need the value
        # of its cost; ops that only the cost needs belong to the run nevertheless.
        belongs_to: dict[Any, list[Any]] = {}
        for cost, gradient_ops in gradient_ops_by_cost(trainer.graph).items():
            for op in ops_run_for(cost.deref()):
                belongs_to.setdefault(op, []).extend(gradient_ops)
        belongs_to |= {op: [op] for op in ops_run_for(trainer.train_ops)}
        # An update may change what such an op has read before the check looks at it.
        in_place = _ops_that_share_references(belongs_to)
        self._has_references = bool(in_place)
        computed = [op for op in belongs_to if op.type != "Const" and op not in in_place]
        # Tensors inside a loop or condition cannot be fetched from outside.
        reachable = [op for op in computed if output_context(op) is None]
        if len(reachable) < len(computed):
            logger.info(
                "CheckNumerics: %d of %d ops are inside of loops or conditions, whose results are checked instead",
                len(computed) - len(reachable),
                len(computed),
            )
        return [RunTensor(tensor.name, tensor, belongs_to[op]) for op in reachable for tensor in _numbers_of(op)]

    def _check(self, named: NamedTensors, run: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """Return the op that checks `named`, of which there are many."""
        return check_each_finite(named, self.plugin_name, after=inputs) if named else None

    def explain(self, found: Mapping[str, str]) -> str:
        """Return a text that names the op of the first bad tensor."""
        op = self.trainer.graph.get_tensor_by_name(next(iter(found))).op
        return f"the first op that computed a bad number is {op.name!r} ({op.type})"


def _find_costs(trainer: tpk.Trainer) -> list[RunTensor]:
    costs = [cost.deref() for cost in gradient_ops_by_cost(trainer.graph)]
    if not costs:
        raise ConfigError(
            f"NanGuard does not know the cost of a {type(trainer).__name__}. Give it, or its name: "
            "NanGuard(tensors=cost)."
        )
    return run_tensors(trainer.graph, [(cost.name, cost) for cost in costs])


def _find_gradients(trainer: tpk.Trainer) -> list[RunTensor]:
    records = recorded_gradients(trainer.graph)
    if not records:
        raise ConfigError(
            f"NanGuard does not know the gradients of a {type(trainer).__name__}. Give them: "
            "NanGuard(tensors=gradients), or compute them by tpk.graph.gradients.compute_gradients."
        )
    return [
        RunTensor(f"the gradient of {record.variable} ({record.gradient.name})", record.gradient, [record.gradient.op])
        for record in records
    ]


def _numbers_of(op: Any) -> list[Any]:
    """Return the floating-point outputs of an op, without the opaque ones that only its gradient uses."""
    arguments = op.op_def.output_arg if len(op.op_def.output_arg) == len(op.outputs) else ()
    opaque = {index for index, argument in enumerate(arguments) if argument.name.startswith("reserve")}
    return [
        tensor
        for index, tensor in enumerate(op.outputs)
        if index not in opaque and tensor.dtype.is_floating and not is_reference(tensor)
    ]


def _ops_that_share_references(ops: Iterable[Any]) -> set[Any]:
    """Return the ops whose outputs may share the memory of a reference variable; in `ops`, inputs come first."""
    found: set[Any] = set()
    for op in ops:
        if op.type in _SHARING and any(is_reference(tensor) or tensor.op in found for tensor in op.inputs):
            found.add(op)
    return found


def _values_of_variables(graph: Any) -> NamedTensors:
    """Return what must be finite in a checkpoint: trainable variables, and of the others all but their infinities."""
    named: NamedTensors = []
    for variable in saveable_variables(graph):
        if variable.dtype.base_dtype.is_floating:
            with tf.device(variable.device):
                value = variable.read_value()
                if not variable.trainable:
                    # A variable such as the best result so far may start at infinity.
                    value = tf.where(tf.math.is_inf(value), tf.zeros_like(value), value)
            named.append((f"the variable {variable_name(variable)}", value))
    return named


def _datapoints_of_run(trainer: tpk.Trainer, fetches: Any) -> range:
    """Return the numbers of the datapoints that the towers took in the last run; empty if the input cannot tell."""
    source = trainer.input_source
    inputs = [[tensor.op for tensor in tower.inputs] for tower in trainer.towers.training()]
    if source is None or not inputs or (trainer.loop.is_compiled and trainer.loop.steps_per_run > 1):
        return range(0)
    # Towers that run on their own take datapoints at any time, so the numbers for this run are unknown.
    if not all(FetchDependencies(ops).among(fetches) for ops in inputs):
        return range(0)
    try:
        consumed = source.consumed
    except tf.errors.OpError:  # The session is broken.
        return range(0)
    return source.datapoints_of(range(consumed - len(inputs), consumed))


def _refuse_loss_scale(trainer: tpk.Trainer, what: str, remedy: str) -> None:
    """Raise if the optimizer scales the loss dynamically, which makes gradients infinite by design."""
    if any(isinstance(gate, DynamicLossScaleOptimizer) for gate in trainer.graph.get_collection(GATES_KEY)):
        raise ConfigError(
            f"{what}: with a DynamicLossScaleOptimizer some gradients are infinite by design, and those steps are "
            f"skipped. {remedy}."
        )
