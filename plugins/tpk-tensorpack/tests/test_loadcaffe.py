"""Caffe models, in files written without Caffe."""

from __future__ import annotations

import numpy as np
import pytest
from tpk_tensorpack.utils.loadcaffe import get_caffe_pb, load_caffe


@pytest.fixture
def weights():
    """The arrays of each layer with weights, in Caffe's layouts."""
    rng = np.random.RandomState(0)
    shapes = {
        "conv1": [(4, 3, 3, 2), (4,)],
        "bn1": [(4,), (4,), (1,)],
        "scale1": [(4,), (4,)],
        "conv2": [(2, 3, 1, 1)],
        "fc1": [(5, 6 * 9), (5,)],
        "fc2": [(2, 5), (2,)],
    }
    return {name: [rng.rand(*shape).astype("float32") for shape in of_layer] for name, of_layer in shapes.items()}


def model(weights, path, layers):
    """Write the weights of layers, given by name, type, bottoms and top."""
    net = get_caffe_pb().NetParameter(name="net")
    for name, kind, bottoms, top in layers:
        layer = net.layer.add(name=name, type=kind, bottom=bottoms, top=[top])
        for array in weights.get(name, []):
            blob = layer.blobs.add(data=array.reshape(-1).tolist())
            blob.shape.dim.extend(array.shape)
    path.write_bytes(net.SerializeToString())
    return str(path)


LAYERS = [
    ("data", "Input", [], "data"),
    ("conv1", "Convolution", ["data"], "conv1"),
    ("bn1", "BatchNorm", ["conv1"], "conv1"),
    ("scale1", "Scale", ["conv1"], "conv1"),
    ("conv2", "Convolution", ["data"], "conv2"),
    ("both", "Concat", ["conv1", "conv2"], "both"),
    ("pool", "Pooling", ["both"], "pool"),
    ("fc1", "InnerProduct", ["pool"], "fc1"),
    ("relu", "ReLU", ["fc1"], "fc1"),
    ("fc2", "InnerProduct", ["fc1"], "fc2"),
]


def test_weights_have_the_layouts_of_tensorflow(weights, tmp_path):
    found = load_caffe("unused.prototxt", model(weights, tmp_path / "net", LAYERS))
    mean, variance, scale = weights["bn1"]
    expected = {
        "conv1/W": weights["conv1"][0].transpose(2, 3, 1, 0),
        "conv1/b": weights["conv1"][1],
        "conv2/W": weights["conv2"][0].transpose(2, 3, 1, 0),
        "bn1/mean/EMA": mean / scale,
        "bn1/variance/EMA": variance / scale,
        "bn1/gamma": weights["scale1"][0],
        "bn1/beta": weights["scale1"][1],
        "fc1/W": weights["fc1"][0].reshape(5, 6, 3, 3).transpose(2, 3, 1, 0),
        "fc1/b": weights["fc1"][1],
        "fc2/W": weights["fc2"][0].T,
        "fc2/b": weights["fc2"][1],
    }
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_models_of_before_2015_are_read(weights, tmp_path):
    net = get_caffe_pb().NetParameter()
    for name, kind, bottom, shape in [("conv1", 4, "data", (4, 3, 3, 2)), ("fc2", 14, "drop", (1, 1, 2, 16))]:
        layer = net.layers.add(name=name, type=kind, bottom=[bottom], top=[name])
        fields = dict(zip(("num", "channels", "height", "width"), shape, strict=True))
        layer.blobs.add(data=np.arange(np.prod(shape)).tolist(), **fields)
        if name == "conv1":
            net.layers.add(name="drop", type=6, bottom=["conv1"], top=["drop"])
    (tmp_path / "net").write_bytes(net.SerializeToString())
    found = load_caffe("", str(tmp_path / "net"))
    assert {name: value.shape for name, value in found.items()} == {"conv1/W": (3, 2, 3, 4), "fc2/W": (2, 2, 4, 2)}
    assert found["fc2/W"][0, 1, 0, 1] == 17


def test_layers_that_nothing_here_stands_for_are_left_out_with_a_warning(weights, tmp_path, log_dir):
    layers = [("conv1", "Deconvolution", ["data"], "conv1"), ("fc2", "InnerProduct", ["x"], "fc2")]
    assert set(load_caffe("", model(weights, tmp_path / "net", layers))) == {"fc2/W", "fc2/b"}
    assert (
        "Ignoring the weights of layer conv1: its type Deconvolution is not supported"
        in (log_dir / "log.log").read_text()
    )


@pytest.mark.parametrize(
    ("layers", "match"),
    [
        (
            [("conv1", "Convolution", ["data"], "conv1"), ("fc2", "InnerProduct", ["conv1"], "fc2")],
            "layer fc2: 5 inputs from 4 channels are not a square image",
        ),
        (
            [("scale1", "Scale", ["data"], "data")],
            "layer scale1: a scale layer is supported only after a normalization",
        ),
        ([], "net is not a Caffe model: it has no layers"),
    ],
)
def test_models_that_cannot_be_told_are_errors(weights, tmp_path, layers, match):
    with pytest.raises(ValueError, match=match):
        load_caffe("", model(weights, tmp_path / "net", layers))


def test_a_file_that_is_no_model_is_an_error_that_names_it(tmp_path):
    (tmp_path / "net").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="net is damaged or not a Caffe model"):
        load_caffe("", str(tmp_path / "net"))
