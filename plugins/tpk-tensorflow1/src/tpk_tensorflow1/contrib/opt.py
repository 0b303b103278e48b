"""`tf.contrib.opt`: its optimizers are not available, but have replacements."""

from __future__ import annotations

from tpk_tensorflow1.missing import finder_in

__getattr__ = finder_in("tf.contrib.opt", ())
