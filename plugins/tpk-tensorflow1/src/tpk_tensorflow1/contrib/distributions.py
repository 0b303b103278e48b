"""`tf.contrib.distributions`: the distributions of tensorflow-probability, or else those of `tf.distributions`."""

from __future__ import annotations

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

try:
    from tensorflow_probability import distributions
except ImportError:
    distributions = tf.compat.v1.distributions

__getattr__ = finder_in("tf.contrib.distributions", (), distributions)
