"""Asynchronous predictor: requests of many threads, computed in batches."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.dataflow.memory import aligned_empty
from tpk.errors import ConfigError, InputError, SessionError
from tpk.predict.inputs import Array, InputCheck, arguments_of
from tpk.predict.online import OnlinePredictor

_GRACE = 5.0
"""Seconds that the threads have to finish the batches that they are at."""


class MultiThreadAsyncPredictor:
    """Computes the requests of many threads in batches.

    A request is one datapoint, without the dimension of the batch that the model has; its result comes without that
    dimension, too. Whenever a predictor is free, it takes all requests that are waiting, up to `max_batch`. So under
    load batches become as large as they need to be by themselves; `max_wait` only makes the first of a batch wait for
    others, for models whose calls cost far more than that.

    Requests whose arrays have different shapes are computed apart. If a batch fails, its requests are computed one by
    one, so that only those fail which have to. The arrays of a request must not be written to until it is done.

    It is a context manager, at whose end it is closed.

    Args:
        predictors: a predictor, or several with the same inputs and outputs, such as those of a
            `MultiTowerOfflinePredictor` or of `trainer.get_predictors`; each works in a thread of its own. They are
            not closed with this one.
        max_batch: how many requests are computed at once at most.
        max_wait: seconds that a request waits for others at most when a predictor is free.

    Raises:
        ConfigError: if an input or output has no batch dimension that may have any size, the predictors differ, or a
            number is out of range.

    Example:
        ```python
        with tpk.MultiThreadAsyncPredictor(predict, max_batch=16) as batched:
            future = batched.put_task([image])     # in any of many threads
            (probabilities,) = future.result()
            (probabilities,) = batched(image)      # the same, waiting
        ```
    """

    def __init__(
        self, predictors: OnlinePredictor | Sequence[OnlinePredictor], max_batch: int = 32, max_wait: float = 0.0
    ) -> None:
        predictors = [predictors] if isinstance(predictors, OnlinePredictor) else list(predictors)
        _check_alike(predictors)
        if isinstance(max_batch, bool) or not isinstance(max_batch, int) or max_batch < 1:
            raise ConfigError(f"MultiThreadAsyncPredictor(max_batch={max_batch!r}): expected a positive whole number.")
        if not 0 <= max_wait < float("inf"):
            raise ConfigError(f"MultiThreadAsyncPredictor(max_wait={max_wait!r}): expected seconds, from 0 on.")
        self._check = InputCheck(
            {spec.name: _of_one(spec) for spec in predictors[0].input_specs},
            "A request is a single datapoint, without the dimension of the batch.",
        )
        _check_outputs(predictors[0])
        self._line = _Line(max_batch, max_wait)
        threads = [
            threading.Thread(target=_serve, args=(self._line, predictor), name=f"predictor-{index}", daemon=True)
            for index, predictor in enumerate(predictors)
        ]
        for thread in threads:
            thread.start()
        # The threads know the line only, so that this object may go, and they end with it.
        self._close = weakref.finalize(self, _close, self._line, threads)

    def put_task(self, datapoint: Any) -> Future[Any]:
        """Ask for the outputs for a datapoint, and do not wait for them.

        Args:
            datapoint: a list or tuple with an array for each input, or a dict by name; without a batch dimension.

        Returns:
            The future of a list of arrays, or of a dict, as the predictor returns them; without a batch dimension.

        Raises:
            InputError: if it does not fit; so no other request is affected by it.
            SessionError: if this has been closed.
        """
        request = _Request(self._check(arguments_of(datapoint)))
        self._line.put(request)
        return request.future

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs for one datapoint; wait for them.

        Args:
            inputs: an array for each input, in order; or one dict by name.
        """
        return self.put_task(inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else inputs).result()

    def close(self) -> None:
        """End the threads. The batches under way are finished, and requests that were waiting fail with an error."""
        self._close()

    def __enter__(self) -> MultiThreadAsyncPredictor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@attrs.frozen(eq=False)
class _Request:
    """A datapoint that somebody waits for the outputs of."""

    arrays: list[Array]
    future: Future[Any] = attrs.field(factory=Future)
    arrived: float = attrs.field(factory=time.monotonic)

    def refuse(self) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(
                SessionError(
                    "the MultiThreadAsyncPredictor was closed before this request had its turn. Wait for the results "
                    "of all requests before you close it."
                )
            )


class _Line:
    """The requests that wait, in the order in which they came."""

    def __init__(self, max_batch: int, max_wait: float) -> None:
        self._max_batch = max_batch
        self._max_wait = max_wait
        # After the end, one None stands in it for ever.
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        # One thread at a time gathers a batch, or several would get parts of what one could take.
        self._gathering = threading.Lock()
        self._closing = threading.Lock()
        self._is_closed = False

    def put(self, request: _Request) -> None:
        with self._closing:
            if self._is_closed:
                raise SessionError("the MultiThreadAsyncPredictor has been closed. Make a new one.")
            self._requests.put(request)

    def take(self) -> list[_Request]:
        """Return the next batch, once there is something; nothing at the end."""
        with self._gathering:
            batch = list(self._gather())
        if self._is_closed:
            for request in batch:
                request.refuse()
            return []
        return batch

    def close(self) -> None:
        with self._closing:
            self._is_closed = True
            self._requests.put(None)

    def refuse_all(self) -> None:
        while (request := self._requests.get()) is not None:
            request.refuse()
        self._requests.put(None)

    def _gather(self) -> Iterator[_Request]:
        request = self._requests.get()
        deadline = 0.0 if request is None else request.arrived + self._max_wait
        for count in range(1, self._max_batch + 1):
            if request is None:
                self._requests.put(None)
                return
            yield request
            if count == self._max_batch:
                return
            try:
                request = self._requests.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                return


def _serve(line: _Line, predictor: OnlinePredictor) -> None:
    """Be the thread of a predictor."""
    while batch := line.take():
        for requests in _by_shapes(batch):
            _compute(predictor, requests)


def _close(line: _Line, threads: Sequence[threading.Thread]) -> None:
    line.close()
    line.refuse_all()
    for thread in threads:
        # The garbage collector may call this in one of them.
        if thread is not threading.current_thread():
            thread.join(_GRACE)


def _by_shapes(batch: Sequence[_Request]) -> list[list[_Request]]:
    groups: dict[Any, list[_Request]] = {}
    for request in batch:
        if request.future.set_running_or_notify_cancel():
            groups.setdefault(tuple([array.shape for array in request.arrays]), []).append(request)
    return list(groups.values())


def _compute(predictor: OnlinePredictor, requests: Sequence[_Request]) -> None:
    try:
        columns = zip(*(request.arrays for request in requests), strict=True)
        results = predictor(*map(_stack, columns))
        rows = _rows(results, len(requests), predictor)
    except Exception as error:
        if len(requests) == 1:
            requests[0].future.set_exception(error)
            return
        for request in requests:
            _compute(predictor, [request])
        return
    for request, row in zip(requests, rows, strict=True):
        request.future.set_result(row)


def _stack(arrays: Sequence[Array]) -> Array:
    first = arrays[0]
    batch = aligned_empty((len(arrays), *first.shape), first.dtype)
    for index, array in enumerate(arrays):
        batch[index] = array
    return batch


def _rows(results: Any, count: int, predictor: OnlinePredictor) -> list[Any]:
    values = list(results.values()) if predictor.returns_dict else results
    for name, value in zip(predictor.output_names, values, strict=True):
        if np.shape(value)[:1] != (count,):
            raise InputError(
                f"the output {name!r} has shape {np.shape(value)} for a batch of {count}, so it does not have one row "
                "for each datapoint. Name outputs that have."
            )
    if predictor.returns_dict:
        return [dict(zip(results, row, strict=True)) for row in zip(*values, strict=True)]
    return [list(row) for row in zip(*values, strict=True)]


def _check_alike(predictors: Sequence[Any]) -> None:
    if not predictors or not all(isinstance(predictor, OnlinePredictor) for predictor in predictors):
        raise ConfigError(f"MultiThreadAsyncPredictor takes one or more OnlinePredictors, not {predictors!r}.")
    faces = [(each.input_specs, each.output_names, each.returns_dict) for each in predictors]
    if any(face != faces[0] for face in faces):
        raise ConfigError(
            f"the predictors of a MultiThreadAsyncPredictor differ in their inputs or outputs: {predictors!r}. Give "
            "predictors of one model."
        )


def _of_one(spec: Any) -> Any:
    if spec.shape.rank is None:
        return tf.TensorSpec(None, spec.dtype)
    if spec.shape.rank == 0 or tf.compat.dimension_value(spec.shape[0]) is not None:
        raise ConfigError(
            f"requests cannot be batched: the input {spec.name!r} has shape {spec.shape}. The first dimension of each "
            "input must be that of the batch, of unknown size (None)."
        )
    return tf.TensorSpec(spec.shape[1:], spec.dtype)


def _check_outputs(predictor: OnlinePredictor) -> None:
    if not predictor.input_specs:
        raise ConfigError(f"requests cannot be batched: {predictor!r} has no inputs.")
    for name, tensor in zip(predictor.output_names, predictor.outputs, strict=True):
        if tensor.shape.rank == 0 or (tensor.shape.rank and tf.compat.dimension_value(tensor.shape[0]) is not None):
            raise ConfigError(
                f"requests cannot be batched: the output {name!r} has shape {tensor.shape}, so it does not have one "
                "row for each datapoint. Name outputs that have."
            )
