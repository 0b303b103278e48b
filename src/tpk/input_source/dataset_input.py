"""`tf.data.Dataset` as a source of data, and a dataflow as a `tf.data.Dataset`."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.dataflow.base import length_of_share
from tpk.errors import ConfigError, InputError
from tpk.graph.fetches import ops_run_for
from tpk.input_source.base import ConsumedCounter, FlowInput, InputSource, InputStartStop, is_error_source
from tpk.input_source.data_thread import STOP_TIMEOUT
from tpk.input_source.meter import GraphMeter
from tpk.input_source.proxy_input import ProxyInput
from tpk.input_source.stream import DatapointStream
from tpk.input_source.tensor import match_tensors
from tpk.plugin.callback import Callback
from tpk.tf_internals import variant_of

logger = logging.getLogger(__name__)

_OWNER = "TFDatasetInput"
_READ_AHEAD = 64
"""How far `tf.data` may have called the generator of a flow ahead of the steps."""


class TFDatasetInput(ProxyInput):
    """Takes each datapoint from a `tf.data.Dataset`.

    A dataset belongs to the graph in which it was made, and a trainer has its own graph. So pass a function that makes
    the dataset; it is called inside the graph.

    A resumed run continues after the elements that were used. A dataset makes them again and skips them, so a dataset
    that shuffles needs a seed; a dataflow continues from its own position.

    Args:
        dataset: a function that returns a `tf.data.Dataset`, a dataset that was made in the trainer's graph,
            or a dataflow, which goes through `tf.data.Dataset.from_generator`. The elements are tuples by
            position or dicts by name.
        infinite: whether to start the dataset again when it is exhausted. Otherwise the training ends then.
        size: the number of elements in a pass over a dataset. By default its `cardinality`, which is known only from
            `before_train` on. A dataflow has its own length.

    Raises:
        ConfigError: a dataflow is given a size.
        InputError: (at `setup`) it is not a dataset, belongs to another graph, or its elements do not fit the
            signature.

    Example:
        ```python
        def dataset():
            return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(1000).batch(32).prefetch(2)

        source = TFDatasetInput(dataset)
        ```
    """

    def __init__(self, dataset: Any, infinite: bool = True, size: int | None = None) -> None:
        source: InputSource
        if isinstance(dataset, Iterable) and not isinstance(dataset, tf.data.Dataset):
            if size is not None:
                raise ConfigError(f"{_OWNER}: size={size} is for a tf.data.Dataset; a dataflow has its own length")
            source = _FlowElements(dataset, infinite)
        else:
            source = _DatasetElements(dataset, infinite, size)
        super().__init__(source)

    def _setup(self) -> list[Callback]:
        return self.source.setup(self.signature)

    def _get_input_tensors(self) -> list[Any]:
        return self.source.get_input_tensors()


class _IteratorInput(InputSource):
    """Base class of the sources that take their data from an iterator over a dataset."""

    _counter: ConsumedCounter | None = None
    _session: Any = None

    @property
    def consumed(self) -> int:
        """How many elements steps have consumed."""
        return 0 if self._counter is None else self._counter.value

    def make_meter(self) -> GraphMeter:
        """Return a meter of how long runs wait for the dataset."""
        return GraphMeter(self._get_next_ops)

    def start(self, session: Any) -> None:
        """Start the iterator; called in `before_train`."""
        self._session = session
        self._begin()

    def stop(self) -> None:
        """Release the data; called in `after_train`."""
        if self._counter is not None:
            self._counter.stop()
        self._session = None

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return why the data failed, if that caused `error` in a step."""
        return self._failure(error) if is_error_source([op.name for op in self._get_next_ops], error) else None

    def _setup(self) -> list[Callback]:
        self._get_next_ops: list[Any] = []
        with tf.device("/cpu:0"), tf.compat.v1.name_scope(_OWNER):
            self._counter = ConsumedCounter()
            self._to_skip = tf.compat.v1.placeholder_with_default(tf.constant(0, tf.int64), [], name="to_skip")
            self._iterator = tf.compat.v1.data.make_initializable_iterator(self._make_dataset())
        return [InputStartStop(self)]

    def _get_input_tensors(self) -> list[Any]:
        assert self._counter is not None
        # On the device of the iterator, whatever the device of the tower.
        with tf.device("/cpu:0"), tf.control_dependencies([self._counter.count()]):
            elements = self._iterator.get_next()
        tensors = match_tensors(elements, self.signature, f"the datapoint of {_OWNER}")
        self._get_next_ops.append(tensors[0].op)
        return tensors

    def _reset_state(self) -> None:
        # Before the training, the data is at its beginning.
        if self._session is not None:
            self._begin()

    def _begin(self) -> None:
        """Start the iterator from the loaded state if there is one, otherwise from the first element."""
        assert self._counter is not None
        resumed_at, to_skip = self._rewind()
        self._session.run(self._iterator.initializer, {self._to_skip: to_skip})
        self._counter.start(self._session, resumed_at)

    @abstractmethod
    def _make_dataset(self) -> Any:
        """Return the dataset, in the default graph."""

    @abstractmethod
    def _rewind(self) -> tuple[int, int]:
        """Prepare an iteration; return how many elements have been used before, and how many it must skip."""

    @abstractmethod
    def _failure(self, error: BaseException) -> BaseException | None:
        """Return why the data failed when the iterator raised `error`."""


class _DatasetElements(_IteratorInput):
    """The elements of a dataset of the user. Its position is the number of elements used."""

    def __init__(self, dataset: Any, infinite: bool, size: int | None) -> None:
        self._dataset = dataset
        self._infinite = infinite
        self._size = size
        self._share = (0, 1)
        self._first: int | None = None
        self._must_end = False
        self._loaded: Mapping[str, Any] | None = None

    @property
    def size(self) -> int | None:
        """The number of elements in a pass over the data, or None while it is unknown."""
        return self._size

    def end_after_each_pass(self) -> bool:
        """Do not start the dataset again when it is exhausted; `start` refuses one that repeats itself forever."""
        self._infinite, self._must_end = False, True
        return True

    def shard(self, index: int, count: int) -> None:
        """Take only a share, by the dataset's own `shard`."""
        if self._size is not None:
            self._size = length_of_share(self._size, index, count)
        self._share = (index, count)

    def keep_first(self, count: int) -> None:
        """Keep the first elements in memory, by the dataset's own `take` and `cache`."""
        self._size = count if self._size is None else min(self._size, count)
        self._first = count

    def state_after(self, count: int) -> dict[str, Any]:
        """Return how many elements have been used."""
        if self._loaded is not None:
            return dict(self._loaded)
        return {"source": _OWNER, "datapoints": count, "size": self._size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the data from there; an empty state is the beginning."""
        if state and (state.get("source") != _OWNER or "flow" in state):
            raise InputError(
                f"{_OWNER} over a tf.data.Dataset cannot continue from a position of "
                f"{state.get('source', 'something else')!r} over {state.get('flow', 'other data')}: resume with the "
                "input source that the run began with, or begin a new run"
            )
        if state:
            self._loaded = dict(state)

    def start(self, session: Any) -> None:
        """Start the iterator.

        Raises:
            ConfigError: the dataset has no end, but must have one.
        """
        cardinality = int(session.run(self._cardinality)) if self._must_end or self._size is None else 0
        if self._must_end and cardinality == tf.data.INFINITE_CARDINALITY:
            raise ConfigError(
                f"an evaluation would never end: the dataset of {_OWNER} repeats its elements forever. Remove its "
                "repeat(), or limit it by take(n)."
            )
        if self._size is None:
            self._size = cardinality if cardinality >= 0 else None
        super().start(session)

    def _make_dataset(self) -> Any:
        is_dataset = isinstance(self._dataset, tf.data.Dataset)
        dataset = self._dataset() if callable(self._dataset) and not is_dataset else self._dataset
        if not isinstance(dataset, tf.data.Dataset):
            raise InputError(
                f"{_OWNER} takes a tf.data.Dataset, a function that returns one, or a dataflow; not {dataset!r}"
            )
        variant = variant_of(dataset)
        if not tf.is_symbolic_tensor(variant) or variant.graph is not tf.compat.v1.get_default_graph():
            raise InputError(
                f"{_OWNER}: the dataset was made outside of the trainer's graph and cannot be used in "
                f"it; give a function that makes the dataset, as in {_OWNER}(lambda: ...)"
            )
        if self._first is not None:
            dataset = dataset.take(self._first).cache()
        index, count = self._share
        if count > 1:
            dataset = dataset.shard(count, index)
        self._cardinality = dataset.cardinality()
        if not self._must_end and _shuffles_without_seed(dataset):
            logger.warning(
                "TFDatasetInput: the dataset shuffles without a seed, so a resumed training gets its elements "
                "in another order. Write shuffle(..., seed=...), or give the TrainConfig a seed."
            )
        return (dataset.repeat() if self._infinite else dataset).skip(self._to_skip)

    def _rewind(self) -> tuple[int, int]:
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return 0, 0
        if loaded["size"] != self._size:
            raise InputError(
                f"{_OWNER} cannot continue: the position is in a dataset of {loaded['size']} elements per pass, "
                f"but it has {self._size} now. Resume with the same data, or begin a new run"
            )
        count = int(loaded["datapoints"])
        logger.info("TFDatasetInput: the dataset makes %d elements again, and skips them", count)
        return count, count

    def _failure(self, error: BaseException) -> BaseException | None:
        if self._infinite and isinstance(error, tf.errors.OutOfRangeError):
            return InputError(f"{_OWNER}: a pass over the dataset delivered no element")
        return None


class _FlowElements(_IteratorInput, FlowInput):
    """The datapoints of a dataflow, by way of `tf.data.Dataset.from_generator`.

    The threads of `tf.data` may take datapoints ahead of the steps, and continue to do so after the steps have ended.
    """

    _owner = _OWNER

    def __init__(self, flow: Iterable[Any], infinite: bool) -> None:
        super().__init__(flow, infinite)
        self._failed: Exception | None = None
        self._iteration = 0
        self._taking = threading.Lock()

    def start(self, session: Any) -> None:
        """Start the iterator, and watch the data code."""
        self._watch()
        super().start(session)

    def stop(self) -> None:
        """Stop the data code."""
        if self._session is not None:
            super().stop()
            self._unwatch()
            self._halt()
            self._stream.finish()

    def _make_dataset(self) -> Any:
        self._stream.bind(self.signature)
        return _dataset_of(self._datapoints, self.signature)

    def _rewind(self) -> tuple[int, int]:
        while not self._halt():
            logger.warning("TFDatasetInput: the dataflow is still making its datapoint after %g s", STOP_TIMEOUT)
        self._stream.rewind(horizon=_READ_AHEAD + self.max_ahead)
        return self._stream.resumed_at, 0

    def _failure(self, error: BaseException) -> BaseException | None:
        return self._failed

    def _datapoints(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the stream, in a thread of `tf.data`.

        A failure ends the iteration. If it were raised here, it would reach the step as text, and TensorFlow would
        print it.
        """
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
                    self._failed = error
                    return
            if arrays is None:
                return
            yield tuple(arrays)

    def _halt(self) -> bool:
        """End this iteration, and wait for the datapoint that is being made; return whether it is done."""
        self._iteration += 1
        self._failed = None
        is_done = self._taking.acquire(timeout=STOP_TIMEOUT)
        if is_done:
            self._taking.release()
        return is_done


def _shuffles_without_seed(dataset: Any) -> bool:
    """Return whether each session shuffles in another order: `tf.data` represents that by two zeros as seeds."""
    shuffles = [op for op in ops_run_for(variant_of(dataset)) if op.type.startswith("Shuffle")]
    return any(not any(tf.get_static_value(seed) for seed in op.inputs[2:4]) for op in shuffles)


def dataflow_to_dataset(flow: Iterable[Any], signature: Sequence[Any]) -> Any:
    """Return a `tf.data.Dataset` of a dataflow's datapoints; one iteration over it is one pass over the flow.

    The dataset belongs to the default graph, or to eager mode outside of graphs. Python makes the datapoints, so
    `prefetch` helps; a parallel `map` only speeds up what comes after.

    Args:
        flow: any iterable of datapoints: lists or tuples by position, or dicts by name. Only one iteration at a time.
        signature: a `tf.TensorSpec` for each component, or only its dtype if its shape is unknown.

    Returns:
        A dataset whose elements are tuples of tensors, in the order of the signature.

    Raises:
        ConfigError: `flow` cannot be iterated, or `signature` is empty or invalid.

    Example:
        ```python
        dataset = dataflow_to_dataset(flow, [tf.TensorSpec([28, 28], tf.float32), tf.int32])
        dataset = dataset.batch(32).prefetch(2)
        ```
    """
    specs = tuple(_as_spec(each, position) for position, each in enumerate(signature))
    if not specs:
        raise ConfigError("dataflow_to_dataset needs a tf.TensorSpec or dtype for each component, not an empty list")
    stream = DatapointStream(flow, infinite=False, owner="dataflow_to_dataset")
    stream.bind(specs)

    def datapoints() -> Iterator[tuple[Any, ...]]:
        stream.rewind()
        stream.start()
        for arrays in stream:
            yield tuple(arrays)

    return _dataset_of(datapoints, specs)


def _dataset_of(datapoints: Callable[[], Iterator[tuple[Any, ...]]], specs: Sequence[Any]) -> Any:
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
