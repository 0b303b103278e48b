"""Guard against NaNs and infinities: stop, skip the update, or go back to the last good checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tpk.callbacks.hyper_params.setters import GraphVarParam
from tpk.callbacks.run_tensors import NamedTensors, RunCompanions, RunTensor, find_in_each_tower
from tpk.errors import ConfigError, NonFiniteError, add_note
from tpk.graph.gradients import recorded_gradients
from tpk.graph.optimizers.loss_scale import DynamicLossScaleOptimizer
from tpk.graph.optimizers.non_finite import (
    GATES_KEY,
    check_all_finite,
    check_each_finite,
    fail_unless,
    read_failure,
    skip_non_finite,
)
from tpk.graph.reports.summaries import MOVING_SUMMARY_OPS_KEY
from tpk.graph.steps import FetchDependencies, get_global_step_var, ops_run_for
from tpk.graph.variables import assign_values, saveable_variables, variable_name
from tpk.plugin import Callback, hookimpl
from tpk.tf_internals import is_reference, output_context

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

ON_NAN = ("stop", "skip", "rollback")


class NanGuard(Callback):
    """Notices a NaN or an infinity in the step in which it arises, and does something about it.

    The check is an op that runs along with each step, on the devices of what it checks; nothing is fetched while all
    is well. It checks what belongs to the step: of several objectives that are minimized in turn the one whose turn it
    is; of towers that do not wait for each other (``async``) the first.

    - ``"stop"`` ends the training with a `NonFiniteError`, which names the tensor, the step, the datapoints that it had
      where the input can tell, and the last good checkpoint. What the variables have then is of no use, and is not
      saved.
    - ``"skip"`` goes on without the update. That takes an optimizer that can do so: return
      `SkipNonFiniteOptimizer(optimizer)` from the model's `optimizer()`. It looks at all gradients. Moving averages,
      such as those of batch normalization, leave out what is not finite, too. After `max_skips` skipped updates in a
      row the training stops.
    - ``"rollback"`` gives all variables, those of optimizers included, the values of the last good checkpoint,
      multiplies the learning rate by `lr_factor`, and takes the step once more, with further data: neither the data
      nor the counters nor other callbacks go back. After `max_rollbacks` of them it stops.

    In any case no checkpoint is saved in which a trainable variable has a NaN or an infinity, or any other variable a
    NaN.

    Args:
        tensors: what is checked, for ``"stop"`` and ``"rollback"``: ``"cost"``: each cost that is minimized;
            ``"gradients"``: all gradients; the name of a tensor inside the tower; a tensor; or a list of these. What is
            named is checked in every tower.
        on_nan: ``"stop"``, ``"skip"`` or ``"rollback"``.
        max_skips: how many updates in a row may be skipped; None for any number.
        max_rollbacks: how many times the training may go back.
        lr_factor: by what the learning rate is multiplied when the training goes back, more than 0 and at most 1.
        learning_rate: the name of the variable that is the learning rate, as for `HyperParamSetter`.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the training starts, if the graph does not
            have what is asked for.

    Example:
        ```python
        callbacks=[tpk.ModelSaver(), tpk.NanGuard("gradients", on_nan="rollback", max_rollbacks=5)]
        ```
    """

    chief_only = False

    def __init__(
        self,
        tensors: Any = "cost",
        on_nan: str = "stop",
        *,
        max_skips: int | None = 10,
        max_rollbacks: int = 3,
        lr_factor: float = 0.5,
        learning_rate: str = "learning_rate",
    ) -> None:
        if on_nan not in ON_NAN:
            raise ConfigError(f"NanGuard(on_nan={on_nan!r}): expected one of {', '.join(map(repr, ON_NAN))}.")
        if max_skips is not None:
            _check_count("max_skips", max_skips)
        _check_count("max_rollbacks", max_rollbacks)
        if not 0 < lr_factor <= 1:
            raise ConfigError(f"NanGuard(lr_factor={lr_factor!r}): expected more than 0 and at most 1.")
        self._wanted = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        if not self._wanted:
            raise ConfigError("NanGuard(tensors=[]): there is nothing to check. Name a tensor, or 'cost'.")
        self._on_nan = on_nan
        self._max_skips = max_skips
        self._max_rollbacks = max_rollbacks
        self._lr_factor = lr_factor
        self._learning_rate = GraphVarParam(learning_rate) if on_nan == "rollback" and lr_factor < 1 else None
        self._rollbacks = 0
        self._skipped = 0
        self._gates: list[Any] = []
        self._checks: RunCompanions
        self._last: tuple[Any, Any] = (None, None)
        self._variables_are_finite: Any = None

    @property
    def rollbacks(self) -> int:
        """How many times the training has gone back."""
        return self._rollbacks

    # Late, so that the variables of other callbacks are there.
    @hookimpl(trylast=True)
    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Add the checks to the graph.

        Raises:
            ConfigError: if there is nothing to check, or nothing that could be done as asked.
        """
        if self._on_nan == "rollback" and trainer.strategy.process_group.world_size > 1:
            raise ConfigError(
                "NanGuard(on_nan='rollback') in a training of several processes: one alone cannot go back. Use 'skip', "
                "or 'stop', and start the processes again with resume='auto'."
            )
        if self._on_nan == "skip":
            self._find_gates(trainer)
        if self._on_nan == "rollback":
            self._get_ready_to_go_back(trainer)
        with tf.name_scope(f"{self.plugin_name.replace('#', '_')}/"):
            wanted = self.tensors_to_check(trainer)
            self._checks = RunCompanions(trainer, wanted, self._check)
            tell_what_is_left_out(wanted, self._checks.left_out)
            values = _values_of_variables(trainer.graph)
            self._variables_are_finite = check_all_finite(values, self.plugin_name) if values else tf.no_op()

    def tensors_to_check(self, trainer: TrainerProtocol) -> list[RunTensor]:
        """Return what is checked, in every tower.

        Raises:
            ConfigError: if there is no such thing.
        """
        if not self._gates and any(isinstance(each, str) and each == "gradients" for each in self._wanted):
            refuse_loss_scale(trainer, "NanGuard(tensors='gradients')", "Check the cost, or use on_nan='skip'.")
        return tensors_to_check(trainer, self._wanted)

    def before_run(self, run_context: Any) -> Any:
        """Return the check that belongs to what is run, to be run along with it."""
        fetches = run_context.original_args.fetches
        if fetches is not self._last[0]:
            self._last = (fetches, self._checks.request_for(fetches))
        return self._last[1]

    def translate_error(self, error: BaseException) -> NonFiniteError | None:
        """Return the error that tells what was found, if a check is why a run failed."""
        found = read_failure(error, self.plugin_name)
        if found is None:
            return None
        return self._make_error(found, self.explain(found), _datapoints_of_run(self.trainer, self._last[0]))

    def explain(self, found: Mapping[str, str]) -> str:
        """Return what is to be said before the tensors that a check along with a step has found; empty if nothing is.

        Args:
            found: the tensors that are not finite, and what they have.
        """
        return f"{self._max_skips} updates in a row were skipped" if self._gates else ""

    def recover(self, error: BaseException) -> bool | None:
        """Go back to the last good checkpoint after a step that has failed, if that is what is wanted and possible.

        Args:
            error: what the step raised.

        Returns:
            True if the training can go on.
        """
        if self._on_nan != "rollback" or not isinstance(error, NonFiniteError):
            return None
        if self._rollbacks >= self._max_rollbacks:
            add_note(error, f"it has gone back {self._rollbacks} times already (max_rollbacks)")
            return None
        checkpoint = self.trainer.checkpoints.newest()
        if checkpoint is None:
            add_note(error, "there is no checkpoint yet that it could go back to")
            return None
        self._rollbacks += 1
        rate = None if self._learning_rate is None else self._learning_rate.get_value() * self._lr_factor
        self.trainer.checkpoints.restore_variables(checkpoint)
        # Whether the run that failed still counted is a matter of chance.
        assign_values(self.trainer.sess, [(get_global_step_var(), np.array(self.trainer.global_step))])
        if self._learning_rate is not None:
            self._learning_rate.set_value(rate)
        logger.warning(
            "%s. The variables go back to those of %s (%d of %d times)%s",
            error,
            checkpoint.prefix,
            self._rollbacks,
            self._max_rollbacks,
            "" if rate is None else f"; the learning rate is {rate:g} now",
        )
        return True

    def before_checkpoint(self) -> None:
        """See to it that no checkpoint is saved whose variables are not finite; called before each.

        Raises:
            NonFiniteError: if they are not, and the training cannot go back.
        """
        try:
            self.trainer.sess.run(self._variables_are_finite)
        except tf.errors.InvalidArgumentError as failure:
            found = read_failure(failure, self.plugin_name)
            if found is None:
                raise
            error = self._make_error(found, "no checkpoint can be saved")
            if not self.recover(error):
                raise error from failure

    def trigger_epoch(self, trainer: TrainerProtocol) -> None:
        """Tell how many updates were skipped."""
        counters = [gate.skipped for gate in self._gates if hasattr(gate, "skipped")]
        skipped = int(sum(trainer.sess.run(counters))) if counters else 0
        if skipped > self._skipped:
            new = skipped - self._skipped
            logger.warning("epoch %d: %d updates were skipped, %d in all", trainer.epoch_num, new, skipped)
        self._skipped = skipped

    def hook_implementations(self) -> dict[str, Callable[..., Any]]:
        """Return the hooks that `on_nan` needs."""
        hooks = super().hook_implementations()
        if self._on_nan != "skip":
            del hooks["trigger_epoch"]
        return hooks

    def state_dict(self) -> dict[str, Any]:
        """Return what was counted; empty if nothing is."""
        if self._on_nan == "stop":
            return {}
        return {"rollbacks": self._rollbacks, "skipped": self._skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting."""
        self._rollbacks, self._skipped = state.get("rollbacks", 0), state.get("skipped", 0)

    def _find_gates(self, trainer: TrainerProtocol) -> None:
        self._gates = trainer.graph.get_collection(GATES_KEY)
        if not self._gates:
            raise ConfigError(
                "NanGuard(on_nan='skip'): no optimizer of this graph skips updates. Return "
                "tpk.graph.SkipNonFiniteOptimizer(optimizer) from the model's optimizer()."
            )
        if not all(isinstance(each, str) and each == "cost" for each in self._wanted):
            raise ConfigError(
                f"NanGuard(tensors={self._wanted}, on_nan='skip'): whether an update is skipped depends on the "
                "gradients, all of them. Leave `tensors` out; add another NanGuard to stop at something else."
            )
        self._wanted = ["gradients"]
        for key in (tf.compat.v1.GraphKeys.UPDATE_OPS, MOVING_SUMMARY_OPS_KEY):
            skip_non_finite(trainer.graph.get_collection(key))

    def _get_ready_to_go_back(self, trainer: TrainerProtocol) -> None:
        if trainer.strategy.world_size > 1:
            raise ConfigError(
                "NanGuard(on_nan='rollback') works within one process: several would have to go back together. "
                "Use 'skip' or 'stop'."
            )
        if self._learning_rate is not None:
            try:
                self._learning_rate.setup_graph()
            except ConfigError as error:
                add_note(error, "NanGuard lowers the learning rate when it goes back; lr_factor=1 leaves it alone")
                raise

    def _check(self, named: NamedTensors, run: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """Return the op that checks `named` along with the ops `run`, which take `inputs`."""
        if not named:
            return None
        if not self._gates:
            # When it fails, all towers have taken their data, so what they take next does not depend on chance.
            return check_all_finite(named, self.plugin_name, after=inputs)
        if self._max_skips is None:
            return None
        with tf.control_dependencies(list(run)), tf.device("/cpu:0"):
            in_a_row = tf.reduce_max(tf.stack([gate.skipped_in_a_row.read_value() for gate in self._gates]))
            return fail_unless(in_a_row < self._max_skips, named, self.plugin_name)

    def _make_error(self, found: Mapping[str, str], consequence: str, datapoints: range = range(0)) -> NonFiniteError:
        trainer = self.trainer
        checkpoint = trainer.checkpoints.newest()
        what = [consequence] if consequence else []
        what += [f"{name} has {counts}" for name, counts in found.items()]
        where = f"{trainer.loop.progress} (after global step {trainer.global_step})"
        if datapoints:
            where += f", with {_numbers(datapoints)} of {type(trainer.input_source).__name__}"
            strategy = trainer.strategy
            where += "" if strategy.world_size == 1 else f" in rank {strategy.rank}"
        good = "none yet" if checkpoint is None else checkpoint.prefix
        error = NonFiniteError(f"{'; '.join(what)}, in {where}. The last good checkpoint: {good}")
        error.tensors = tuple(found)
        error.epoch_num, error.local_step = trainer.epoch_num, trainer.local_step
        error.global_step = trainer.global_step
        error.checkpoint = None if checkpoint is None else checkpoint.prefix
        error.datapoints = datapoints
        return error


def _datapoints_of_run(trainer: TrainerProtocol, fetches: Any) -> range:
    """Return the numbers of the datapoints that the towers have taken in the last run, as far as the input can tell."""
    source = trainer.input_source
    inputs = [[tensor.op for tensor in tower.inputs] for tower in trainer.towers.training()]
    if source is None or not inputs or (trainer.compiles_loops and trainer.loop.steps_per_run > 1):
        return range(0)
    # Towers that run by themselves may have taken theirs any time; so nobody knows which are those of this run.
    if not all(FetchDependencies(ops).among(fetches) for ops in inputs):
        return range(0)
    try:
        consumed = source.consumed
    except tf.errors.OpError:  # The session is broken.
        return range(0)
    datapoints: range = source.datapoints_of(range(consumed - len(inputs), consumed))
    return datapoints


def _numbers(datapoints: range) -> str:
    first, last = datapoints[0], datapoints[-1]
    return f"datapoint {first}" if first == last else f"datapoints {first} to {last}"


def _values_of_variables(graph: Any) -> NamedTensors:
    """Return what checkpoints must not have: a NaN anywhere, or an infinity in what is trained."""
    named: NamedTensors = []
    for variable in saveable_variables(graph):
        if variable.dtype.base_dtype.is_floating:
            with tf.device(variable.device):
                value = variable.read_value()
                if not variable.trainable:
                    # Some, such as the best result so far, may well be infinite.
                    value = tf.where(tf.math.is_inf(value), tf.zeros_like(value), value)
            named.append((f"the variable {variable_name(variable)}", value))
    return named


def refuse_loss_scale(trainer: TrainerProtocol, what: str, remedy: str) -> None:
    """See to it that gradients are not infinite by design.

    Raises:
        ConfigError: if they are; the message begins with `what`, and ends with `remedy`.
    """
    if any(isinstance(gate, DynamicLossScaleOptimizer) for gate in trainer.graph.get_collection(GATES_KEY)):
        raise ConfigError(
            f"{what}: with a DynamicLossScaleOptimizer some gradients are infinite by design, and those steps are "
            f"skipped. {remedy}"
        )


def _check_count(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"NanGuard({what}={value!r}): expected a positive whole number.")


def tensors_to_check(trainer: TrainerProtocol, wanted: Sequence[Any]) -> list[RunTensor]:
    """Return what the option `tensors` of a `NanGuard` stands for, in every tower.

    Raises:
        ConfigError: if there is no such thing, or it is no tensor of floating-point numbers.
        TowerError, ConfigError: if there is no tensor of a name, see `tpk.find_tensor`.
    """
    found: list[RunTensor] = []
    for each in wanted:
        if isinstance(each, tf.Tensor):
            found.append(RunTensor(each.name, each))
        elif each == "cost":
            found += _find_costs(trainer)
        elif each == "gradients":
            found += _find_gradients(trainer)
        elif isinstance(each, str):
            found += [RunTensor(tensor.name, tensor) for tensor in find_in_each_tower(trainer, each)]
        else:
            raise ConfigError(f"NanGuard(tensors=...): expected names or tensors, got {each!r}.")
    for checked in found:
        if not checked.tensor.dtype.is_floating:
            raise ConfigError(
                f"NanGuard: {checked.name} is {checked.tensor.dtype.name}, which is always finite. Leave it out."
            )
    return found


def _find_costs(trainer: TrainerProtocol) -> list[RunTensor]:
    costs: dict[str, RunTensor] = {}
    for record in recorded_gradients(trainer.graph):
        checked = costs.setdefault(record.cost.name, RunTensor(record.cost.name, record.cost, []))
        # The gradients may not need the value of the cost itself.
        checked.belongs_to.append(record.gradient.op)
    if not costs:
        raise ConfigError(
            f"NanGuard does not know the cost of a {type(trainer).__name__}. Give it, or its name: "
            "NanGuard(tensors=cost)."
        )
    return list(costs.values())


def _find_gradients(trainer: TrainerProtocol) -> list[RunTensor]:
    records = recorded_gradients(trainer.graph)
    if not records:
        raise ConfigError(
            f"NanGuard does not know the gradients of a {type(trainer).__name__}. Give them: "
            "NanGuard(tensors=gradients), or compute them by tpk.graph.gradients.compute_gradients."
        )
    return [
        RunTensor(f"the gradient of {record.variable} ({record.gradient.name})", record.gradient) for record in records
    ]


def tell_what_is_left_out(wanted: Sequence[RunTensor], left_out: Sequence[RunTensor]) -> None:
    """Log what cannot be checked along with a step.

    Raises:
        ConfigError: if that is everything.
    """
    names = ", ".join(each.name for each in left_out)
    if left_out and len(left_out) == len(wanted):
        raise ConfigError(
            f"NanGuard: no step takes the data on which {names} depend, so they cannot be checked along "
            "with one. Name something on which the cost depends."
        )
    if left_out:
        logger.info("NanGuard: not computed in the runs of the steps, so not checked: %s", names)


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
