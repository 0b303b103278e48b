from __future__ import annotations

import importlib
import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf


@pytest.fixture(params=["tf.keras", "tf_keras"])
def keras(request):
    """The Keras of TensorFlow, and Keras 2 where that is another one."""
    if request.param == "tf.keras":
        return importlib.import_module(tf.keras.Model.__module__.partition(".")[0])
    return pytest.importorskip("tf_keras")


@pytest.fixture
def is_keras3(keras):
    return keras.__version__.startswith("3.")


@pytest.fixture
def keras3(keras, is_keras3):
    if not is_keras3:
        pytest.skip("of Keras 3 only")
    return keras


@pytest.fixture
def keras2(keras, is_keras3):
    if is_keras3:
        pytest.skip("of Keras 2 only")
    return keras
