"""`tf.train`, including ``SummaryWriter`` of TensorFlow before 1.0."""

from __future__ import annotations

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

SummaryWriter = tf.compat.v1.summary.FileWriter

__getattr__ = finder_in("tf.train", ["SummaryWriter"], tf.compat.v1.train, tf.train)
