"""`tf.contrib.learn`: data sets and the preprocessing of text."""

from __future__ import annotations

from tpk_tensorflow1.contrib.learn import datasets, preprocessing
from tpk_tensorflow1.missing import finder_in

__all__ = ["datasets", "preprocessing"]

__getattr__ = finder_in("tf.contrib.learn", __all__)
