"""`tf.estimator.inputs`: input functions for arrays and pandas data frames, which fill a queue from threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

# Arrays by name. An array without a name has the key None.
Arrays = dict[Any, np.ndarray]


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """Return an input function that feeds arrays to a queue and takes batches from it.

    Args:
        x: the features: an array, or a dict of arrays with the same number of rows.
        y: the labels: an array, a dict of arrays, or None for no labels.
        batch_size: the number of rows of a batch.
        num_epochs: the number of passes over the rows; None for no end. The last batch may be smaller.
        shuffle: whether to shuffle the rows. It has no default.
        queue_capacity: the number of rows that the queue can hold.
        num_threads: the number of threads that fill the queue. Each makes `num_epochs` passes.

    Returns:
        A function without arguments, which returns the features, or the features and the labels.

    Raises:
        ValueError: if `shuffle` is missing, a dict is empty, or numbers of rows or names do not fit.
        TypeError: if `x` is neither an array nor a dict.

    Example:
        ```python
        input_fn = numpy_input_fn({"age": ages}, labels, batch_size=32, shuffle=True)
        ```
    """
    _check_shuffle(shuffle)
    if not isinstance(x, Mapping | np.ndarray):
        raise TypeError(f"x must be an array or a dict of arrays, but got {type(x).__name__}: use np.asarray(x).")
    for name, value in (("x", x), ("y", y)):
        if isinstance(value, Mapping) and not value:
            raise ValueError(f"{name} is an empty dict: give at least one array{', or None' if name == 'y' else ''}.")
    features, labels = _named(x, "x"), _named(y, "y")
    common = (features.keys() & labels.keys()) - {None}
    if common:
        raise ValueError(f"the name {min(common)!r} is in both x and y: rename one of them.")
    lengths = {name: len(array) for name, array in {**features, **labels}.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all arrays in x and y must have the same number of rows, but they have: {lengths}.")

    return _input_fn(features, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """Return an input function that feeds a data frame to a queue and takes batches from it.

    Args:
        x: the features, a `pandas.DataFrame`.
        y: the labels: a `pandas.Series` or `pandas.DataFrame` with the index of `x`, or None.
        batch_size: the number of rows of a batch.
        num_epochs: the number of passes over the rows; None for no end. The last batch may be smaller.
        shuffle: whether to shuffle the rows. It has no default.
        queue_capacity: the number of rows that the queue can hold.
        num_threads: the number of threads that fill the queue. Each makes `num_epochs` passes.
        target_column: a name for the labels that no column of `x` has.

    Returns:
        A function without arguments, which returns a dict of features by column, or the features and the labels.

    Raises:
        ValueError: if `shuffle` is missing, the indices differ, or `x` has a column called `target_column`.
        TypeError: if `x` or `y` is not of pandas.
    """
    _check_shuffle(shuffle)
    if not hasattr(x, "columns"):
        raise TypeError(f"x must be a pandas.DataFrame, but got {type(x).__name__}: use numpy_input_fn for arrays.")
    features: Arrays = {name: x[name].to_numpy() for name in x.columns}
    labels: Arrays = {}
    if y is not None:
        if not hasattr(y, "to_numpy"):
            raise TypeError(f"y must be a pandas.Series or a pandas.DataFrame, but got {type(y).__name__}.")
        if not x.index.equals(y.index):
            raise ValueError(f"x and y must have the same index, but x has {x.index} and y has {y.index}.")
        if hasattr(y, "columns"):
            labels = {name: y[name].to_numpy() for name in y.columns}
        elif target_column in features:
            raise ValueError(f"x has a column called {target_column!r}: choose another target_column for the labels.")
        else:
            labels = {None: y.to_numpy()}
    return _input_fn(features, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


def _check_shuffle(shuffle: bool | None) -> None:
    if not isinstance(shuffle, bool):
        raise ValueError(f"shuffle must be True (usual in training) or False, but is {shuffle!r}: it has no default.")


def _named(data: Any, name: str) -> Arrays:
    if data is None:
        return {}
    arrays = data if isinstance(data, Mapping) else {None: data}
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):
            place = name if key is None else f"{name}[{key!r}]"
            raise TypeError(f"{place} must be an array, but is a {type(array).__name__}: use np.asarray.")
    return {key: arrays[key] for key in sorted(arrays)}


def _input_fn(features: Arrays, labels: Arrays, *options: Any) -> Callable[[], Any]:
    def input_fn() -> Any:
        tensors = _dequeued([*features.values(), *labels.values()], *options)
        x = dict(zip(features, tensors, strict=False))
        y = dict(zip(labels, tensors[len(features) :], strict=True))
        return (x.get(None, x), y.get(None, y)) if labels else x.get(None, x)

    return input_fn


def _dequeued(
    arrays: list[np.ndarray],
    batch_size: int,
    num_epochs: int | None,
    shuffle: bool,
    capacity: int,
    num_threads: int,
) -> list[Any]:
    """Return batches of the arrays, as tensors from a queue."""
    columns = [np.arange(len(arrays[0])), *arrays]
    dtypes = [tf.as_dtype(column.dtype) for column in columns]
    shapes = [column.shape[1:] for column in columns]
    with tf.name_scope("enqueue_input"):
        kept = capacity // 4 if shuffle else 0
        if shuffle:
            queue = tf.queue.RandomShuffleQueue(capacity, kept, dtypes, shapes)
        else:
            queue = tf.queue.FIFOQueue(capacity, dtypes, shapes)
        threads = []
        for _ in range(num_threads):
            placeholders = [v1.placeholder(dtype) for dtype in dtypes]
            start = random.randrange(max(len(arrays[0]), 1)) if shuffle else 0
            batches = _batches(columns, batch_size, num_epochs, start)
            threads.append(_Enqueue(queue.enqueue_many(placeholders), placeholders, batches))
        v1.train.add_queue_runner(_FeedingQueueRunner(queue, threads))
        free = capacity - kept
        full = tf.cast(tf.maximum(0, queue.size() - kept), tf.float32) * (1.0 / free)
        v1.summary.scalar(f"queue/{queue.name}fraction_over_{kept}_of_{free}_full", full)
    return list(queue.dequeue_many(batch_size) if num_epochs is None else queue.dequeue_up_to(batch_size))[1:]


def _batches(
    columns: list[np.ndarray], batch_size: int, num_epochs: int | None, start: int
) -> Iterator[list[np.ndarray]]:
    """Yield batches of consecutive rows, from `start` and around."""
    length, done = len(columns[0]), 0
    while num_epochs is None or done < num_epochs * length:
        size = batch_size if num_epochs is None else min(batch_size, num_epochs * length - done)
        rows = np.arange(start + done, start + done + size) % length
        yield [column[rows] for column in columns]
        done += size


@attrs.frozen(eq=False)
class _Enqueue:
    """The work of one thread: an op, and the batches to feed to its placeholders."""

    op: Any
    placeholders: list[Any]
    batches: Iterator[list[np.ndarray]]

    def run(self, sess: Any) -> None:
        sess.run(self.op, dict(zip(self.placeholders, next(self.batches), strict=True)))


class _FeedingQueueRunner(tf.compat.v1.train.QueueRunner):  # type: ignore[misc]
    """A queue runner whose threads feed their enqueue ops. The last thread to end closes the queue."""

    def __init__(self, queue: Any, work: list[_Enqueue]) -> None:
        super().__init__(queue, [each.op for each in work])
        self._work = work

    def create_threads(self, sess: Any, coord: Any = None, daemon: bool = False, start: bool = False) -> list[Any]:
        running = {each.op for each in self._work}

        def fill(enqueue: _Enqueue) -> None:
            try:
                while not (coord and coord.should_stop()):
                    enqueue.run(sess)
            except (StopIteration, tf.errors.OutOfRangeError, tf.errors.CancelledError):
                pass
            except Exception as error:
                if coord is None:
                    raise
                coord.request_stop(error)
            finally:
                running.discard(enqueue.op)
                if not running:
                    _run_unless_closed(sess, self.close_op)

        def cancel() -> None:
            coord.wait_for_stop()
            _run_unless_closed(sess, self.cancel_op)

        threads = [threading.Thread(target=fill, args=(each,), daemon=daemon) for each in self._work]
        if coord:
            threads.append(threading.Thread(target=cancel, daemon=daemon))
        for thread in threads:
            if coord:
                coord.register_thread(thread)
            if start:
                thread.start()
        return threads


def _run_unless_closed(sess: Any, op: Any) -> None:
    try:
        sess.run(op)
    except (tf.errors.CancelledError, RuntimeError):
        pass  # The queue or the session is closed already.
