"""Input sources: how data enters the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf
import tpk_zmq

import tpk
from tpk.callbacks.graph_ops import RunOp
from tpk_tensorpack.missing import not_here
from tpk_tensorpack.tfutils.summary import add_moving_summary

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

__getattr__ = not_here(
    __name__,
    {
        "EnqueueThread": "QueueInput, which fills its queue itself",
    },
)


class Size(int):
    """A size that can also be called, because ``InputSource.size`` is a method in tensorpack."""

    def __call__(self) -> int:
        return int(self)


class _InputSource(tpk.InputSource):
    @property
    def size(self) -> int | None:
        """The number of datapoints of a pass; None if it is unknown. ``size()`` returns it, too."""
        size = super().size
        return None if size is None else Size(size)


class FeedfreeInput(_InputSource):
    """The base of input sources that do not use feeds."""


class PlaceholderInput(_InputSource):
    """Placeholders, which whoever runs the graph feeds."""

    is_fed = True

    def _setup(self) -> list[Any]:
        self._tensors = [tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name) for spec in self.signature]
        return []

    def _get_input_tensors(self) -> list[Any]:
        return list(self._tensors)

    def _reset_state(self) -> None:
        pass


class FeedInput(_InputSource, tpk.FeedInput):
    """Feeds a datapoint along with each step; see `tpk.FeedInput`.

    Args:
        ds: a data flow.
        infinite: whether it begins anew when it is exhausted.
    """

    def __init__(self, ds: Any, infinite: bool = True) -> None:
        super().__init__(ds, infinite)


class QueueInput(FeedfreeInput, tpk.QueueInput):
    """Takes each datapoint from a queue that a thread fills; see `tpk.QueueInput`.

    A moving average of how many datapoints are in it is reported as ``QueueInput/queue_size``: 0 says that the data is
    too slow for the model.

    Args:
        ds: a data flow.
        queue: a queue to fill; by default one of 50 datapoints is made.
    """

    _summarizes = True

    def __init__(self, ds: Any, queue: Any = None) -> None:
        super().__init__(ds, queue)

    def _setup(self) -> list[Any]:
        callbacks = super()._setup()
        return [*callbacks, *_queue_size_summary(self)] if self._summarizes else callbacks

    def end_after_each_pass(self) -> bool:
        """Repeat nothing: it serves an evaluation, in which no step maintains an average."""
        self._summarizes = False
        return super().end_after_each_pass()


class BatchQueueInput(FeedfreeInput, tpk.BatchQueueInput):
    """Takes batches from a queue of single datapoints; see `tpk.BatchQueueInput`.

    Args:
        ds: a data flow of single datapoints.
        batch_size: how many make a batch.
        queue: a queue to fill.
    """

    _summarizes = True

    def __init__(self, ds: Any, batch_size: int, queue: Any = None) -> None:
        super().__init__(ds, batch_size, queue)

    def _setup(self) -> list[Any]:
        callbacks = super()._setup()
        return [*callbacks, *_queue_size_summary(self)] if self._summarizes else callbacks

    def end_after_each_pass(self) -> bool:
        """Repeat nothing: it serves an evaluation, in which no step maintains an average."""
        self._summarizes = False
        return super().end_after_each_pass()


def _queue_size_summary(source: Any) -> list[Any]:
    with tf.device("/cpu:0"):
        with tf.compat.v1.name_scope(f"{type(source).__name__}/"):
            # Names of ops differ by more than by their case.
            size = tf.cast(source.queue.size(name="current"), tf.float32, name="queue_size")
        averages = add_moving_summary(size, collection=None, decay=0.5)
    return [RunOp(average.op, run_before=False, run_as_trigger=False, run_step=True) for average in averages]


class DummyConstantInput(FeedfreeInput, tpk.DummyConstantInput):
    """The same numbers in each step; see `tpk.DummyConstantInput`.

    Args:
        shapes: a shape for each input.
    """

    def __init__(self, shapes: Sequence[Sequence[int]]) -> None:
        super().__init__(shapes)


class TensorInput(FeedfreeInput, tpk.TensorInput):
    """Tensors that a function makes; see `tpk.TensorInput`."""

    def __init__(self, get_tensor_fn: Callable[[], Any], size: int | None = None) -> None:
        super().__init__(get_tensor_fn, size)


class TFDatasetInput(FeedfreeInput, tpk.TFDatasetInput):
    """A `tf.data.Dataset`; see `tpk.TFDatasetInput`.

    Args:
        dataset: it, or a data flow.
    """

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset)

    @staticmethod
    def dataflow_to_dataset(df: Any, types: Sequence[Any]) -> Any:
        """Return a `tf.data.Dataset` of the datapoints of a data flow.

        Args:
            df: the data flow.
            types: the dtype of each component.
        """

        def points() -> Any:
            df.reset_state()
            yield from (tuple(point) for point in df)

        return tf.compat.v1.data.Dataset.from_generator(points, tuple(types))


class ZMQInput(FeedfreeInput, tpk_zmq.ZMQInput):
    """Takes datapoints that other processes send; see `tpk_zmq.ZMQInput`.

    Args:
        end_point: where they are sent to.
        hwm: how many may wait.
        bind: whether this side binds.
    """

    def __init__(self, end_point: str, hwm: int, bind: bool = True) -> None:
        super().__init__(end_point, hwm, bind)


class StagingInput(FeedfreeInput, tpk.StagingInput):
    """Has the datapoints of the next step on the device when it begins; see `tpk.StagingInput`.

    Args:
        input: an input source.
        nr_stage: how many datapoints each tower has in advance.
        device: where they wait; by default on the devices of the towers.
    """

    def __init__(self, input: tpk.InputSource, nr_stage: int = 1, device: str | None = None) -> None:
        super().__init__(input, nr_stage)
        self._device = device

    def place_on(self, devices: Sequence[str]) -> None:
        """Say where the towers are, unless that was chosen."""
        if self._device is None:
            super().place_on(devices)

    def _get_input_tensors(self) -> list[Any]:
        with nullcontext() if self._device is None else tf.device(self._device):
            return super()._get_input_tensors()
