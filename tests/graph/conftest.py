from __future__ import annotations

import pytest
import tensorflow as tf


@pytest.fixture
def control_flow_v1():
    """With the control flow of TensorFlow 1, a tf.cond is made of ops in the graph around it."""
    tf.compat.v1.disable_control_flow_v2()
    yield
    tf.compat.v1.enable_control_flow_v2()


@pytest.fixture(params=["control flow 1", "control flow 2"])
def control_flow(request):
    if request.param == "control flow 1":
        request.getfixturevalue("control_flow_v1")
