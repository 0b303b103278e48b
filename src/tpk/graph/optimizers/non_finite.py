"""NaNs and infinities: detected within a step, on the device, and kept out of variables.

A check is an op that runs with a step and makes the run fail. As long as all values are finite, only a bool for each
tensor is copied from the device.
"""

from __future__ import annotations

import abc
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.gradients import map_values, values_of
from tpk.graph.optimizers.proxy_optimizer import ProxyOptimizer, check_no_reference
from tpk.graph.reports.summary_ops import add_tensor_summary
from tpk.graph.scopes import check_graph_mode
from tpk.tf_internals import replace_input, replaced_hyperparameters

logger = logging.getLogger(__name__)

GATES_KEY = "TPK_NON_FINITE_GATES"
"""The collection of the `GatedOptimizer`s of a graph."""

_MAX_REPORTED = 10
# On a GPU, concatenating tensors up to this size is faster than launching two kernels for each.
_SMALL_BYTES = 256 * 1024
_ADDING = ("AssignAddVariableOp", "AssignSubVariableOp", "AssignAdd", "AssignSub")
_ASSIGNING = ("AssignVariableOp", "Assign")


def all_finite(tensors: Sequence[Any]) -> Any:
    """Return whether all elements of all tensors are finite.

    Args:
        tensors: floating-point tensors, or `tf.IndexedSlices`. Each is checked on its own device.

    Returns:
        A scalar ``bool`` tensor on the device of the first tensor, so that ops there do not wait for the host.
    """
    by_device: dict[str, list[Any]] = {}
    for tensor in map(values_of, tensors):
        by_device.setdefault(tensor.device, []).append(tensor)
    verdicts = [_all_finite_on(device, those) for device, those in by_device.items()]
    if len(verdicts) == 1:
        return verdicts[0]
    with tf.device(next(iter(by_device))):
        return tf.reduce_all(verdicts)


def _all_finite_on(device: str, tensors: Sequence[Any]) -> Any:
    """Return whether all elements of the tensors on a device are finite. Small tensors are checked together."""
    vectors = []
    small: dict[Any, list[Any]] = {}
    with tf.device(device):
        for tensor in tensors:
            count = tensor.shape.num_elements()
            if count is None or count * tensor.dtype.size > _SMALL_BYTES:
                vectors.append(tensor)
            else:
                vector = tensor if tensor.shape.rank == 1 else tf.reshape(tensor, [-1])
                small.setdefault(tensor.dtype, []).append(vector)
        vectors += [tf.concat(those, 0) if len(those) > 1 else those[0] for those in small.values()]
        each_finite = [tf.reduce_all(tf.math.is_finite(vector)) for vector in vectors]
        return tf.reduce_all(each_finite) if len(each_finite) > 1 else each_finite[0]


def check_all_finite(tensors: Sequence[tuple[str, Any]], sender: str, after: Iterable[Any] = ()) -> Any:
    """Return an op that fails if a tensor has a NaN or an infinity.

    It waits for all tensors, so all of them are computed even if one is not finite.

    Args:
        tensors: pairs of a name for messages (ASCII) and a tensor.
        sender: the name of the check; `read_failure` finds the failures of a sender.
        after: ops that must have run before it fails.
    """
    return fail_unless(all_finite([tensor for _, tensor in tensors]), tensors, sender, after)


def fail_unless(condition: Any, tensors: Sequence[tuple[str, Any]], sender: str, after: Iterable[Any] = ()) -> Any:
    """Return an op that fails unless `condition` holds; its message reports the tensors that are not finite.

    Args:
        condition: a scalar ``bool`` tensor.
        tensors: as in `check_all_finite`.
        sender: the name of the check.
        after: ops that must have run before it fails.
    """
    names, values = [name for name, _ in tensors], [tensor for _, tensor in tensors]
    return _fail_with(lambda: _report(names, _count(values)), condition, sender, after)


def check_each_finite(tensors: Sequence[tuple[str, Any]], sender: str, after: Iterable[Any] = ()) -> Any:
    """Return an op that fails like the op of `check_all_finite`. It is meant for very many tensors.

    It adds only one op for each tensor, so the graph is built much faster. But each run counts all elements that the
    message would report.

    Args:
        tensors: as in `check_all_finite`.
        sender: the name of the check.
        after: ops that must have run before it fails.
    """
    counts = _count([tensor for _, tensor in tensors])
    with tf.device("/cpu:0"):
        condition = tf.reduce_all(counts[:, :2] <= 0)
    return _fail_with(lambda: _report([name for name, _ in tensors], counts), condition, sender, after)


def _fail_with(report: Callable[[], Any], condition: Any, sender: str, after: Iterable[Any]) -> Any:
    def fail() -> Any:
        with tf.device("/cpu:0"):
            text = tf.strings.join([f"<{sender}: ", report(), ">"])
            return tf.raw_ops.Assert(condition=tf.constant(False), data=[text], summarize=1)

    with tf.device("/cpu:0"), tf.control_dependencies(list(after)):
        return tf.cond(condition, tf.no_op, fail, name="check_finite").op


def read_failure(error: BaseException, sender: str) -> dict[str, str] | None:
    """Return the result of a check of `sender`, or None if the run failed for another reason.

    Args:
        error: the error of the run.
        sender: the name of the check.

    Returns:
        The counts for each tensor that is not finite, at most ten, such as ``"2 NaN, 0 Inf of 10"``.
    """
    message = getattr(error, "message", None)
    found = re.search(f"<{re.escape(sender)}: (.*?)>", message, re.DOTALL) if isinstance(message, str) else None
    if found is None or not isinstance(error, tf.errors.InvalidArgumentError):
        return None
    lines = [line.rpartition(" has ") for line in found.group(1).split("; ") if line]
    return {name: counts for name, _, counts in lines}


def skip_non_finite(update_ops: Iterable[Any]) -> None:
    """Make ops that update variables keep the old values when the new ones are not finite.

    The ops are changed in place, so ops that depend on them do not change. Use it for moving averages, which would
    otherwise never be finite again.

    Args:
        update_ops: ops that assign to, add to or subtract from a variable, or the return values of the methods that
            create them. Other ops are ignored.
    """
    for update in update_ops:
        op = getattr(update, "op", update)
        if op.type not in (*_ADDING, *_ASSIGNING) or not op.inputs[1].dtype.is_floating:
            logger.info("%s is not a plain update of a variable, so it is not skipped when it is not finite", op.name)
            continue
        variable, value = op.inputs[0], op.inputs[1]
        with tf.name_scope("skip_non_finite"), tf.device(op.device):
            if op.type in _ADDING:
                unchanged = tf.zeros_like(value)
            elif variable.dtype == tf.resource:
                unchanged = tf.raw_ops.ReadVariableOp(resource=variable, dtype=value.dtype)
            else:
                unchanged = tf.identity(variable)
            replace_input(op, 1, tf.where(tf.reduce_all(tf.math.is_finite(value)), value, unchanged))


class GatedOptimizer(ProxyOptimizer):
    """The base of optimizers that skip an update if a gradient has a NaN or an infinity. `GATES_KEY` collects them.

    It has scalar variables on the CPU, which its copies for other towers share. Only the optimizer of the first tower
    updates them.

    Args:
        opt: the optimizer that updates.
        name: the variable scope of the variables.
        variables: type and initial value of each; one of them is ``skipped_in_a_row``.

    Raises:
        ConfigError: if `opt` is not a `tf.compat.v1.train.Optimizer`, the variables exist already, or TensorFlow
            executes eagerly.
    """

    def __init__(self, opt: Any, name: str, variables: Mapping[str, tuple[Any, float]]) -> None:
        super().__init__(opt, name)
        self._shared = self._create_shared(variables)
        self._own_variables += self._shared.values()
        self._updates_shared = True
        tf.compat.v1.add_to_collection(GATES_KEY, self)

    @property
    def skipped_in_a_row(self) -> Any:
        """The number of updates skipped since the last one that was not, a scalar ``int64`` variable."""
        return self._shared["skipped_in_a_row"]

    def leave_shared_variables(self) -> None:
        """Let only the optimizer of the first tower update the variables."""
        self._updates_shared = False

    def _build_update(self, grads_and_vars: list[tuple[Any, Any]]) -> Any:
        finite = all_finite([grad for grad, _ in grads_and_vars])
        update = update_if(finite, self._opt, grads_and_vars, type(self).__name__)
        return tf.group(update, self._update_shared(finite)) if self._updates_shared else update

    @abc.abstractmethod
    def _update_shared(self, finite: Any) -> Any:
        """Return the op that updates the shared variables after an update, which was skipped unless `finite`."""

    def _create_shared(self, variables: Mapping[str, tuple[Any, float]]) -> dict[str, Any]:
        kind, scope = type(self).__name__, self.get_name()
        check_graph_mode(kind)
        with tf.compat.v1.variable_scope(scope, auxiliary_name_scope=False), tf.device("/cpu:0"):
            try:
                return {
                    name: tf.compat.v1.get_variable(
                        name, [], dtype, tf.compat.v1.constant_initializer(value), trainable=False, use_resource=True
                    )
                    for name, (dtype, value) in variables.items()
                }
            except ValueError as error:
                raise ConfigError(
                    f"there is a {kind} {scope!r} in this graph already. Each optimizer has its own: give "
                    f"{kind}(..., name=...)."
                ) from error


class SkipNonFiniteOptimizer(GatedOptimizer):
    """Skips an update if a gradient has a NaN or an infinity: nothing is updated, and training continues.

    The wrapped optimizer does not see skipped updates: they affect neither the averages of Adam nor the steps that an
    `AccumGradOptimizer` accumulates. Inside an `AccumGradOptimizer`, all accumulated gradients are skipped together.

    If several towers apply the same gradients to replicas, each checks the reduced gradients, so all make the same
    decision. They share the counts.

    If `opt` is itself a GradientDescent, Momentum, Adam, Adagrad or Adadelta optimizer, the host does not wait for the
    gradients: a skipped update runs without effect. Otherwise the update is in a `tf.cond`.

    The number of skipped updates is summarized as ``<name>/skipped``. The callback `NanGuard(on_nan="skip")` logs
    skipped updates, and ends a training in which all updates are skipped.

    Args:
        opt: the optimizer that updates.
        name: the variable scope of the two variables, ``skipped`` and ``skipped_in_a_row``. They are saved in
            checkpoints.

    Raises:
        ConfigError: if `opt` is not a `tf.compat.v1.train.Optimizer`, or an optimizer of this name exists already;
            and, when gradients are applied, if a variable is a reference variable and the update is in a `tf.cond`.

    Example:
        ```python
        def optimizer(self):
            return SkipNonFiniteOptimizer(tf.compat.v1.train.AdamOptimizer(1e-3))
        ```
    """

    def __init__(self, opt: Any, name: str = "SkipNonFinite") -> None:
        super().__init__(opt, name, {"skipped": (tf.int64, 0), "skipped_in_a_row": (tf.int64, 0)})
        add_tensor_summary(tf.cast(self.skipped, tf.float32), ["scalar"], name=f"{name}/skipped")

    @property
    def skipped(self) -> Any:
        """The number of skipped updates, a scalar ``int64`` variable."""
        return self._shared["skipped"]

    def _update_shared(self, finite: Any) -> Any:
        with tf.device("/cpu:0"):
            skipped = tf.cast(~finite, tf.int64)
            return tf.group(
                self.skipped.assign_add(skipped, read_value=False),
                self.skipped_in_a_row.assign((self.skipped_in_a_row.read_value() + 1) * skipped, read_value=False),
            )


def _count(tensors: Sequence[Any]) -> Any:
    """Return the numbers of NaNs, infinities and elements of each tensor: ``int64``, with a row for each."""
    counts = []
    for tensor in tensors:
        with tf.device(tensor.device):
            # Returns an identifier, the size, and the numbers of -Inf, +Inf and NaN.
            counts.append(tf.raw_ops.DebugNumericSummaryV2(input=tensor, tensor_debug_mode=3, output_dtype=tf.float64))
    with tf.device("/cpu:0"):
        _, sizes, negative, positive, nans = tf.unstack(tf.cast(tf.stack(counts), tf.int64), num=5, axis=1)
        return tf.stack([nans, negative + positive, sizes], axis=1)


def _report(names: Sequence[str], counts: Any) -> Any:
    """Return a string tensor that reports the tensors that are not finite, given the result of `_count`."""
    chosen = tf.where(tf.reduce_any(counts[:, :2] > 0, axis=1))[:_MAX_REPORTED, 0]
    nans, infinities, sizes = tf.unstack(tf.strings.as_string(tf.gather(counts, chosen)), num=3, axis=1)
    lines = tf.strings.join(
        [tf.gather(tf.constant(list(names)), chosen), " has ", nans, " NaN, ", infinities, " Inf of ", sizes]
    )
    return tf.strings.reduce_join(lines, separator="; ")


# The values of its hyperparameters with which an optimizer changes neither variable nor slot if the gradient is zero:
# x + 0 * y and 1 * x are x, to the bit, as long as y is finite (but -0 may become 0). RMSProp, Ftrl and AdagradDA have
# no such values, and subclasses may do anything.
_NEUTRAL: dict[type[Any], dict[str, float]] = {
    tf.compat.v1.train.GradientDescentOptimizer: {"learning_rate": 0},
    tf.compat.v1.train.MomentumOptimizer: {"learning_rate": 0, "momentum": 1},
    # With an epsilon of 0, a first moment of 0 would be divided by 0.
    tf.compat.v1.train.AdamOptimizer: {"learning_rate": 0, "beta1": 1, "beta2": 1, "epsilon": 1},
    tf.compat.v1.train.AdagradOptimizer: {"learning_rate": 0},
    tf.compat.v1.train.AdadeltaOptimizer: {"learning_rate": 0, "rho": 1, "epsilon": 1},
}


def update_if(condition: Any, optimizer: Any, grads_and_vars: Sequence[tuple[Any, Any]], owner: str) -> Any:
    """Return an op that applies gradients if `condition` holds, and otherwise changes nothing.

    With the optimizers in `_NEUTRAL`, the update always runs, but masked: with gradients of zero and hyperparameters
    that change nothing. The host need not wait for the condition, as it does with a `tf.cond`. All others are applied
    in a `tf.cond`; the results are the same.

    Args:
        condition: a scalar ``bool`` tensor, which is True only if all gradients are finite.
        optimizer: a `tf.compat.v1.train.Optimizer`.
        grads_and_vars: pairs of a gradient (dense or sparse, not None) and its variable.
        owner: the class of the calling optimizer, for messages.

    Raises:
        ConfigError: if a `tf.cond` is needed and a variable is a reference variable; the message names the first.
    """
    neutral = _NEUTRAL.get(type(optimizer))
    if neutral is None:
        check_no_reference(owner, grads_and_vars)
        return tf.cond(condition, lambda: optimizer.apply_gradients(grads_and_vars), tf.no_op)

    def replace(name: str, given: Any) -> Any:
        return tf.where(condition, given, tf.constant(neutral[name], given.dtype))

    mask = tf.where(condition, 1.0, 0.0)
    pairs = [(multiply(grad, mask), var) for grad, var in grads_and_vars]
    with replaced_hyperparameters(optimizer, replace):
        return optimizer.apply_gradients(pairs)


def multiply(gradient: Any, factor: Any) -> Any:
    """Return a gradient times `factor`, a ``float32`` scalar. If the factor is zero, so are infinite gradients.

    Each gradient is multiplied on its own device.
    """

    def scale(values: Any) -> Any:
        with tf.device(values.device):
            # In 16 bits the factor could become infinite, or zero.
            wide = tf.cast(values, tf.float32) if values.dtype.size < 4 else values
            return tf.cast(tf.math.multiply_no_nan(wide, tf.cast(factor, wide.dtype)), values.dtype)

    return map_values(gradient, scale)
