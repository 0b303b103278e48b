"""Input sources, which feed data into the graph."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import tensorflow as tf
import tpk_zmq

import tpk
from tpk.callbacks import RunOp
from tpk_tensorpack.missing import not_here
from tpk_tensorpack.tfutils.summary import add_moving_summary
from tpk_tensorpack.utils.argtools import log_once

__all__ = [
    "BatchQueueInput",
    "DummyConstantInput",
    "FeedInput",
    "FeedfreeInput",
    "PlaceholderInput",
    "QueueInput",
    "StagingInput",
    "TFDatasetInput",
    "TensorInput",
    "ZMQInput",
]

__getattr__ = not_here(__name__, {"EnqueueThread": "QueueInput, which fills its queue itself"})


class Size(int):
    """A size that can also be called, because ``InputSource.size`` is a method in tensorpack."""

    def __call__(self) -> int:
        return int(self)


class _InputSource(tpk.InputSource):
    @property
    def size(self) -> int | None:
        """The number of datapoints in a pass, or None if it is unknown. ``size()`` also returns it."""
        size = super().size
        return None if size is None else Size(size)


class FeedfreeInput(_InputSource):
    """Base class of input sources that do not use feeds."""


class PlaceholderInput(_InputSource):
    """Placeholders for the caller to feed."""

    is_fed = True

    def _setup(self) -> list[Any]:
        self._tensors = [tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name) for spec in self.signature]
        return []

    def _get_input_tensors(self) -> list[Any]:
        return list(self._tensors)


class _Converter(tpk.FeedInput.converter):
    """Drops components for which there is no input, and takes whole floats as integers."""

    def __init__(self, signature: tuple[Any, ...], owner: str) -> None:
        super().__init__(signature, owner)
        self._dtypes = [spec.dtype for spec in signature]

    def __call__(self, datapoint: Any, index: int) -> list[Any]:
        if isinstance(datapoint, (list, tuple)):
            if len(datapoint) > len(self._dtypes):
                log_once(
                    f"{self.owner}: the components after the first {len(self._dtypes)} have no input, and are dropped",
                    "warn",
                )
            datapoint = list(map(_whole, datapoint, self._dtypes))
        return super().__call__(datapoint, index)


def _whole(value: Any, dtype: Any) -> Any:
    if dtype.is_integer and isinstance(value, np.ndarray | np.floating) and value.dtype.kind == "f":
        cast = value.astype(dtype.as_numpy_dtype)
        return cast if np.array_equal(cast, value) else value
    return value


class FeedInput(_InputSource, tpk.FeedInput):
    """Feed a datapoint in each step; see `tpk.FeedInput`.

    Args:
        ds: a data flow.
        infinite: whether to restart the data flow when it is exhausted.
    """

    converter = _Converter

    def __init__(self, ds: Any, infinite: bool = True) -> None:
        super().__init__(ds, infinite)


class _ReportsQueueSize(FeedfreeInput):
    """Reports the moving average of the queue's size, except in evaluations, where no step would update it."""

    converter = _Converter
    queue: Any
    _summarizes = True

    def _setup(self) -> list[Any]:
        callbacks = super()._setup()
        if not self._summarizes:
            return callbacks
        with tf.device("/cpu:0"):
            with tf.compat.v1.name_scope(f"{type(self).__name__}/"):
                # Op names must differ by more than case.
                size = tf.cast(self.queue.size(name="current"), tf.float32, name="queue_size")
            averages = add_moving_summary(size, collection=None, decay=0.5)
        updates = [RunOp(each.op, run_before=False, run_as_trigger=False, run_step=True) for each in averages]
        return [*callbacks, *updates]

    def end_after_each_pass(self) -> bool:
        self._summarizes = False
        return super().end_after_each_pass()


class QueueInput(_ReportsQueueSize, tpk.QueueInput):
    """Take each datapoint from a queue that a thread fills; see `tpk.QueueInput`.

    The moving average of the queue's size is reported as ``QueueInput/queue_size``: 0 means that the data is too slow
    for the model.

    Args:
        ds: a data flow.
        queue: the queue to fill; by default a new one with a capacity of 50 datapoints.
    """

    def __init__(self, ds: Any, queue: Any = None) -> None:
        super().__init__(ds, queue)


class BatchQueueInput(_ReportsQueueSize, tpk.BatchQueueInput):
    """Take batches from a queue of single datapoints; see `tpk.BatchQueueInput`.

    Args:
        ds: a data flow of single datapoints.
        batch_size: the number of datapoints in a batch.
        queue: the queue to fill.
    """

    def __init__(self, ds: Any, batch_size: int, queue: Any = None) -> None:
        super().__init__(ds, batch_size, queue)


class DummyConstantInput(FeedfreeInput, tpk.DummyConstantInput):
    """Use the same values in every step; see `tpk.DummyConstantInput`.

    Args:
        shapes: the shape of each input.
    """


class TensorInput(FeedfreeInput, tpk.TensorInput):
    """Use the tensors that a function returns; see `tpk.TensorInput`.

    The function runs in the name scope ``TensorInput``, the same one for all towers.
    """

    _scope = "TensorInput"

    def _get_input_tensors(self) -> list[Any]:
        with tf.compat.v1.name_scope(self._scope) as self._scope:
            return super()._get_input_tensors()


class TFDatasetInput(FeedfreeInput, tpk.TFDatasetInput):
    """Use a `tf.data.Dataset`; see `tpk.TFDatasetInput`.

    Args:
        dataset: a `tf.data.Dataset` or a data flow.
    """

    @staticmethod
    def dataflow_to_dataset(df: Any, types: Sequence[Any]) -> Any:
        """Convert a data flow to a `tf.data.Dataset`.

        Args:
            df: the data flow.
            types: the dtype of each component.
        """

        def points() -> Any:
            df.reset_state()
            yield from (tuple(point) for point in df)

        return tf.compat.v1.data.Dataset.from_generator(points, tuple(types))


class ZMQInput(FeedfreeInput, tpk_zmq.ZMQInput):
    """Receive datapoints from other processes; see `tpk_zmq.ZMQInput`.

    Args:
        end_point: the address to receive from.
        hwm: the maximum number of waiting datapoints.
        bind: whether this side binds the address.
    """

    def __init__(self, end_point: str, hwm: int, bind: bool = True) -> None:
        super().__init__(end_point, hwm, bind)


class StagingInput(FeedfreeInput, tpk.StagingInput):
    """Copy the datapoints of the next step to the device in advance; see `tpk.StagingInput`.

    Args:
        input: an input source.
        nr_stage: the number of datapoints to stage per tower.
        device: the device to stage on; by default the device of each tower.
    """

    def __init__(self, input: tpk.InputSource, nr_stage: int = 1, device: str | None = None) -> None:
        super().__init__(input, nr_stage)
        self._device = device

    def place_on(self, devices: Sequence[str]) -> None:
        """Set the devices of the towers, unless they were given."""
        if self._device is None:
            super().place_on(devices)

    def _get_input_tensors(self) -> list[Any]:
        with nullcontext() if self._device is None else tf.device(self._device):
            return super()._get_input_tensors()
