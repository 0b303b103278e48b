"""Masked updates: an update that leaves everything as it was unless a condition holds, without control flow.

A `tf.cond` around an update keeps the host waiting: until the condition is known, which here depends on all gradients,
none of the ops of the update can be given to the GPU, and the GPU has nothing to do meanwhile. Where the ops of an
optimizer allow it, they run in any case, and it is their inputs that depend on the condition: unless it holds,
gradients are zero, and hyperparameters such that nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tpk.graph.gradients import values_of
from tpk.graph.optimizers.proxy import ProxyOptimizer, check_no_reference
from tpk.tf_internals import replaced_hyperparameters

# For each optimizer, the tensors that it makes of its hyperparameters, and with which values of them a gradient of zero
# changes no variable and no slot: x + 0 · y and 1 · x are x, to the bit, as long as y is finite (but -0 may become 0).
# With what others compute there are no such values: RMSProp moves variables by all of its momentum, and Ftrl and
# AdagradDA compute them anew. Neither are there for subclasses, of which nothing is known.
_NEUTRAL: dict[type[Any], dict[str, float]] = {
    tf.compat.v1.train.GradientDescentOptimizer: {"learning_rate": 0},
    tf.compat.v1.train.MomentumOptimizer: {"learning_rate": 0, "momentum": 1},
    # With an epsilon of 0, a first moment of 0 would be divided by 0.
    tf.compat.v1.train.AdamOptimizer: {"learning_rate": 0, "beta1": 1, "beta2": 1, "epsilon": 1},
    tf.compat.v1.train.AdagradOptimizer: {"learning_rate": 0},
    tf.compat.v1.train.AdadeltaOptimizer: {"learning_rate": 0, "rho": 1, "epsilon": 1},
}


def update_if(
    condition: Any,
    optimizer: Any,
    grads_and_vars: Sequence[tuple[Any, Any]],
    owner: str,
    products: Sequence[tuple[Any, Any]] | None = None,
) -> Any:
    """Return the op by which `optimizer` applies gradients if `condition` holds, and which changes nothing if not.

    Optimizers that cannot be masked (see `masked`) apply them in a `tf.cond`; the results are the same.

    Args:
        condition: a scalar ``bool`` tensor, which is True only if all gradients are finite.
        optimizer: a `tf.compat.v1.train.Optimizer`.
        grads_and_vars: pairs of a gradient (dense or sparse, no None) and its variable.
        owner: the class of who asks, for messages.
        products: for each gradient two factors, a tensor and a scalar ``float32`` tensor (or None for 1), whose product
            it is: masking multiplies anyway, so that gradients that were scaled cost no multiplication of their own.

    Raises:
        ConfigError: if it takes a `tf.cond`, and a variable is a reference variable; it names the first.
    """
    context = masked(optimizer, condition)
    if context is None:
        check_no_reference(owner, grads_and_vars)
        return tf.cond(condition, lambda: optimizer.apply_gradients(grads_and_vars), tf.no_op)
    if products is None:
        products = [(values_of(grad), None) for grad, _ in grads_and_vars]
    masks: dict[Any, Any] = {}
    pairs = []
    for (values, factor), (grad, var) in zip(products, grads_and_vars, strict=True):
        key = None if factor is None else factor.ref()
        if key not in masks:
            masks[key] = tf.where(condition, 1.0 if factor is None else factor, 0.0)
        with tf.device(values.device):
            values = multiply(values, masks[key])
        sparse = isinstance(grad, tf.IndexedSlices)
        pairs.append((tf.IndexedSlices(values, grad.indices, grad.dense_shape) if sparse else values, var))
    with context:
        return optimizer.apply_gradients(pairs)


def masked(optimizer: Any, condition: Any) -> AbstractContextManager[None] | None:
    """Return a context in which `optimizer.apply_gradients` builds an update that is masked, or None if it cannot.

    Such an update changes nothing unless `condition` holds; gradients must be zero then, and all state finite. These
    optimizers can be masked: GradientDescent, Momentum, Adam, Adagrad and Adadelta (themselves, no subclasses), and a
    `ProxyOptimizer` around one that says how, by its `masked`.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`.
        condition: a scalar ``bool`` tensor.
    """
    if isinstance(optimizer, ProxyOptimizer):
        return optimizer.masked(condition)
    neutral = _NEUTRAL.get(type(optimizer))
    if neutral is None:
        return None

    def replace(name: str, given: Any) -> Any:
        return tf.where(condition, given, tf.constant(neutral[name], given.dtype))

    return replaced_hyperparameters(optimizer, replace)


def multiply(values: Any, factor: Any) -> Any:
    """Return `values` times `factor`, a scalar ``float32`` tensor; zero where that is zero, whatever the values are."""
    # To 16 bits a factor may be infinite, or zero.
    wide = tf.cast(values, tf.float32) if values.dtype.size < 4 else values
    return tf.cast(tf.math.multiply_no_nan(wide, tf.cast(factor, wide.dtype)), values.dtype)
