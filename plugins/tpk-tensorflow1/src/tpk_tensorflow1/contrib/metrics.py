"""`tf.contrib.metrics`, from tf_slim: the functions of `tf.metrics`, but with predictions before labels, and others."""

from __future__ import annotations

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in, own_names

confusion_matrix = tf.compat.v1.confusion_matrix
set_difference = tf.sets.difference
set_intersection = tf.sets.intersection
set_size = tf.sets.size
set_union = tf.sets.union

__all__ = own_names(__name__)

__getattr__ = finder_in("tf.contrib.metrics", __all__)
