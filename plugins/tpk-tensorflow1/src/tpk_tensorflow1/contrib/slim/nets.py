"""`tf.contrib.slim.nets`: the networks of the package tf_slim, built of the layers of `tf.contrib.layers`."""

from __future__ import annotations

from tpk_tensorflow1.missing import finder_in

__getattr__ = finder_in("tf.contrib.slim.nets", ())
