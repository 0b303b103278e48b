"""Files of TensorFlow itself, with the names that it has moved to other files since."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.client._pywrap_events_writer import EventsWriter as EventsWriter
from tensorflow.python.framework import ops, tensor_util
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.util import nest

from tpk_tensorflow1.missing import finder_in

v1 = tf.compat.v1
is_sequence = nest.is_nested

__getattr__ = finder_in("tf.python", (), ops, tensor_util, control_flow_ops, nest, v1, v1.graph_util, v1.train)
