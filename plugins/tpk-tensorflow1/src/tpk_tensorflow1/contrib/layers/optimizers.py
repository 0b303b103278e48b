"""`optimize_loss`: a training step from a loss."""

from __future__ import annotations

import functools
import inspect
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
    gradient_noise_scale: float | None = None,
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
        gradient_noise_scale: the standard deviation of noise that is added to gradients.
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
        ValueError: an argument is invalid.
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
        rate = _learning_rate(learning_rate)
        if learning_rate_decay_fn is not None and rate is not None:
            rate = learning_rate_decay_fn(rate, global_step)
            if "learning_rate" in summaries:
                v1.summary.scalar("learning_rate", rate)
        made = _optimizer(optimizer, rate)
        gradients = made.compute_gradients(
            loss, variables or v1.trainable_variables(), colocate_gradients_with_ops=colocate_gradients_with_ops
        )
        if gradient_noise_scale is not None:
            gradients = [(_with_noise(each, gradient_noise_scale), variable) for each, variable in gradients]
        if gradient_multipliers is not None:
            gradients = [(_multiplied(each, variable, gradient_multipliers), variable) for each, variable in gradients]
        _summarize_norm("gradient_norm", gradients, summaries)
        gradients = _clipped(gradients, clip_gradients)
        if "loss" in summaries:
            v1.summary.scalar("loss", loss)
        for gradient, variable in gradients:
            values = getattr(gradient, "values", gradient)  # of a sparse gradient
            if values is not None and "gradients" in summaries:
                v1.summary.histogram(f"gradients/{variable.name}".replace(":", "_"), values)
            if values is not None and "gradient_norm" in summaries:
                v1.summary.scalar(f"gradient_norm/{variable.name}".replace(":", "_"), v1.global_norm([values]))
        if clip_gradients is not None:
            _summarize_norm("clipped_gradient_norm", gradients, summaries)
        train = made.apply_gradients(gradients, global_step if increment_global_step else None, name="train")
        with tf.control_dependencies([train]):
            return tf.identity(loss)


def _learning_rate(learning_rate: Any) -> Any:
    if learning_rate is None or tf.is_tensor(learning_rate):
        return learning_rate
    if not isinstance(learning_rate, int | float) or learning_rate < 0:
        raise ValueError(f"optimize_loss(learning_rate={learning_rate!r}): expected a tensor, or a number from 0")
    initializer = tf.constant_initializer(float(learning_rate))
    return v1.get_variable("learning_rate", [], tf.float32, initializer, trainable=False)


def _optimizer(optimizer: Any, rate: Any) -> Any:
    if isinstance(optimizer, v1.train.Optimizer):
        return optimizer
    make = OPTIMIZER_CLS_NAMES.get(optimizer) if isinstance(optimizer, str) else optimizer
    if not callable(make):
        raise ValueError(
            f"optimize_loss(optimizer={optimizer!r}): expected an optimizer, a class, a function, or one of "
            f"{', '.join(OPTIMIZER_CLS_NAMES)}"
        )
    if not inspect.isfunction(make) and rate is None:
        raise ValueError(f"optimize_loss(optimizer={optimizer!r}) needs a learning_rate")
    return make() if rate is None else make(rate)


def _with_noise(gradient: Any, scale: float) -> Any:
    return None if gradient is None else gradient + scale * v1.truncated_normal(v1.shape(gradient))


def _multiplied(gradient: Any, variable: Any, multipliers: Mapping[Any, Any]) -> Any:
    factor = multipliers.get(variable, multipliers.get(variable.name))
    if factor is None or gradient is None:
        return gradient
    factor = tf.cast(factor, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def _clipped(gradients: list[Any], clip_gradients: Any) -> list[Any]:
    if clip_gradients is None:
        return gradients
    if callable(clip_gradients):
        return list(clip_gradients(gradients))
    if not isinstance(clip_gradients, int | float):
        raise ValueError(f"optimize_loss(clip_gradients={clip_gradients!r}): expected a number or a function")
    clipped, _ = tf.clip_by_global_norm([each for each, _ in gradients], clip_gradients)
    return [(each, variable) for each, (_, variable) in zip(clipped, gradients, strict=True)]


def _summarize_norm(name: str, gradients: list[Any], summaries: Sequence[str]) -> None:
    if "global_gradient_norm" in summaries or "gradient_norm" in summaries:
        v1.summary.scalar(f"global_norm/{name}", v1.global_norm([each for each, _ in gradients]))
