"""`tf.data.Dataset` as a source of data."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.dataflow.base import flow_length, length_of_share, seed_dataflow
from tpk.dataflow.position import Position
from tpk.errors import ConfigError, InputError
from tpk.graph.steps import ops_run_for
from tpk.input_source.base import ConsumedCounter, InputSource, InputStartStop, is_error_source
from tpk.input_source.hang_watcher import check_warn_after, hang_watcher
from tpk.input_source.meter import GraphMeter
from tpk.input_source.stream import DatapointStream
from tpk.input_source.tensor import match_tensors
from tpk.plugin.callback import Callback
from tpk.tf_internals import variant_of

logger = logging.getLogger(__name__)

# How far `tf.data` may have called the generator of a flow ahead of what the steps have taken.
_READ_AHEAD = 64
_STOP_TIMEOUT = 10.0
"""Seconds that the user's data code has to finish its datapoint when the data is to stop."""


class TFDatasetInput(InputSource):
    """Takes each datapoint from a `tf.data.Dataset`.

    A dataset belongs to the graph in which it was made, and a trainer has a graph of its own; so give a
    function that makes the dataset. It is called inside the graph.

    A resumed run goes on after the elements that were used: a dataset makes them again and skips them, so one that
    shuffles needs a seed; a dataflow goes on by its own position.

    Args:
        dataset: a function that returns a `tf.data.Dataset`, a dataset that was made in the trainer's graph,
            or a dataflow, which goes through `tf.data.Dataset.from_generator`. The elements are tuples by
            position or dicts by name.
        infinite: whether the dataset is started again when it is exhausted. Otherwise the training ends then.
        size: how many elements make a pass over the data. By default the length of the flow, or the dataset's
            `cardinality`, which is known only from `before_train` on.
        warn_after: seconds in which a dataflow has to deliver a datapoint; else a warning tells where its code is,
            and again after twice that time.

    Raises:
        ConfigError: `warn_after` is not positive.
        InputError: (at `setup`) it is no dataset, belongs to another graph, or has other elements than the
            signature.

    Example:
        ```python
        def dataset():
            return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(1000).batch(32).prefetch(2)

        source = TFDatasetInput(dataset)
        ```
    """

    def __init__(self, dataset: Any, infinite: bool = True, size: int | None = None, warn_after: float = 60.0) -> None:
        self.dataset = dataset
        self.infinite = infinite
        self._warn_after = check_warn_after(warn_after, type(self).__name__)
        self._stream: DatapointStream | None = None
        if isinstance(dataset, Iterable) and not isinstance(dataset, tf.data.Dataset):
            self._stream = DatapointStream(dataset, infinite=infinite, owner=type(self).__name__)
            size = flow_length(dataset) if size is None else size
        self._size = size
        self._share = (0, 1)
        self._first: int | None = None
        self._must_end = False
        self._loaded: Mapping[str, Any] | None = None
        self._counter: ConsumedCounter | None = None
        self._get_next_ops: list[Any] = []
        self._session: Any = None
        self._elements: StreamElements | None = None

    @property
    def size(self) -> int | None:
        """How many elements make a pass over the data, or None as long as that is unknown."""
        return self._size

    def end_after_each_pass(self) -> bool:
        """Do not start the dataset again when it is exhausted; `start` refuses one that repeats itself for ever."""
        self.infinite, self._must_end = False, True
        if self._stream is not None:
            self._stream.infinite = False
        return True

    @property
    def position(self) -> Position | None:
        """The position of a dataflow; a dataset has none."""
        return None if self._stream is None else self._stream.position

    def shard(self, index: int, count: int) -> None:
        """Take only a share: of a dataflow as `DataFlow.shard` makes it, of a dataset by its own `shard`."""
        if self._stream is not None:
            self._stream.shard(index, count)
        if self._size is not None:
            self._size = length_of_share(self._size, index, count)
        self._share = (index, count)

    def keep_first(self, count: int) -> None:
        """Keep the first elements in memory: of a dataset by its own `take` and `cache`."""
        if self._stream is not None:
            self._stream.keep_first(count)
        self._size = count if self._size is None else min(self._size, count)
        self._first = count

    def seed(self, seed: int) -> None:
        """Seed a dataflow; the seeds of a dataset are the user's."""
        if self._stream is not None:
            seed_dataflow(self._stream.flow, seed)

    @property
    def consumed(self) -> int:
        """How many elements steps have consumed."""
        return 0 if self._counter is None else self._counter.value

    def state_after(self, count: int) -> dict[str, Any]:
        """Return the position in the flow, or how many elements of the dataset have been used."""
        if self._stream is not None:
            return self._stream.state_after(count)
        if self._loaded is not None:
            return dict(self._loaded)
        return {"source": type(self).__name__, "datapoints": count, "size": self._size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the data start from there; an empty state is the beginning."""
        if not state:
            return
        if self._stream is not None:
            self._stream.load(state)
        elif state.get("source") != type(self).__name__ or "flow" in state:
            raise InputError(
                f"{type(self).__name__} over a tf.data.Dataset cannot go on from a position of "
                f"{state.get('source', 'something else')!r} over {state.get('flow', 'other data')}: resume with the "
                "input source that the run began with, or begin a new run"
            )
        else:
            self._loaded = dict(state)

    def make_meter(self) -> GraphMeter:
        """Return what measures how long runs wait for the dataset."""
        return GraphMeter(self._get_next_ops)

    def _setup(self) -> list[Callback]:
        with tf.device("/cpu:0"), tf.compat.v1.name_scope(type(self).__name__):
            self._counter = ConsumedCounter("consumed")
            self._to_skip = tf.compat.v1.placeholder_with_default(tf.constant(0, tf.int64), [], name="to_skip")
            if self._stream is not None:
                dataset = self._dataset_of_flow(self._stream)
                self._cardinality = dataset.cardinality()
            else:
                index, count = self._share
                dataset = self._dataset_of_graph().shard(count, index) if count > 1 else self._dataset_of_graph()
                self._cardinality = dataset.cardinality()
                if not self._must_end and _shuffles_without_seed(dataset):
                    logger.warning(
                        "TFDatasetInput: the dataset shuffles without a seed, so a resumed training gets its elements "
                        "in another order. Write shuffle(..., seed=...), or give the TrainConfig a seed."
                    )
                dataset = (dataset.repeat() if self.infinite else dataset).skip(self._to_skip)
            self._iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        return [InputStartStop(self)]

    def _dataset_of_graph(self) -> Any:
        is_dataset = isinstance(self.dataset, tf.data.Dataset)
        dataset = self.dataset() if callable(self.dataset) and not is_dataset else self.dataset
        if not isinstance(dataset, tf.data.Dataset):
            raise InputError(
                f"TFDatasetInput takes a tf.data.Dataset, a function that returns one, or a dataflow; not {dataset!r}"
            )
        variant = variant_of(dataset)
        if not tf.is_symbolic_tensor(variant) or variant.graph is not tf.compat.v1.get_default_graph():
            raise InputError(
                "TFDatasetInput: the dataset was made outside of the trainer's graph and cannot be used in "
                "it; give a function that makes the dataset, as in TFDatasetInput(lambda: ...)"
            )
        return dataset if self._first is None else dataset.take(self._first).cache()

    def _dataset_of_flow(self, stream: DatapointStream) -> Any:
        stream.bind(self.signature)
        self._elements = StreamElements(stream)
        return dataset_of(self._elements, self.signature)

    def _get_input_tensors(self) -> list[Any]:
        assert self._counter is not None
        # Where the iterator is, whatever the device of the tower.
        with tf.device("/cpu:0"), tf.control_dependencies([self._counter.count("count")]):
            elements = self._iterator.get_next()
        tensors = match_tensors(elements, self.signature, "the dataset of TFDatasetInput")
        self._get_next_ops.append(tensors[0].op)
        return tensors

    def _reset_state(self) -> None:
        # Before the training the iterator has not been started, and there is no session.
        if self._session is not None:
            self._begin()

    def start(self, session: Any) -> None:
        """Start the dataset's iterator; called in `before_train`.

        Raises:
            ConfigError: it has no end, though it must have one.
        """
        cardinality = int(session.run(self._cardinality)) if self._must_end or self._size is None else 0
        if self._must_end and cardinality == tf.data.INFINITE_CARDINALITY:
            raise ConfigError(
                "an evaluation would never end: the dataset of TFDatasetInput repeats its elements for ever. Leave out "
                "its repeat(), or limit it by take(n)."
            )
        self._session = session
        if self._size is None:
            self._size = cardinality if cardinality >= 0 else None
        if self._stream is not None:
            hang_watcher.watch(self._stream, self._warn_after)
        self._begin()

    def stop(self) -> None:
        """Let go of the data; called in `after_train`."""
        if self._session is None:
            return
        assert self._counter is not None
        self._counter.stop()
        self._session = None
        if self._stream is not None and self._elements is not None:
            hang_watcher.unwatch(self._stream)
            self._elements.halt(_STOP_TIMEOUT)
            self._stream.finish()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return why the data failed, if `error` is how a step noticed."""
        if not is_error_source([op.name for op in self._get_next_ops], error):
            return None
        if self._elements is not None and self._elements.failure is not None:
            return self._elements.failure
        if self.infinite and isinstance(error, tf.errors.OutOfRangeError):
            return InputError("TFDatasetInput: a pass over the dataset delivered no element")
        return None

    def _begin(self) -> None:
        """Start the iterator from the state that was loaded, if one was, else from the first element."""
        assert self._counter is not None
        if self._stream is not None and self._elements is not None:
            while not self._elements.halt(_STOP_TIMEOUT):
                logger.warning("TFDatasetInput: the dataflow has not finished its datapoint within %g s", _STOP_TIMEOUT)
            self._stream.rewind(horizon=_READ_AHEAD + self.max_ahead)
            resumed_at, to_skip = self._stream.resumed_at, 0
        else:
            resumed_at = to_skip = self._take_loaded()
        self._session.run(self._iterator.initializer, {self._to_skip: to_skip})
        self._counter.start(self._session, resumed_at)

    def _take_loaded(self) -> int:
        """Return how many elements to skip."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return 0
        if loaded["size"] != self._size:
            raise InputError(
                f"TFDatasetInput cannot go on: the position is one in a dataset of {loaded['size']} elements a pass, "
                f"but it has {self._size} now. Resume with the same data, or begin a new run"
            )
        count = int(loaded["datapoints"])
        logger.info("TFDatasetInput: the dataset makes %d elements again, which are skipped", count)
        return count


def _shuffles_without_seed(dataset: Any) -> bool:
    """Return whether the order is drawn anew in each session: two zeros are how `tf.data` writes that."""
    shuffles = [op for op in ops_run_for(variant_of(dataset)) if op.type.startswith("Shuffle")]
    return any(not any(tf.get_static_value(seed) for seed in op.inputs[2:4]) for op in shuffles)


def dataflow_to_dataset(flow: Iterable[Any], signature: Sequence[Any]) -> Any:
    """Return a `tf.data.Dataset` of a dataflow's datapoints; one iteration over it is one pass over the flow.

    It belongs to the default graph, or, outside of graphs, to eager mode. Python makes the datapoints, so
    `prefetch` helps; parallel `map` does what comes after.

    Args:
        flow: any iterable of datapoints: lists or tuples by position, or dicts by name. One iteration at a time.
        signature: for each component a `tf.TensorSpec`, or only its dtype if its shape is unknown.

    Returns:
        A dataset whose elements are tuples of tensors, in the order of the signature.

    Raises:
        ConfigError: `flow` cannot be iterated, or `signature` is empty or holds something else.

    Example:
        ```python
        dataset = dataflow_to_dataset(flow, [tf.TensorSpec([28, 28], tf.float32), tf.int32])
        dataset = dataset.batch(32).prefetch(2)
        ```
    """
    specs = tuple(_as_spec(each, position) for position, each in enumerate(signature))
    if not specs:
        raise ConfigError("dataflow_to_dataset needs a tf.TensorSpec or dtype for each component, not none at all")
    stream = DatapointStream(flow, infinite=False, owner="dataflow_to_dataset")
    stream.bind(specs)

    def datapoints() -> Iterator[tuple[Any, ...]]:
        stream.rewind()
        stream.start()
        for arrays in stream:
            yield tuple(arrays)

    return dataset_of(datapoints, specs)


class StreamElements:
    """The elements of a stream, for a `tf.data.Dataset` in a graph.

    The threads of `tf.data` may take elements ahead of the steps, and go on doing so when the steps have ended; `halt`
    keeps them from that.

    Args:
        stream: which is rewound before each iteration.

    Attributes:
        failure: what the data raised in this iteration. Raised in the dataset, it would reach the step as text, and
            TensorFlow would print it; so the iteration ends instead.
    """

    def __init__(self, stream: DatapointStream) -> None:
        self.failure: Exception | None = None
        self._stream = stream
        self._iteration = 0
        self._taking = threading.Lock()

    def __call__(self) -> Iterator[tuple[Any, ...]]:
        """Begin an iteration."""
        iteration, starts = self._iteration, True
        while True:
            with self._taking:
                if iteration != self._iteration:
                    return
                try:
                    if starts:
                        self._stream.start()
                        starts = False
                    arrays = next(self._stream, None)
                except Exception as error:
                    self.failure = error
                    return
            if arrays is None:
                return
            yield tuple(arrays)

    def halt(self, timeout: float) -> bool:
        """Let nothing more be taken in this iteration, and wait for what is being taken.

        Args:
            timeout: seconds to wait.

        Returns:
            Whether nothing is being taken any more.
        """
        self._iteration += 1
        self.failure = None
        is_over = self._taking.acquire(timeout=timeout)
        if is_over:
            self._taking.release()
        return is_over


def dataset_of(datapoints: Callable[[], Iterator[tuple[Any, ...]]], specs: Sequence[Any]) -> Any:
    """Return the dataset of what a function delivers.

    Args:
        datapoints: called for each iteration; returns an iterator over tuples of arrays.
        specs: a `tf.TensorSpec` for each.
    """
    signature = tuple(tf.TensorSpec(spec.shape, spec.dtype) for spec in specs)
    return tf.data.Dataset.from_generator(datapoints, output_signature=signature)


def _as_spec(value: Any, position: int) -> Any:
    if isinstance(value, tf.TensorSpec):
        return value if value.name else tf.TensorSpec(value.shape, value.dtype, f"component_{position}")
    try:
        return tf.TensorSpec(None, tf.as_dtype(value), f"component_{position}")
    except TypeError:
        raise ConfigError(
            f"dataflow_to_dataset: component {position} must be given as a tf.TensorSpec or a dtype, not {value!r}"
        ) from None
