"""The parts of `tf.contrib` that have a replacement."""

from __future__ import annotations

import importlib
from typing import Any

from tpk_tensorflow1.missing import ESTIMATOR, no_such_name

_MODULES = ("framework", "layers", "opt", "rnn", "seq2seq", "slim")
_INSTEAD = {
    "cudnn_rnn": "tf.nn.rnn_cell.LSTMCell, with tf.nn.dynamic_rnn",
    "data": "tf.data.experimental",
    "distributions": "tensorflow_probability",
    "estimator": ESTIMATOR,
    "graph_editor": "tf.graph_util",
    "image": "tf.image",
    "learn": ESTIMATOR,
    "losses": "tf.losses",
    "metrics": "tf.metrics",
    "nccl": 'tpk.make_trainer("replicated")',
    "quantize": "tensorflow_model_optimization",
    "summary": "tf.summary",
    "tensorboard": "tensorboard.plugins",
    "tpu": ESTIMATOR,
    "training": "tf.train",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    raise no_such_name("tf.contrib", name, _MODULES, _INSTEAD.get(name))


def __dir__() -> list[str]:
    return sorted(_MODULES)
