"""`tf.estimator`: the package tpk-estimator, if it is installed."""

from __future__ import annotations

import importlib.util

import tensorflow as _tf

from tpk_tensorflow1.missing import finder_in

# TensorFlow 2.15 is the last version with an Estimator of its own.
_has_own = hasattr(_tf.compat.v1, "estimator") and importlib.util.find_spec("tpk_estimator") is None

__getattr__ = finder_in("tf.estimator", [], *([_tf.compat.v1.estimator] if _has_own else []))
