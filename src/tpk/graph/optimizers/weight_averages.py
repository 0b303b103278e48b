"""Moving averages of the weights of a model, which often evaluate better than the weights themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError, SessionError
from tpk.graph.optimizers.proxy_optimizer import ProxyOptimizer, colocate_with, create_slot, sum_dtype
from tpk.graph.variables import variable_name

WEIGHT_AVERAGES_KEY = "WEIGHT_AVERAGES"
"""The collection of the `WeightAverages` of a graph."""

AVERAGE_NAME = "ExponentialMovingAverage"
"""The average of ``w`` is called ``w/ExponentialMovingAverage``, as TensorFlow calls it."""

_SLOT = "average"


@contextmanager
def averaged_weights(sess: Any) -> Iterator[None]:
    """Within the context, all averaged variables have the values of their averages.

    Afterwards they have their own values again, bit for bit. Do not train within the context.

    Args:
        sess: the raw session.

    Raises:
        ConfigError: if the graph has no averages.
        SessionError: if it is nested.

    Example:
        ```python
        with averaged_weights(sess):
            accuracy = sess.run(validation_accuracy)
        ```
    """
    with ExitStack() as stack:
        for each in averages_in(sess.graph):
            stack.enter_context(each.swapped_in(sess))
        yield


def averages_in(graph: Any) -> Sequence[WeightAverages]:
    """Return the averages of weights in `graph`.

    Raises:
        ConfigError: if there are none.
    """
    averages: Sequence[WeightAverages] = graph.get_collection(WEIGHT_AVERAGES_KEY)
    if not averages:
        raise ConfigError(
            "the graph has no averages of weights. Let the model's optimizer maintain them: "
            "return MovingAverageOptimizer(optimizer)."
        )
    return averages


class MovingAverageOptimizer(ProxyOptimizer):
    """Maintains exponential moving averages of the variables that it trains, after each update.

    The average of a variable is its slot ``"average"``, a variable called ``<name>/ExponentialMovingAverage``. It is
    saved in checkpoints, where TensorFlow's own `tf.train.ExponentialMovingAverage.variables_to_restore` finds it.
    To use the averages, see `averaged_weights`, and the callback `WithAveragedWeights`.

    Other variables, such as the statistics of batch normalization, are not averaged.

    Inside an `AccumGradOptimizer` it averages over updates; around one, over steps.

    Args:
        opt: the optimizer that updates.
        decay: see `WeightAverages`.

    Raises:
        ConfigError: if `opt` is not a `tf.compat.v1.train.Optimizer`, or `decay` is out of range.

    Example:
        ```python
        def optimizer(self):
            return MovingAverageOptimizer(tf.compat.v1.train.AdamOptimizer(1e-3), decay=0.999)
        ```
    """

    def __init__(self, opt: Any, decay: float = 0.999) -> None:
        super().__init__(opt, "MovingAverage")
        if not 0 <= decay < 1:
            raise ConfigError(f"MovingAverageOptimizer(decay={decay!r}): expected at least 0 and less than 1.")
        self._decay = decay
        self._averages: list[WeightAverages] = []

    def _create_slots(self, var_list: list[Any]) -> None:
        super()._create_slots(var_list)
        slots = self._own_slots.setdefault(_SLOT, {})
        new = [var for var in var_list if var.ref() not in slots]
        if new:
            averages = WeightAverages(new, self._decay)
            self._averages.append(averages)
            self._own_variables += [*averages.averages, averages.num_updates]
            slots.update((var.ref(), average) for var, average in zip(new, averages.averages, strict=True))

    def _build_update(self, grads_and_vars: list[tuple[Any, Any]]) -> Any:
        update = super()._build_update(grads_and_vars)
        updated = {var.ref() for _, var in grads_and_vars}
        with tf.control_dependencies([update]):
            return tf.group(
                *(each.update() for each in self._averages if updated.intersection(var.ref() for var in each.variables))
            )


class WeightAverages:
    """Exponential moving averages of variables, which can be swapped with the variables.

    In update n (from 0), ``average -= (1 - d) · (average - variable)`` with
    ``d = min(decay, n / (9 + n))``. So the first average is the variable itself, and the averages follow about the last
    tenth of all updates until `decay` takes over. This is the rule of `tf.train.ExponentialMovingAverage` (see
    ``num_updates`` there) for ``num_updates = n - 1``, which does not depend on initial values.

    Variables of 16 bits have averages of ``float32``: in their own type, small changes would be lost.

    Args:
        variables: floating-point variables of the default graph.
        decay: the weight of the past, in [0, 1).

    Attributes:
        variables: the variables.
        averages: their averages, in the same order; not trainable, saved in checkpoints.
        num_updates: the number of updates, an ``int64`` variable that is also saved.
    """

    def __init__(self, variables: Sequence[Any], decay: float) -> None:
        self.variables = list(variables)
        self._decay = decay
        self.averages = [create_slot(var, AVERAGE_NAME, _zeros(var)) for var in self.variables]
        first = min(self.variables, key=variable_name)
        self.num_updates = create_slot(
            first, f"{AVERAGE_NAME}/num_updates", lambda: tf.zeros([], tf.int64), on_cpu=True
        )
        # The sessions in which variables have the values of their averages.
        self._swapped: list[Any] = []
        with tf.init_scope(), tf.name_scope("swap_weights"):
            swaps = [_build_swap(var, average) for var, average in zip(self.variables, self.averages, strict=True)]
            self._swap_in = tf.group(*(swap_in for swap_in, _ in swaps))
            self._swap_out = tf.group(*(swap_out for _, swap_out in swaps))
        # The averages belong to the surrounding graph, even if they are created in a branch.
        self.variables[0].graph.add_to_collection(WEIGHT_AVERAGES_KEY, self)

    def update(self) -> Any:
        """Return a new op that updates all averages."""
        with colocate_with(self.num_updates):
            n = self.num_updates.read_value()
            weight = 1 - tf.minimum(tf.cast(self._decay, tf.float32), tf.cast(n / (9 + n), tf.float32))
            with tf.control_dependencies([n]):
                updates = [self.num_updates.assign_add(1, read_value=False)]
        for variable, average in zip(self.variables, self.averages, strict=True):
            with colocate_with(average):
                difference = average.read_value() - _cast(variable.read_value(), average)
                updates.append(average.assign_sub(difference * _cast(weight, average), read_value=False))
        return tf.group(*updates)

    @contextmanager
    def swapped_in(self, sess: Any) -> Iterator[None]:
        """Within the context, the variables have the values of their averages, if these were updated before.

        Args:
            sess: the raw session.

        Raises:
            SessionError: if it is nested.
        """
        if sess in self._swapped:
            raise SessionError(
                f"{variable_name(self.variables[0])!r} already has the value of its average in this session. Do not "
                "nest averaged_weights."
            )
        if not sess.run(self.num_updates):
            yield
            return
        self._swapped.append(sess)
        try:
            sess.run(self._swap_in)
            yield
        finally:
            sess.run(self._swap_out)
            self._swapped.remove(sess)


def _build_swap(variable: Any, average: Any) -> tuple[Any, Any]:
    """Return the ops that assign `average` to `variable`, and that restore the variable's own value.

    Resource variables share the memory of an assigned value until one of them changes. So nothing is copied, and the
    variable that holds the original value during the swap, and is empty otherwise, needs no additional memory.
    """
    with colocate_with(variable):
        own = tf.compat.v1.Variable(
            lambda: tf.zeros([0], variable.dtype.base_dtype),
            shape=tf.TensorShape(None),
            validate_shape=False,
            trainable=False,
            use_resource=True,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            name="own",
        )
        value = variable.read_value()
        if variable.op.type != "VarHandleOp":
            # Reading a reference variable gives its memory, which the next assignment writes to.
            value = tf.raw_ops.DeepCopy(x=value)
        with tf.control_dependencies([own.assign(value, read_value=False)]):
            swap_in = tf.compat.v1.assign(variable, _cast(average.read_value(), variable)).op
        own_value = tf.ensure_shape(own.read_value(), variable.shape)
        with tf.control_dependencies([tf.compat.v1.assign(variable, own_value).op]):
            swap_out = own.assign(tf.zeros([0], own.dtype), read_value=False)
    return swap_in, swap_out


def _zeros(variable: Any) -> Callable[[], Any]:
    return lambda: tf.zeros(variable.shape, sum_dtype(variable))


def _cast(value: Any, like: Any) -> Any:
    return tf.cast(value, like.dtype.base_dtype)
