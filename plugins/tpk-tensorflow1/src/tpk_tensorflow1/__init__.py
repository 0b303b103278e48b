"""TensorFlow 1 on TensorFlow 2: ``import tpk_tensorflow1 as tf``.

A name is looked up in this package first (``layers``, ``nn.rnn_cell`` and ``contrib``, which TensorFlow 2 has dropped),
then in `tf.compat.v1`, then in `tf`, so names that exist in both versions have their TensorFlow 1 meaning.
`python -m tpk_tensorflow1 script.py` runs a script whose imports of ``tensorflow``, ``tensorflow.compat.v1`` and
``tensorflow.contrib`` are replaced by this package.
"""

from __future__ import annotations

import importlib
from typing import Any

from tpk_tensorflow1.missing import further_name
from tpk_tensorflow1.names import MODULES

_OWN = ("compat", "contrib", "estimator", "examples", "image", "layers", "nn", "train")


def __getattr__(name: str) -> Any:
    # Python itself looks up names such as `__path__`.
    if name.startswith("__") and name != "__version__":
        raise AttributeError(name)
    if name in _OWN or name in MODULES:
        return importlib.import_module(MODULES.get(name, f"{__name__}.{name}"))
    before1 = importlib.import_module(f"{__name__}.before1").NAMES
    if name in before1:
        return before1[name]
    tf = importlib.import_module("tensorflow")
    if name == "Tensor" and not tf.executing_eagerly():
        with tf.Graph().as_default():
            return type(tf.constant(0))  # a subclass, but scripts ask whether ``type(x) is tf.Tensor``
    for module in (tf.compat.v1, tf):
        if hasattr(module, name):
            return getattr(module, name)
    return further_name("tf", name, __dir__())


def __dir__() -> list[str]:
    tf = importlib.import_module("tensorflow")
    return sorted({*_OWN, *dir(tf.compat.v1), *dir(tf)})
