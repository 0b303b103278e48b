"""`tf.contrib.layers`: layers with a normalizer and an activation, initializers and regularizers.

Variables have their TensorFlow 1 names: ``fully_connected/weights``, ``Conv/biases``, ``BatchNorm/moving_mean``, ….
"""

from __future__ import annotations

from tf_slim.layers import initializers, regularizers
from tf_slim.layers.initializers import *
from tf_slim.layers.regularizers import *

from tpk_tensorflow1.contrib.layers import normalization, plain, weights
from tpk_tensorflow1.contrib.layers.normalization import *
from tpk_tensorflow1.contrib.layers.plain import *
from tpk_tensorflow1.contrib.layers.weights import *
from tpk_tensorflow1.missing import finder_in

_MODULES = (initializers, normalization, plain, regularizers, weights)
__all__ = sorted(name for module in _MODULES for name in module.__all__)

__getattr__ = finder_in("tf.contrib.layers", __all__)
