"""A predictor that computes the requests of many threads in batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.argument_checks import check_at_least
from tpk.dataflow.memory import aligned_empty
from tpk.errors import ConfigError, InputError, SessionError
from tpk.graph.signature import Array
from tpk.predict.inputs import InputCheck, arguments_of
from tpk.predict.online import ClosesOnExit, OnlinePredictor

_GRACE = 5.0
"""Seconds that `close` waits for the batches in progress."""


class MultiThreadAsyncPredictor(ClosesOnExit):
    """Computes the requests of many threads in batches.

    A request is one datapoint, without the batch dimension of the model; its result has no batch dimension either.
    Whenever a predictor is free, it takes all waiting requests, up to `max_batch`, so batches grow with the load.
    `max_wait` makes the first request of a batch wait for others; use it for models whose calls take much longer.

    Requests whose arrays have different shapes are computed separately. If a batch fails, its requests are computed one
    by one, so that a bad request does not fail the others. Do not write to the arrays of a request until it is done.

    It is a context manager that closes itself on exit.

    Args:
        predictors: a predictor, or several with the same inputs and outputs, such as the predictors of a
            `MultiTowerOfflinePredictor` or of `trainer.get_predictors`. Each runs in its own thread. They stay open
            when this one is closed.
        max_batch: the largest number of requests to compute at once.
        max_wait: the maximum number of seconds that a request waits for others when a predictor is free.

    Raises:
        ConfigError: if an input or output has no batch dimension of unknown size, the predictors differ, or a number
            is out of range.

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
        _check_predictors(predictors)
        check_at_least(self, 1, max_batch=max_batch)
        if not 0 <= max_wait < float("inf"):
            raise ConfigError(f"MultiThreadAsyncPredictor: max_wait must be a number of seconds, not {max_wait!r}")
        self._check = InputCheck(
            {spec.name: _without_batch(spec) for spec in predictors[0].input_specs},
            "A request is a single datapoint, without the batch dimension.",
        )
        _check_outputs(predictors[0])
        self._max_batch = max_batch
        self._max_wait = max_wait
        # `close` puts a None for each thread.
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._is_closed = False
        self._closing = threading.Lock()
        self._gathering = threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve, args=(predictor,), name=f"predictor-{index}", daemon=True)
            for index, predictor in enumerate(predictors)
        ]
        for thread in self._threads:
            thread.start()

    def put_task(self, datapoint: Any) -> Future[Any]:
        """Request the outputs for a datapoint, without waiting for them.

        Args:
            datapoint: a list or tuple with an array for each input, or a dict by name; without a batch dimension.

        Returns:
            The future of a list of arrays, or of a dict, as the predictor returns them; without a batch dimension.

        Raises:
            InputError: if the datapoint does not fit. Other requests are not affected.
            SessionError: if this predictor is closed.
        """
        request = _Request(self._check(arguments_of(datapoint)))
        with self._closing:  # No request may arrive after `close` has refused the waiting ones.
            if self._is_closed:
                raise SessionError("the MultiThreadAsyncPredictor has been closed. Make a new one.")
            self._requests.put(request)
        return request.future

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs for one datapoint, once they are computed.

        Args:
            inputs: an array for each input, in order, or one dict by name.
        """
        return self.put_task(inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else inputs).result()

    def close(self) -> None:
        """Stop the threads. Batches in progress are finished; waiting requests fail with a `SessionError`."""
        with self._closing:
            self._is_closed = True
        with suppress(Empty):
            while True:
                _refuse([self._requests.get_nowait()])
        for _ in self._threads:
            self._requests.put(None)
        for thread in self._threads:
            thread.join(_GRACE)

    def _serve(self, predictor: OnlinePredictor) -> None:
        """Compute batches until this predictor is closed (in the predictor's thread)."""
        while True:
            with self._gathering:  # One thread at a time, so that a batch is not split among several threads.
                batch = self._next_batch()
            if self._is_closed:
                _refuse(batch)
                return
            groups: dict[Any, list[_Request]] = {}
            for request in batch:
                if request is not None and request.future.set_running_or_notify_cancel():
                    groups.setdefault(tuple([array.shape for array in request.arrays]), []).append(request)
            for requests in groups.values():
                _compute(predictor, requests)

    def _next_batch(self) -> list[_Request | None]:
        """Wait for a request; return it with the requests that follow in time."""
        request = self._requests.get()
        batch = [request]
        deadline = 0.0 if request is None else request.arrived + self._max_wait
        while batch[-1] is not None and len(batch) < self._max_batch:
            try:
                batch.append(self._requests.get(timeout=max(deadline - time.monotonic(), 0)))
            except Empty:
                break
        return batch


@attrs.frozen(eq=False)
class _Request:
    """A datapoint, and the future of its outputs."""

    arrays: list[Array]
    future: Future[Any] = attrs.field(factory=Future)
    arrived: float = attrs.field(factory=time.monotonic)


def _refuse(requests: Sequence[_Request | None]) -> None:
    for request in requests:
        if request is not None and request.future.set_running_or_notify_cancel():
            request.future.set_exception(
                SessionError(
                    "the MultiThreadAsyncPredictor was closed before it computed this request. Wait for the results "
                    "of all requests before you close it."
                )
            )


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
    batch = aligned_empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    return np.stack(arrays, out=batch)


def _rows(results: Any, count: int, predictor: OnlinePredictor) -> list[Any]:
    values = list(results.values()) if predictor.returns_dict else results
    for name, value in zip(predictor.output_names, values, strict=True):
        if np.shape(value)[:1] != (count,):
            raise InputError(
                f"the output {name!r} has shape {np.shape(value)} for a batch of {count}, so it does not have one row "
                "for each datapoint. Choose other outputs."
            )
    if predictor.returns_dict:
        return [dict(zip(results, row, strict=True)) for row in zip(*values, strict=True)]
    return [list(row) for row in zip(*values, strict=True)]


def _check_predictors(predictors: Sequence[Any]) -> None:
    if not predictors or not all(isinstance(predictor, OnlinePredictor) for predictor in predictors):
        raise ConfigError(f"MultiThreadAsyncPredictor takes one or more OnlinePredictors, not {predictors!r}.")
    kinds = [(each.input_specs, each.output_names, each.returns_dict) for each in predictors]
    if any(kind != kinds[0] for kind in kinds):
        raise ConfigError(
            f"the predictors of a MultiThreadAsyncPredictor differ in their inputs or outputs: {predictors!r}. Pass "
            "predictors of one model."
        )


def _check_outputs(predictor: OnlinePredictor) -> None:
    if not predictor.input_specs:
        raise ConfigError(f"requests cannot be batched: {predictor!r} has no inputs.")
    for name, tensor in zip(predictor.output_names, predictor.outputs, strict=True):
        _check_has_batches(f"output {name!r}", tensor.shape, "so it does not have a row for each datapoint")


def _without_batch(spec: Any) -> Any:
    _check_has_batches(f"input {spec.name!r}", spec.shape, "so it does not take batches of any size")
    return tf.TensorSpec(spec.shape[1:] if spec.shape.rank else None, spec.dtype)


def _check_has_batches(what: str, shape: Any, consequence: str) -> None:
    if shape.rank is not None and (shape.rank == 0 or tf.compat.dimension_value(shape[0]) is not None):
        raise ConfigError(
            f"requests cannot be batched: the {what} has shape {shape}, {consequence}. The first dimension must be the "
            "batch dimension, of unknown size (None)."
        )
