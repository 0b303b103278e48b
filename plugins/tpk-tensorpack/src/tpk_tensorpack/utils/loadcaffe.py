"""Read Caffe models and messages without Caffe."""

from __future__ import annotations

import re
from functools import cache
from math import isqrt
from types import SimpleNamespace
from typing import Any

import numpy as np

from tpk_tensorpack.utils import logger

__all__ = ["get_caffe_pb", "load_caffe"]

# The parts of caffe.proto that weights, means and the messages around them need. V1LayerParameter is from before 2015.
_PROTO = """
message BlobShape { repeated int64 dim = 1; }
message BlobProto {
  optional int32 num = 1; optional int32 channels = 2; optional int32 height = 3; optional int32 width = 4;
  repeated float data = 5; repeated float diff = 6; optional BlobShape shape = 7; repeated double double_data = 8;
}
message Datum {
  optional int32 channels = 1; optional int32 height = 2; optional int32 width = 3; optional bytes data = 4;
  optional int32 label = 5; repeated float float_data = 6; optional bool encoded = 7;
}
message LayerParameter {
  optional string name = 1; optional string type = 2; repeated string bottom = 3; repeated string top = 4;
  repeated BlobProto blobs = 7;
}
message V1LayerParameter {
  repeated string bottom = 2; repeated string top = 3; optional string name = 4; optional int32 type = 5;
  repeated BlobProto blobs = 6;
}
message NetParameter {
  optional string name = 1; repeated V1LayerParameter layers = 2; repeated LayerParameter layer = 100;
}
"""
# V1LayerParameter.LayerType: the current names of the relevant layers.
_V1_TYPES = {3: "Concat", 4: "Convolution", 8: "Flatten", 14: "InnerProduct"}


def load_caffe(model_desc: str, model_file: str) -> dict[str, np.ndarray]:
    """Return the weights of a Caffe model in this library's layouts and names.

    These are ``conv1/W`` [height, width, in, out] and ``conv1/b`` for convolutions; ``fc1/W`` [in, out], or [height,
    width, channels, out] after a convolution; and ``bn1/mean/EMA``, ``bn1/variance/EMA``, and ``bn1/gamma`` and
    ``bn1/beta`` from the scale layer, for batch normalization.

    Caffe is not needed. Only the size of the image before a fully connected layer is not in the file: it is assumed to
    be square.

    Args:
        model_desc: the path of the description (``.prototxt``); ignored.
        model_file: the path of the weights (``.caffemodel``).

    Raises:
        ValueError: the file is not a Caffe model, or it has a fully connected layer after an image that is not square.

    Example:
        ```python
        np.savez("vgg16.npz", **load_caffe("VGG_16.prototxt", "VGG_16.caffemodel"))
        ```
    """
    pb = get_caffe_pb()
    net = pb.NetParameter()
    with open(model_file, "rb") as file:
        try:
            net.ParseFromString(file.read())
        except pb.DecodeError as error:
            raise ValueError(f"{model_file} is damaged or not a Caffe model: {error}") from error
    layers = [*net.layer] or [*net.layers]
    if not layers:
        raise ValueError(f"{model_file} is not a Caffe model: it has no layers")
    found: dict[str, np.ndarray] = {}
    for index, layer in enumerate(layers):
        found.update(_weights(layers, index, [_array(blob) for blob in layer.blobs]))
    logger.info("Model loaded from %s. Params: %s", model_file, ", ".join(sorted(found)))
    return found


def _weights(layers: list[Any], index: int, blobs: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of one layer."""
    name, kind = layers[index].name, _kind(layers[index])
    if not blobs:
        return {}
    if kind == "BatchNorm":
        mean, variance, scale = blobs[0].reshape(-1), blobs[1].reshape(-1), blobs[2].reshape(-1)[0]
        return {f"{name}/mean/EMA": mean / scale, f"{name}/variance/EMA": variance / scale}
    if kind == "Scale":
        normalization = _normalization_before(layers, index)
        return {
            f"{normalization}/{part}": blob.reshape(-1) for part, blob in zip(("gamma", "beta"), blobs, strict=False)
        }
    if kind == "Convolution":
        weights = blobs[0].transpose(2, 3, 1, 0)
    elif kind == "InnerProduct":
        weights = _fully_connected(layers, index, blobs[0].reshape(blobs[0].shape[-2:]))
    else:
        logger.warning("Ignoring the weights of layer %s: its type %s is not supported.", name, kind)
        return {}
    return {f"{name}/W": weights, **({f"{name}/b": blobs[1].reshape(-1)} if len(blobs) > 1 else {})}


def _fully_connected(layers: list[Any], index: int, weights: np.ndarray) -> np.ndarray:
    outputs, inputs = weights.shape
    channels = _channels_before(layers, index)
    if channels is None:
        return weights.T
    side = isqrt(inputs // channels)
    if channels * side * side != inputs:
        raise ValueError(
            f"layer {layers[index].name}: {inputs} inputs from {channels} channels are not a square image; for such "
            "a model, write the weights with numpy.savez where Caffe is installed"
        )
    return weights.reshape(outputs, channels, side, side).transpose(2, 3, 1, 0)


def _channels_before(layers: list[Any], index: int) -> int | None:
    """Return the number of channels of a layer's input image, or None if its input is a vector."""
    channels = 0
    for bottom in layers[index].bottom:
        # The input of an in-place layer has the same name as its output: look at earlier layers only.
        maker = next((place for place in reversed(range(index)) if bottom in layers[place].top), None)
        if maker is None:
            return None
        kind = _kind(layers[maker])
        if kind in ("InnerProduct", "Flatten"):
            return None
        made = _array(layers[maker].blobs[0]).shape[0] if kind == "Convolution" else _channels_before(layers, maker)
        if made is None:
            return None
        if _kind(layers[index]) != "Concat":
            return made
        channels += made
    return channels or None


def _normalization_before(layers: list[Any], index: int) -> str:
    for layer in reversed(layers[:index]):
        if _kind(layer) == "BatchNorm" and layers[index].bottom[0] in layer.top:
            return str(layer.name)
    raise ValueError(f"layer {layers[index].name}: a scale layer is supported only after a normalization")


def _kind(layer: Any) -> str:
    return layer.type if isinstance(layer.type, str) else _V1_TYPES.get(layer.type, str(layer.type))


def _array(blob: Any) -> np.ndarray:
    shape = [*blob.shape.dim] if blob.HasField("shape") else [blob.num, blob.channels, blob.height, blob.width]
    return np.array(blob.data or blob.double_data, np.float32).reshape(shape)


@cache
def get_caffe_pb() -> Any:
    """Return Caffe's message classes for weights, mean images and data sets.

    Returns:
        An object whose attributes are the classes `BlobProto`, `BlobShape`, `Datum`, `NetParameter`, `LayerParameter`
        and `V1LayerParameter`, and the exception `DecodeError`.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe")
    for name, fields in re.findall(r"message (\w+) {(.*?)}", _PROTO, re.DOTALL):
        message = file.message_type.add(name=name)
        for label, kind, field_name, number in re.findall(r"(\w+) (\w+) (\w+) = (\d+);", fields):
            field = message.field.add(name=field_name, number=int(number), label=f"LABEL_{label.upper()}")
            if kind[0].isupper():
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".caffe.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    # A separate pool, because Caffe itself may be imported in the same process.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    messages = pool.FindFileByName(file.name).message_types_by_name
    classes = {name: message_factory.GetMessageClass(message) for name, message in messages.items()}
    return SimpleNamespace(**classes, DecodeError=DecodeError)
