"""Data that is fed to placeholders in each step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.fetches import FetchDependencies, ReusableFeeds
from tpk.input_source.base import FlowInput, InputStartStop
from tpk.input_source.meter import StopwatchMeter
from tpk.input_source.stream import DatapointStream
from tpk.plugin.callback import Callback

_SessionRunArgs = tf.compat.v1.train.SessionRunArgs


class FeedInput(FlowInput):
    """Feeds one datapoint for each tower to each run that depends on the input tensors; the run waits for the data.

    An array that starts on a multiple of 64 bytes enters the graph without a copy, if the flow is known not to write to
    it again (see `refills_arrays` of `DataFlow`); otherwise the graph gets a copy.

    Args:
        flow: any iterable of datapoints: lists or tuples by position, or dicts by name.
        infinite: whether to start the flow again when it is exhausted. Otherwise the training ends then;
            the last datapoints are not used if there are fewer of them than towers.

    Raises:
        ConfigError: `flow` cannot be iterated, or is a `tf.data.Dataset`.

    Example:
        ```python
        source = FeedInput(BatchData(flow, 32))
        trainer.setup_graph(signature, source, get_cost, get_optimizer)
        ```
    """

    is_fed = True

    def __init__(self, flow: Iterable[Any], infinite: bool = True) -> None:
        if isinstance(flow, tf.data.Dataset):
            raise ConfigError(
                "FeedInput iterates its data within the trainer's graph, where a tf.data.Dataset cannot be iterated. "
                "Give TFDatasetInput a function that makes the dataset."
            )
        super().__init__(flow, infinite)
        self._callback = _FeedCallback(self, self._stream)

    @property
    def consumed(self) -> int:
        """How many datapoints have left the flow."""
        return self._stream.index - self._callback.waiting

    def make_meter(self) -> StopwatchMeter:
        """Return a meter of the time in the data code."""
        self._callback.meter = StopwatchMeter()
        return self._callback.meter

    def start(self, session: Any) -> None:
        """Start the data; called in `before_train`."""
        self._watch()
        self._reset_state()

    def stop(self) -> None:
        """Stop the data; called in `after_train`."""
        self._unwatch()
        self._stream.finish()

    def _setup(self) -> list[Callback]:
        self._stream.bind(self.signature, self.converter)
        return [self._callback]

    def _get_input_tensors(self) -> list[Any]:
        placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name) for spec in self.signature]
        self._callback.add_tower(placeholders)
        return placeholders

    def _reset_state(self) -> None:
        self._callback.drop()
        self._stream.rewind(self.max_ahead)
        self._stream.start()


class _FeedCallback(InputStartStop):
    """Feeds the placeholders of all towers."""

    def __init__(self, source: FeedInput, stream: DatapointStream) -> None:
        super().__init__(source)
        self._stream = stream
        self._placeholders: list[Any] = []
        self._request = _SessionRunArgs(None, ReusableFeeds(self._placeholders, self._arrays_of_run))
        self._dependencies = FetchDependencies(())
        self._taken: list[Any] | None = None
        self._towers = 0
        self.meter: StopwatchMeter | None = None

    def add_tower(self, placeholders: list[Any]) -> None:
        self._placeholders.extend(placeholders)
        self._dependencies = FetchDependencies([tensor.op for tensor in self._placeholders])
        self._towers += 1

    @property
    def waiting(self) -> int:
        """How many datapoints were taken for the next run."""
        return 0 if self._taken is None else self._towers

    def drop(self) -> None:
        self._taken = None

    def before_run(self, run_context: Any) -> Any:
        # Before the hooks that note the start of the run: waiting for data, or its end, is not a part of the run.
        is_needed = run_context is not None and self._dependencies.among(run_context.original_args.fetches)
        if is_needed and self._taken is None:
            self._taken = self._take()
        return self._request

    def _arrays_of_run(self) -> list[Any]:
        arrays, self._taken = self._taken, None
        return self._take() if arrays is None else arrays

    def _take(self) -> list[Any]:
        return self._next_arrays() if self.meter is None else self.meter.waiting(self._next_arrays)

    def _next_arrays(self) -> list[Any]:
        stream = self._stream
        try:
            arrays: list[Any] = next(stream)
            for _ in range(1, self._towers):
                arrays.extend(next(stream))
        except StopIteration:
            raise tf.errors.OutOfRangeError(
                None, None, f"{stream.owner}: the dataflow ended after {stream.index} datapoints"
            ) from None
        return arrays
