"""`tf.TensorSpec`, which exists since TensorFlow 1.14."""

from __future__ import annotations

import tensorflow as tf

TensorSpec = tf.TensorSpec

__all__ = ["TensorSpec"]
