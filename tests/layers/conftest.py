"""The oracle of the layers' tests, `tf.compat.v1.layers` of TensorFlow 2.15, the last that has it; and control flow."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

NAMES = (
    *("average_pooling1d", "average_pooling2d", "average_pooling3d", "batch_normalization", "conv1d", "conv2d"),
    *("conv2d_transpose", "conv3d", "conv3d_transpose", "dense", "dropout", "flatten", "max_pooling1d"),
    *("max_pooling2d", "max_pooling3d", "separable_conv1d", "separable_conv2d"),
)


@pytest.fixture(scope="session")
def tf_layers() -> SimpleNamespace:
    """`tf.compat.v1.layers`, with the default initializers that it has in TF1 behaviour."""
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    if version >= (2, 16):
        pytest.skip(f"TensorFlow {tf.__version__} has no tf.compat.v1.layers; it went with Keras 2 in 2.16")
    return SimpleNamespace(**{name: _in_tf1(getattr(tf.compat.v1.layers, name)) for name in NAMES})


@pytest.fixture(params=["control flow 1", "control flow 2"])
def control_flow(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "control flow 2":
        yield
        return
    tf.compat.v1.disable_control_flow_v2()
    yield
    tf.compat.v1.enable_control_flow_v2()


def _in_tf1(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Build in TF1 behaviour: in TF2 behaviour, Keras' default initializers have other seeds in each run."""
    from tensorflow.python import tf2

    @functools.wraps(layer)
    def wrapped(*args: Any, **options: Any) -> Any:
        tf2.disable()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return layer(*args, **options)
        finally:
            tf2.enable()

    return wrapped
