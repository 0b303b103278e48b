"""TensorFlow as the scripts of TensorFlow 1 know it, on today's TensorFlow.

What a script imports as ``tensorflow``, ``tensorflow.compat.v1`` or ``tensorflow.contrib`` is this package. A name is
looked up here first (``layers``, ``nn.rnn_cell``, ``contrib``, which today's TensorFlow has no more), then in
`tf.compat.v1`, then in `tf`: where both have it, a script gets the meaning of TensorFlow 1.
"""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as _tf

from tpk_tensorpack.tensorflow1.missing import no_such_name

_OWN = ("compat", "contrib", "layers", "nn")


def __getattr__(name: str) -> Any:
    if name in _OWN:
        return importlib.import_module(f"{__name__}.{name}")
    for module in (_tf.compat.v1, _tf):
        try:
            return getattr(module, name)
        except AttributeError:
            pass
    raise no_such_name("tf", name, dir(_tf.compat.v1))


def __dir__() -> list[str]:
    return sorted({*_OWN, *dir(_tf.compat.v1), *dir(_tf)})
