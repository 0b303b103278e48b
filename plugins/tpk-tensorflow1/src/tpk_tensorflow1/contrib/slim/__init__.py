"""`tf.contrib.slim`: the names of `tf.contrib.layers` and `tf.contrib.framework`, and networks built of these layers.

Other modules, such as ``learning`` and ``data``, come from the package tf_slim.
"""

from __future__ import annotations

from tpk_tensorflow1.contrib import framework, layers, losses, metrics
from tpk_tensorflow1.contrib.framework import *
from tpk_tensorflow1.contrib.layers import *
from tpk_tensorflow1.contrib.slim import nets
from tpk_tensorflow1.missing import finder_in

__all__ = [*framework.__all__, *layers.__all__, "layers", "losses", "metrics", "nets"]

__getattr__ = finder_in("tf.contrib.slim", __all__)
