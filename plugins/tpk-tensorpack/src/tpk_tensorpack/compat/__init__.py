"""tensorpack's `compat`: the TensorFlow 1 API, with any installed version."""

from __future__ import annotations

import tensorflow as tf
import tpk_tensorflow1 as tfv1

from tpk_tensorpack.compat.tensor_spec import TensorSpec

__all__ = ["TensorSpec", "is_tfv2", "tfv1"]


def is_tfv2() -> bool:
    """Return whether this process uses TensorFlow 2 behavior."""
    return bool(tf.compat.v1.executing_eagerly_outside_functions())
