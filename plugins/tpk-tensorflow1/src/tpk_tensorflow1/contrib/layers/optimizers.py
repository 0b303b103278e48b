"""`optimize_loss`: a training step from a loss."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["OPTIMIZER_CLS_NAMES", "OPTIMIZER_SUMMARIES", "optimize_loss"]

v1 = tf.compat.v1

Function = Callable[..., Any]

OPTIMIZER_CLS_NAMES: dict[str, Function] = {
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": v1.train.AdamOptimizer,
    "Ftrl": v1.train.FtrlOptimizer,
    "Momentum": functools.partial(v1.train.MomentumOptimizer, momentum=0.9),
    "RMSProp": v1.train.RMSPropOptimizer,
    "SGD": v1.train.GradientDescentOptimizer,
}
OPTIMIZER_SUMMARIES = ["learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm"]


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    *,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    clip_gradients: float | Function | None = None,
    learning_rate_decay_fn: Function | None = None,
    update_ops: Sequence[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: str | None = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Any:
    """Return the loss, as a tensor whose computation trains.

    Args:
        loss: a scalar.
        global_step: a variable that each step increments; None for the one of the graph.
        learning_rate: a number or a scalar tensor; None if `optimizer` does not need it.
        optimizer: an optimizer, a class, a name in `OPTIMIZER_CLS_NAMES`, or a function that returns an optimizer; all
            except the first are called with the learning rate.
        gradient_multipliers: factors of gradients, by variable or by name.
        clip_gradients: the maximum of the global norm of all gradients, or a function of pairs of a gradient and a
            variable.
        learning_rate_decay_fn: a function of the learning rate and the global step.
        update_ops: ops that run before the loss is computed, by default those in ``UPDATE_OPS``.
        variables: the variables to train, by default all trainable ones.
        name: the variable scope, by default ``OptimizeLoss``.
        summaries: which of `OPTIMIZER_SUMMARIES` to write, by default the learning rate, the loss and the global norm.
        colocate_gradients_with_ops: see `tf.gradients`.
        increment_global_step: whether a step increments `global_step`.

    Raises:
        ValueError: the name of a summary or of the optimizer is unknown.
    """
    if summaries is None:
        summaries = ["loss", "learning_rate", "global_gradient_norm"]
    unknown = set(summaries) - set(OPTIMIZER_SUMMARIES)
    if unknown:
        raise ValueError(f"optimize_loss(summaries={summaries}): {unknown} are not in {OPTIMIZER_SUMMARIES}")
    if global_step is None:
        global_step = v1.train.get_global_step()
    with v1.variable_scope(name, "OptimizeLoss", [loss, global_step]):
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS) if update_ops is None else list(update_ops)
        with tf.control_dependencies(updates):
            loss = tf.identity(loss)
        rate = learning_rate
        if rate is not None and not tf.is_tensor(rate):
            rate = v1.get_variable(
                "learning_rate", [], tf.float32, tf.constant_initializer(float(rate)), trainable=False
            )
        if learning_rate_decay_fn is not None and rate is not None:
            rate = learning_rate_decay_fn(rate, global_step)
            if "learning_rate" in summaries:
                v1.summary.scalar("learning_rate", rate)
        made = _optimizer(optimizer, rate)
        gradients = made.compute_gradients(
            loss, variables or v1.trainable_variables(), colocate_gradients_with_ops=colocate_gradients_with_ops
        )
        multipliers = gradient_multipliers or {}
        for place, (gradient, variable) in enumerate(gradients):
            factor = multipliers.get(variable, multipliers.get(variable.name))
            if factor is not None and gradient is not None:
                gradients[place] = tf.math.scalar_mul(tf.cast(factor, gradient.dtype), gradient), variable
        _summarize_norm("gradient_norm", gradients, summaries)
        if callable(clip_gradients):
            gradients = clip_gradients(gradients)
        elif clip_gradients is not None:
            clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in gradients], clip_gradients)
            gradients = [(gradient, variable) for gradient, (_, variable) in zip(clipped, gradients, strict=True)]
        if "loss" in summaries:
            v1.summary.scalar("loss", loss)
        for gradient, variable in gradients:
            values = getattr(gradient, "values", gradient)  # of a sparse gradient
            name = variable.name.replace(":", "_")
            if values is not None and "gradients" in summaries:
                v1.summary.histogram(f"gradients/{name}", values)
            if values is not None and "gradient_norm" in summaries:
                v1.summary.scalar(f"gradient_norm/{name}", v1.global_norm([values]))
        if clip_gradients is not None:
            _summarize_norm("clipped_gradient_norm", gradients, summaries)
        train = made.apply_gradients(gradients, global_step if increment_global_step else None, name="train")
        with tf.control_dependencies([train]):
            return tf.identity(loss)


def _optimizer(optimizer: Any, rate: Any) -> Any:
    if isinstance(optimizer, v1.train.Optimizer):
        return optimizer
    make = OPTIMIZER_CLS_NAMES.get(optimizer) if isinstance(optimizer, str) else optimizer
    if make is None:
        raise ValueError(f"optimize_loss(optimizer={optimizer!r}): expected one of {', '.join(OPTIMIZER_CLS_NAMES)}")
    return make() if rate is None else make(rate)


def _summarize_norm(name: str, gradients: list[Any], summaries: Sequence[str]) -> None:
    if "global_gradient_norm" in summaries or "gradient_norm" in summaries:
        v1.summary.scalar(f"global_norm/{name}", v1.global_norm([each for each, _ in gradients]))
