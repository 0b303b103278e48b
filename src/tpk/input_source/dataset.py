"""Data from `tf.data`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from tpk.errors import InputError
from tpk.input_source.base import InputCallback, InputSource, flow_size
from tpk.input_source.origin import comes_from
from tpk.input_source.stream import DatapointStream
from tpk.input_source.tensors import match_tensors
from tpk.plugin.callback import Callback


class TFDatasetInput(InputSource):
    """Takes each datapoint from a `tf.data.Dataset`.

    A dataset belongs to the graph in which it was made, and a trainer has a graph of its own; so give a
    function that makes the dataset. It is called inside the graph.

    Args:
        dataset: a function that returns a `tf.data.Dataset`, a dataset that was made in the trainer's graph,
            or a dataflow, which goes through `tf.data.Dataset.from_generator`. The elements are tuples by
            position or dicts by name.
        infinite: whether the dataset is started again when it is exhausted. Otherwise the training ends then.
        size: how many elements make a pass over the data. By default the length of the flow, or the dataset's
            `cardinality`, which is known only from `before_train` on.

    Raises:
        InputError: (at `setup`) it is no dataset, belongs to another graph, or has other elements than the
            signature.

    Example:
        ```python
        def dataset():
            return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(1000).batch(32).prefetch(2)

        source = TFDatasetInput(dataset)
        ```
    """

    def __init__(self, dataset: Any, infinite: bool = True, size: int | None = None) -> None:
        self.dataset = dataset
        self.infinite = infinite
        self._is_flow = isinstance(dataset, Iterable) and not isinstance(dataset, tf.data.Dataset)
        self._size = flow_size(dataset) if size is None and self._is_flow else size
        self._stream: DatapointStream | None = None
        self._get_next_ops: set[str] = set()
        self._session: Any = None
        self._failure: Exception | None = None

    @property
    def size(self) -> int | None:
        """How many elements make a pass over the data, or None as long as that is unknown."""
        return self._size

    def _setup(self) -> list[Callback]:
        with tf.device("/cpu:0"), tf.compat.v1.name_scope(type(self).__name__):
            dataset = self._dataset_of_flow() if self._is_flow else self._dataset_of_graph()
            self._cardinality = dataset.cardinality()
            if self.infinite and self._stream is None:
                dataset = dataset.repeat()
            self._iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        return [_DatasetCallback(self)]

    def _dataset_of_graph(self) -> Any:
        is_dataset = isinstance(self.dataset, tf.data.Dataset)
        dataset = self.dataset() if callable(self.dataset) and not is_dataset else self.dataset
        if not isinstance(dataset, tf.data.Dataset):
            raise InputError(
                f"TFDatasetInput takes a tf.data.Dataset, a function that returns one, or a dataflow; not {dataset!r}"
            )
        variant = dataset._variant_tensor
        if not tf.is_symbolic_tensor(variant) or variant.graph is not tf.compat.v1.get_default_graph():
            raise InputError(
                "TFDatasetInput: the dataset was made outside of the trainer's graph and cannot be used in "
                "it; give a function that makes the dataset, as in TFDatasetInput(lambda: ...)"
            )
        return dataset

    def _dataset_of_flow(self) -> Any:
        stream = DatapointStream(self.dataset, infinite=self.infinite, owner=type(self).__name__)
        stream.bind(self.signature)
        self._stream = stream

        def datapoints() -> Iterator[tuple[Any, ...]]:
            try:
                stream.start()
                for arrays in stream:
                    yield tuple(arrays)
            except Exception as error:
                # Raised in here, it would reach the step as text, and TensorFlow would print it. The step that
                # meets the end asks `translate_error`.
                self._failure = error

        specs = tuple(tf.TensorSpec(spec.shape, spec.dtype) for spec in self.signature)
        return tf.data.Dataset.from_generator(datapoints, output_signature=specs)

    def _get_input_tensors(self) -> list[Any]:
        with tf.device("/cpu:0"):  # where the iterator is, whatever the device of the tower
            elements = self._iterator.get_next()
        tensors = match_tensors(elements, self.signature, "the dataset of TFDatasetInput")
        self._get_next_ops.add(tensors[0].op.name)
        return tensors

    def _reset_state(self) -> None:
        # Before the training the iterator has not been started, and there is no session.
        if self._session is not None:
            self._failure = None
            self._session.run(self._iterator.initializer)

    def start(self, session: Any) -> None:
        """Start the dataset's iterator; called in `before_train`."""
        self._session = session
        if self._size is None:
            cardinality = int(session.run(self._cardinality))
            self._size = cardinality if cardinality >= 0 else None
        self.reset_state()

    def stop(self) -> None:
        """Let go of the data; called in `after_train`."""
        self._session = None
        if self._stream is not None:
            self._stream.close()

    def translate_error(self, error: BaseException) -> BaseException | None:
        """Return why the data failed, if `error` is how a step noticed."""
        if not comes_from(error, self._get_next_ops):
            return None
        if self._failure is not None:
            return self._failure
        if self.infinite and isinstance(error, tf.errors.OutOfRangeError):
            return InputError("TFDatasetInput: a pass over the dataset delivered no element")
        return None


class _DatasetCallback(InputCallback):
    """Starts the dataset's iterator."""

    def __init__(self, source: TFDatasetInput) -> None:
        self._source = source

    def before_train(self, trainer: Any) -> None:
        self._source.start(trainer.sess)

    def after_train(self, trainer: Any) -> None:
        self._source.stop()

    def translate_error(self, error: BaseException) -> BaseException | None:
        return self._source.translate_error(error)
