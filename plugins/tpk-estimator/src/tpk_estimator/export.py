"""`tf.estimator.export`: how a served model takes requests, and the signatures under which it answers."""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import tensorflow as tf

v1 = tf.compat.v1
logger = logging.getLogger(__name__)

_DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def _named_tensors(name: str, default_key: str, value: Any, key_type: type = str) -> dict[Any, Any]:
    """Return a tensor, or a dict of tensors, as a dict."""
    if value is None:
        raise ValueError(f"{name} is None, but must be a tensor or a dict of tensors.")
    tensors = dict(value) if isinstance(value, Mapping) else {default_key: value}
    for key, tensor in tensors.items():
        if not isinstance(key, key_type):
            raise ValueError(f"the keys of {name} must be strings, but got {key!r}.")
        _check_tensor(f"{name}[{key!r}]", tensor)
    return tensors


def _check_tensor(name: str, tensor: Any, dtype: Any = None) -> None:
    if not tf.is_tensor(tensor) and not isinstance(tensor, tf.SparseTensor | tf.RaggedTensor):
        raise ValueError(f"{name} must be a tensor, but is {tensor!r}.")
    if dtype is not None and tensor.dtype.base_dtype != dtype:
        raise ValueError(f"{name} must have the dtype {dtype.name}, but {tensor.name!r} has {tensor.dtype.name}.")


def _as_outputs(value: Any) -> dict[str, Any]:
    return _named_tensors("outputs", "output", value)


def _as_features(value: Any) -> dict[Any, Any]:
    return _named_tensors("features", "feature", value, key_type=object)


def _as_receivers(value: Any) -> dict[str, Any]:
    return _named_tensors("receiver_tensors", "input", value)


def _as_alternatives(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping | None):
        raise ValueError(f"receiver_tensors_alternatives must be a dict of receiver tensors by name, but is {value!r}.")
    return {
        name: _named_tensors(f"receiver_tensors_alternatives[{name!r}]", "input", receivers)
        for name, receivers in (value or {}).items()
    }


@attrs.frozen(eq=False)
class ServingInputReceiver:
    """The tensors of a request, and the features that the model computes from them.

    Args:
        features: a tensor, or a dict of tensors: a ``model_fn`` gets a dict.
        receiver_tensors: a tensor, or a dict of tensors: what a request feeds.
        receiver_tensors_alternatives: other tensors that a request may feed instead, by name.

    Raises:
        ValueError: if one of them is missing, not a tensor, or has a wrong name.
    """

    features: Any = attrs.field(converter=_as_features)
    receiver_tensors: Any = attrs.field(converter=_as_receivers)
    receiver_tensors_alternatives: Any = attrs.field(default=None, converter=_as_alternatives)


@attrs.frozen(eq=False)
class TensorServingInputReceiver:
    """A `ServingInputReceiver` for a ``model_fn`` whose features are one tensor, not a dict."""

    features: Any = attrs.field()
    receiver_tensors: Any = attrs.field(converter=_as_receivers)
    receiver_tensors_alternatives: Any = attrs.field(default=None, converter=_as_alternatives)

    @features.validator
    def _check_features(self, attribute: Any, value: Any) -> None:
        _check_tensor("features", value)


def build_parsing_serving_input_receiver_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a function that receives serialized `tf.train.Example`s and parses them.

    Args:
        feature_spec: the features by name, as for `tf.io.parse_example`.
        default_batch_size: the number of examples in a request; None for any.
    """

    def serving_input_receiver_fn() -> ServingInputReceiver:
        serialized = v1.placeholder(tf.string, [default_batch_size], name="input_example_tensor")
        return ServingInputReceiver(tf.io.parse_example(serialized, dict(feature_spec)), {"examples": serialized})

    return serving_input_receiver_fn


def build_raw_serving_input_receiver_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """Return a function that receives the features themselves.

    Args:
        features: tensors or `tf.TensorSpec`s by name. Only their shapes, dtypes and names are used.
        default_batch_size: the first dimension of a request; None for any.
    """
    if not isinstance(features, Mapping):
        raise ValueError(f"features must be a dict of tensors by name, but got {features!r}.")

    def serving_input_receiver_fn() -> ServingInputReceiver:
        receivers = {key: _placeholder_like(key, tensor, default_batch_size) for key, tensor in features.items()}
        return ServingInputReceiver(receivers, receivers)

    return serving_input_receiver_fn


def _placeholder_like(key: str, tensor: Any, batch_size: int | None) -> Any:
    shape = tf.TensorShape(tensor.shape)
    if shape.rank is not None:
        shape = tf.TensorShape([batch_size]).concatenate(shape[1:])
    try:
        name = tensor.name.partition(":")[0]
    except AttributeError:  # Arrays and eager tensors have no name.
        name = key
    return v1.placeholder(tensor.dtype, shape, name)


class ExportOutput(abc.ABC):
    """One signature of a SavedModel: its outputs, and the kind of request that it answers."""

    @abc.abstractmethod
    def _signature(self, receivers: Mapping[str, Any]) -> Any:
        """Return the `SignatureDef` for requests that feed the receivers.

        Raises:
            ValueError: if such requests cannot have this signature.
        """


@attrs.frozen(eq=False)
class PredictOutput(ExportOutput):
    """Outputs of any kind, by name.

    Args:
        outputs: a tensor, which is called ``"output"``, or a dict of tensors.

    Raises:
        ValueError: if an output is not a tensor, or a name is not a string.
    """

    outputs: Any = attrs.field(converter=_as_outputs)

    def _signature(self, receivers: Mapping[str, Any]) -> Any:
        return v1.saved_model.predict_signature_def(dict(receivers), self.outputs)


@attrs.frozen(eq=False)
class ClassificationOutput(ExportOutput):
    """The classes of examples, with scores.

    Args:
        scores: a tensor of float32 with a score for each class.
        classes: a tensor of strings with the names of the classes.

    Raises:
        ValueError: if both are missing, or one is not a tensor of its dtype.
    """

    scores: Any = None
    classes: Any = None

    def __attrs_post_init__(self) -> None:
        if self.scores is None and self.classes is None:
            raise ValueError("ClassificationOutput needs scores, classes, or both.")
        for name, dtype in (("scores", tf.float32), ("classes", tf.string)):
            value = getattr(self, name)
            if value is not None:
                _check_tensor(f"{name} of ClassificationOutput", value, dtype)

    def _signature(self, receivers: Mapping[str, Any]) -> Any:
        return v1.saved_model.classification_signature_def(_examples(receivers), self.classes, self.scores)


@attrs.frozen(eq=False)
class RegressionOutput(ExportOutput):
    """The predicted values of examples.

    Args:
        value: a tensor of float32.

    Raises:
        ValueError: if it is not.
    """

    value: Any = attrs.field()

    @value.validator
    def _check(self, attribute: Any, value: Any) -> None:
        _check_tensor("value of RegressionOutput", value, tf.float32)

    def _signature(self, receivers: Mapping[str, Any]) -> Any:
        return v1.saved_model.regression_signature_def(_examples(receivers), self.value)


def _examples(receivers: Mapping[str, Any]) -> Any:
    """Return the only receiver: classifications and regressions take serialized examples."""
    tensors = list(receivers.values())
    if len(tensors) != 1 or tensors[0].dtype.base_dtype != tf.string:
        raise ValueError(f"it takes one tensor of serialized examples, but the receiver tensors are {dict(receivers)}")
    return tensors[0]


def signatures(export_outputs: Any, predictions: Any, receiver: Any) -> dict[str, Any]:
    """Return the `SignatureDef`s of a SavedModel by name.

    A classification or regression whose requests are not serialized examples is left out, with a warning.

    Args:
        export_outputs: the field of the `EstimatorSpec`; None for one signature with the predictions.
        predictions: the predictions of the `EstimatorSpec`.
        receiver: a `ServingInputReceiver` or a `TensorServingInputReceiver`.

    Raises:
        ValueError: if there are several outputs, but none is called ``"serving_default"``.
        TypeError: if an output is not an `ExportOutput`.
    """
    outputs = {_DEFAULT: PredictOutput(predictions)} if export_outputs is None else export_outputs
    if not isinstance(outputs, Mapping) or not all(isinstance(output, ExportOutput) for output in outputs.values()):
        raise TypeError(
            "export_outputs of the EstimatorSpec must be a dict of PredictOutput, ClassificationOutput or "
            f"RegressionOutput by name, but got {export_outputs!r}."
        )
    if _DEFAULT not in outputs:
        if len(outputs) != 1:
            raise ValueError(
                f"export_outputs of the EstimatorSpec has the names {sorted(outputs)}: call one {_DEFAULT!r}."
            )
        outputs = {**outputs, _DEFAULT: next(iter(outputs.values()))}
    inputs = {"": receiver.receiver_tensors, **receiver.receiver_tensors_alternatives}
    made = {}
    for prefix, receivers in inputs.items():
        for name, output in outputs.items():
            try:
                made[f"{prefix}:{name}" if prefix else name] = output._signature(receivers)
            except ValueError as error:
                logger.warning("the signature %r is left out: %s", f"{prefix}:{name}" if prefix else name, error)
    return made
