"""`tf.contrib.losses`, from tf_slim: the functions of `tf.losses`, but with predictions before labels."""

from __future__ import annotations

from tpk_tensorflow1.missing import finder_in

__getattr__ = finder_in("tf.contrib.losses", ())
