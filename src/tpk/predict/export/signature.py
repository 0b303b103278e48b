"""Signatures of exported models: names, shapes and types of what they take and return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.predict.config import PredictGraph
from tpk.predict.inputs import check_feeds_suffice, inputs_beneath
from tpk.predict.online import tensors_by_key

DEFAULT_NAME = "serving_default"
"""The signature that most programs look for."""

_METHOD = "tensorflow/serving/predict"

# Of these, SavedModels make use themselves.
_RESERVED = ("__saved_model_init_op", "__saved_model_train_op")


def _are_names(signature: Signature, attribute: attrs.Attribute[Any], names: Any) -> None:
    values = list(names.values()) if isinstance(names, Mapping) else names
    fits = isinstance(values, Sequence) and not isinstance(values, str)
    if not fits or not values or not all(isinstance(name, str) for name in values):
        raise ConfigError(
            f"Signature({attribute.name}={names!r}): expected names of tensors in a list, or in a mapping from what "
            "they are to be called."
        )


@attrs.frozen
class Signature:
    """A function that an exported model offers, described by names.

    Attributes:
        output_names: names of tensors in the tower; or a mapping to such names from what callers know the outputs by.
        input_names: the same for what goes in; None for those inputs of the model that the outputs depend on.

    Raises:
        ConfigError: if they are no names.

    Example:
        ```python
        Signature({"probabilities": "softmax/output"}, input_names=["image"])
        ```
    """

    output_names: Sequence[str] | Mapping[str, str] = attrs.field(validator=_are_names)
    input_names: Sequence[str] | Mapping[str, str] | None = attrs.field(
        default=None, validator=attrs.validators.optional(_are_names)
    )


@attrs.frozen
class ExportedSignature:
    """A function that an exported model offers, with what it takes and returns.

    As a string, it reads ``(image: float32 [?, 28, 28]) -> (probabilities: float32 [?, 10])``.

    Attributes:
        inputs: a `tf.TensorSpec` for each input, by what callers know it by; its name is that of the tensor in the
            exported graph, such as ``"image:0"``.
        outputs: the same for what is returned.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    def __str__(self) -> str:
        return f"({_specs_text(self.inputs)}) -> ({_specs_text(self.outputs)})"

    def as_proto(self) -> Any:
        """Return it as the ``SignatureDef`` of a SavedModel."""
        return tf.compat.v1.saved_model.build_signature_def(
            inputs={name: _tensor_info(spec) for name, spec in self.inputs.items()},
            outputs={name: _tensor_info(spec) for name, spec in self.outputs.items()},
            method_name=_METHOD,
        )


def resolve_signatures(built: PredictGraph, signatures: Mapping[str, Signature] | None) -> dict[str, ExportedSignature]:
    """Return the signatures over a graph.

    Args:
        built: the model.
        signatures: by name; None for a single one, with inputs and outputs of the model's config.

    Raises:
        ConfigError: if they are no signatures, or their names cannot be.
        TowerError: if the model has no tensor of a name; the message has the nearest.
        InputError: if the outputs depend on what is not among the inputs.
    """
    if signatures is None:
        return {DEFAULT_NAME: ExportedSignature(_specs(built.inputs), _specs(built.outputs))}
    if not isinstance(signatures, Mapping) or not signatures:
        raise ConfigError(
            f"signatures={signatures!r}: expected a mapping of names to signatures, such as "
            f'{{"{DEFAULT_NAME}": Signature(["probabilities"])}}.'
        )
    for name, signature in signatures.items():
        if not isinstance(name, str) or not name or name in _RESERVED:
            raise ConfigError(f"no signature can be called {name!r}. Call it {DEFAULT_NAME!r}, or whatever it does.")
        if not isinstance(signature, Signature):
            raise ConfigError(
                f"the signature {name!r} is {signature!r}; expected a Signature(output_names, input_names)."
            )
    return {name: _resolve(built, signature) for name, signature in signatures.items()}


def _resolve(built: PredictGraph, signature: Signature) -> ExportedSignature:
    handle = built.towers[0].handle
    outputs = tensors_by_key(handle, signature.output_names)
    if signature.input_names is not None:
        inputs = tensors_by_key(handle, signature.input_names)
        check_feeds_suffice(list(inputs.values()), list(outputs.values()))
    else:
        inputs = inputs_beneath(outputs.values(), built.tower_func.input_names, handle.inputs)
    return ExportedSignature(_specs(inputs), _specs(outputs))


def _specs(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name) for key, tensor in tensors.items()}


def _tensor_info(spec: Any) -> Any:
    return tf.compat.v1.TensorInfo(
        name=spec.name, dtype=spec.dtype.as_datatype_enum, tensor_shape=spec.shape.as_proto()
    )


def _specs_text(specs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {spec.dtype.name} {_shape_text(spec.shape)}" for name, spec in specs.items())


def _shape_text(shape: Any) -> str:
    if shape.rank is None:
        return "of any shape"
    return f"[{', '.join('?' if size is None else str(size) for size in shape.as_list())}]"
