"""The parts of `tf.contrib` that have a replacement."""

from __future__ import annotations

import importlib
from typing import Any

from tpk_tensorflow1.missing import ESTIMATOR, finder_in

_MODULES = ("crf", "framework", "layers", "opt", "rnn", "seq2seq", "slim")
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


_missing = finder_in("tf.contrib", _MODULES, _INSTEAD)


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}") if name in _MODULES else _missing(name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
