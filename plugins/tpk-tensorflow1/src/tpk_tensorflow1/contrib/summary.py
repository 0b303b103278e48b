"""`tf.contrib.summary`: summaries that ops write to a file themselves."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from tpk_tensorflow1.missing import finder_in

__all__ = ["all_summary_ops"]

all_summary_ops = tf.compat.v1.summary.all_v2_summary_ops

__getattr__ = finder_in("tf.contrib.summary", __all__, summary_ops_v2)
