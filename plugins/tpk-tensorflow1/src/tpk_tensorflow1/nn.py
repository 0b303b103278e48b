"""`tf.nn`, including ``rnn_cell``."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import tensorflow as _tf

from tpk_tensorflow1.missing import further_name

_MODULES = {"rnn_cell": "tpk_tensorflow1.rnn_cell", "seq2seq": "tpk_tensorflow1.contrib.legacy_seq2seq"}
_BEFORE_1_0 = {
    "bidirectional_rnn": "static_bidirectional_rnn",
    "deconv2d": "conv2d_transpose",
    "rnn": "static_rnn",
    "state_saving_rnn": "static_state_saving_rnn",
}
_TRANSPOSED = ("atrous_conv2d_transpose", "conv1d_transpose", "conv2d_transpose")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    name = _BEFORE_1_0.get(name, name)
    for module in (_tf.compat.v1.nn, _tf.nn):
        if hasattr(module, name):
            return _transposed(name) if name in _TRANSPOSED else getattr(module, name)
    return further_name("tf.nn", name, __dir__())


def __dir__() -> list[str]:
    return sorted({*_MODULES, *dir(_tf.compat.v1.nn), *dir(_tf.nn)})


@functools.cache
def _transposed(name: str) -> Any:
    """Return a transposed convolution whose result has all static sizes of `output_shape`.

    In TensorFlow 2, it lacks the size of the batch if that of the input is unknown.
    """
    function = getattr(_tf.compat.v1.nn, name)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def convolved(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        shape = signature.bind(*args, **kwargs).arguments["output_shape"]
        is_tensor = _tf.is_tensor(shape)
        result.set_shape(
            _tf.get_static_value(shape) if is_tensor else [None if _tf.is_tensor(size) else size for size in shape]
        )
        return result

    return convolved
