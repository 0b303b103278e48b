"""`tf.contrib.training`: hyperparameters. The functions for training and evaluation come from the package tf_slim."""

from __future__ import annotations

from tpk_tensorflow1.contrib.training.hparam import HParams, parse_values
from tpk_tensorflow1.missing import finder_in

__all__ = ["HParams", "parse_values"]

__getattr__ = finder_in("tf.contrib.training", __all__)
