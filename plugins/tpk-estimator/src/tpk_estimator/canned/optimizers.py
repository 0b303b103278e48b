"""The optimizers of canned estimators, which may be given by name."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

_OPTIMIZERS = {
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": v1.train.AdamOptimizer,
    "Ftrl": v1.train.FtrlOptimizer,
    "RMSProp": v1.train.RMSPropOptimizer,
    "SGD": v1.train.GradientDescentOptimizer,
}


def as_optimizer(optimizer: Any, learning_rate: float) -> Any:
    """Return an optimizer.

    Args:
        optimizer: an optimizer, a function without arguments that returns one, or a name.
        learning_rate: the learning rate of an optimizer given by name.

    Raises:
        ValueError: if it is something else.
    """
    if isinstance(optimizer, str):
        if optimizer not in _OPTIMIZERS:
            raise ValueError(f"there is no optimizer called {optimizer!r}: use one of {', '.join(_OPTIMIZERS)}.")
        return _OPTIMIZERS[optimizer](learning_rate)
    if callable(optimizer):
        optimizer = optimizer()
    if not isinstance(optimizer, v1.train.Optimizer):
        raise ValueError(f"optimizer must be a tf.compat.v1.train.Optimizer, but got {optimizer!r}.")
    return optimizer
