"""What a ``model_fn`` returns: the parts of a model in one mode, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import tensorflow as tf


class ModeKeys:
    """The modes in which a ``model_fn`` is called."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


def _as_hooks(hooks: Iterable[Any] | None) -> tuple[Any, ...]:
    return tuple(hooks or ())


def _check_hooks(spec: Any, attribute: Any, hooks: tuple[Any, ...]) -> None:
    for hook in hooks:
        if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
            raise TypeError(f"{attribute.name} of the EstimatorSpec must contain SessionRunHooks, but got {hook!r}.")


def _hooks_field() -> Any:
    return attrs.field(default=(), converter=_as_hooks, validator=_check_hooks)


@attrs.frozen(eq=False)
class EstimatorSpec:
    """The ops of a model in one mode, which a ``model_fn`` returns.

    A ``model_fn`` may fill in all fields in every mode; each mode uses what it needs.

    Args:
        mode: one of `ModeKeys`.
        predictions: a tensor, or a dict of tensors. Needed to predict.
        loss: a tensor with one element. Needed to train and to evaluate.
        train_op: the op of a training step, which also increments the global step. Needed to train.
        eval_metric_ops: metrics by name: pairs ``(value, update_op)``, or metrics of Keras 2.
        export_outputs: outputs of a SavedModel by name of the signature; by default one signature with `predictions`.
        training_chief_hooks: session hooks of the process that writes checkpoints.
        training_hooks: session hooks of a training.
        scaffold: a `tf.compat.v1.train.Scaffold`: the saver, and how variables are initialized.
        evaluation_hooks: session hooks of an evaluation.
        prediction_hooks: session hooks of a prediction.

    Raises:
        ValueError: if a field that the mode needs is missing, or a tensor is in another graph or has a wrong shape.
        TypeError: if a field has the wrong type.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Any = None
    export_outputs: Any = None
    training_chief_hooks: tuple[Any, ...] = _hooks_field()
    training_hooks: tuple[Any, ...] = _hooks_field()
    scaffold: Any = None
    evaluation_hooks: tuple[Any, ...] = _hooks_field()
    prediction_hooks: tuple[Any, ...] = _hooks_field()

    def __attrs_post_init__(self) -> None:
        checked = {
            "train_op": checked_train_op(self.train_op, self.mode),
            "loss": checked_loss(self.loss, self.mode),
            "predictions": checked_predictions(self.predictions, self.mode),
            "eval_metric_ops": checked_metrics(self.eval_metric_ops),
            "scaffold": self.scaffold or tf.compat.v1.train.Scaffold(),
        }
        if not isinstance(checked["scaffold"], tf.compat.v1.train.Scaffold):
            raise TypeError(f"scaffold must be a tf.compat.v1.train.Scaffold, but got {self.scaffold!r}.")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _replace(self, **changes: Any) -> EstimatorSpec:
        """Return a spec with other values in some fields, as the method of a named tuple does."""
        if changes.get("mode", self.mode) != self.mode:
            raise ValueError(f"the mode of an EstimatorSpec cannot be changed: it is {self.mode!r}.")
        return attrs.evolve(self, **changes)


def checked_train_op(train_op: Any, mode: str) -> Any:
    """Return the op of a step; a variable stands for its op."""
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise ValueError("the EstimatorSpec has no train_op, which training needs: pass optimizer.minimize(...).")
        return None
    if not isinstance(train_op, tf.Operation | tf.Tensor | tf.Variable):
        raise TypeError(f"train_op must be an operation or a tensor, but got {train_op!r}.")
    _check_graph("train_op", train_op)
    return train_op.op if isinstance(train_op, tf.Variable) else train_op


def checked_loss(loss: Any, mode: str) -> Any:
    """Return the loss as a scalar."""
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError(f"the EstimatorSpec has no loss, which mode {mode!r} needs: pass a scalar tensor.")
        return None
    _check_tensor("loss", loss)
    if loss.shape.num_elements() not in (None, 1):
        raise ValueError(f"loss must be a scalar, but {loss.name!r} has the shape {loss.shape}: use tf.reduce_mean.")
    return loss if loss.shape.is_compatible_with([]) else tf.reshape(loss, [])


def checked_predictions(predictions: Any, mode: str) -> Any:
    """Return the predictions: a tensor, or a dict of tensors, which is empty if there are none."""
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ValueError("the EstimatorSpec has no predictions, which predict and export need: pass a dict.")
        return {}
    if not isinstance(predictions, Mapping):
        _check_tensor("predictions", predictions)
        return predictions
    for key, value in predictions.items():
        _check_tensor(f"predictions[{key!r}]", value)
    return dict(predictions)


def checked_metrics(metrics: Any) -> dict[str, Any]:
    """Return the metrics as pairs ``(value, update_op)`` by name."""
    if not isinstance(metrics, Mapping | None):
        raise TypeError(f"eval_metric_ops must be a dict of metrics by name, but got {metrics!r}.")
    return {name: _as_pair(name, metric) for name, metric in (metrics or {}).items()}


def _as_pair(name: str, metric: Any) -> tuple[Any, Any]:
    if isinstance(metric, tuple) and len(metric) == 2:
        for part in metric:
            _check_graph(f"eval_metric_ops[{name!r}]", part)
        return metric
    if not all(hasattr(metric, attribute) for attribute in ("updates", "result", "variables")):
        raise TypeError(
            f"eval_metric_ops[{name!r}] must be a pair (value, update_op), as the functions in "
            f"tf.compat.v1.metrics return, or a metric of Keras 2, but got {metric!r}."
        )
    if not metric.updates:
        raise ValueError(f"eval_metric_ops[{name!r}] is never updated: call its update_state(...) in the model_fn.")
    for collection in (tf.compat.v1.GraphKeys.LOCAL_VARIABLES, tf.compat.v1.GraphKeys.METRIC_VARIABLES):
        known = {id(variable) for variable in tf.compat.v1.get_collection(collection)}
        for variable in metric.variables:
            if id(variable) not in known:
                tf.compat.v1.add_to_collection(collection, variable)
    return metric.result(), metric.updates[0]


def _check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, tf.Tensor | tf.Variable):
        raise TypeError(f"{name} of the EstimatorSpec must be a tensor, but got {value!r}.")
    _check_graph(name, value)


def _check_graph(name: str, value: Any) -> None:
    if value.graph is not tf.compat.v1.get_default_graph():
        raise ValueError(
            f"{name} of the EstimatorSpec, {value.name!r}, is in another graph: create it inside the model_fn."
        )
