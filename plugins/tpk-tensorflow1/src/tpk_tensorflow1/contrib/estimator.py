"""`tf.contrib.estimator`: heads and session hooks."""

from __future__ import annotations

from tpk_tensorflow1.missing import finder_in

__getattr__ = finder_in("tf.contrib.estimator", [])
