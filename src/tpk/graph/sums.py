"""Sums of tensors whose bits do not depend on chance."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def sum_in_order(tensors: Sequence[Any]) -> Any:
    """Return the sum of tensors, added one after the other, so that its bits are the same each time.

    `tf.add_n` may begin with whichever tensor's memory it can take for the sum, which is left to chance.

    Args:
        tensors: one or more dense tensors of one shape and dtype.
    """
    # Of one or two there is only one order.
    return tf.add_n(tensors) if len(tensors) < 3 else functools.reduce(tf.add, tensors)
