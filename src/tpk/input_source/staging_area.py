"""A place on a device where tensors wait for the step that uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class StagingArea:
    """TensorFlow's staging area on a device, and one on the CPU for text, which no other device holds.

    Args:
        tensors: what is put into it.
        device: a device string; None for that of the scope around.
        name: the scope of its ops.

    Attributes:
        tensors: what is taken out of it, in the order of those that are put in.
        stage_ops: put one value of each tensor in.
        take_ops: take one value of each tensor out; they wait for it.
        clear_ops: throw away what is in it.
    """

    def __init__(self, tensors: Sequence[Any], device: str | None, name: str) -> None:
        self.stage_ops: list[Any] = []
        self.take_ops: list[Any] = []
        self.clear_ops: list[Any] = []
        self.tensors: list[Any] = [None] * len(tensors)
        texts = [place for place, tensor in enumerate(tensors) if tensor.dtype == tf.string]
        others = [place for place in range(len(tensors)) if place not in texts]
        with tf.name_scope(name) as scope:
            for places, where in ((others, device), (texts, "/cpu:0")):
                if places and where is None:
                    self._build([tensors[place] for place in places], places, scope)
                elif places:
                    with tf.device(where):
                        self._build([tensors[place] for place in places], places, scope)

    def _build(self, tensors: list[Any], places: list[int], scope: str) -> None:
        # The name is what makes the ops share one area; that of an op is its alone in the graph.
        shared_name = tf.compat.v1.get_default_graph().unique_name(f"{scope}area")
        dtypes = [tensor.dtype for tensor in tensors]
        stage = tf.raw_ops.Stage(values=tensors, shared_name=shared_name, name="stage")
        with tf.compat.v1.colocate_with(stage):
            taken = tf.raw_ops.Unstage(dtypes=dtypes, shared_name=shared_name, name="take")
            clear = tf.raw_ops.StageClear(dtypes=dtypes, shared_name=shared_name, name="clear")
        for place, tensor, given in zip(places, taken, tensors, strict=True):
            tensor.set_shape(given.shape)
            self.tensors[place] = tensor
        self.stage_ops.append(stage)
        self.take_ops.append(taken[0].op)
        self.clear_ops.append(clear)
