"""Files of TensorFlow itself, with the names that it has moved to other files since."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops

from tpk_tensorflow1.missing import finder_in

v1 = tf.compat.v1

__getattr__ = finder_in("tf.python", (), ops, control_flow_ops, v1, v1.graph_util, v1.train)
