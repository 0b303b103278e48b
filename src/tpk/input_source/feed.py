"""Data that is fed to placeholders, along with each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import tensorflow as tf

from tpk.input_source.base import InputCallback, InputSource, flow_size
from tpk.input_source.stream import DatapointStream
from tpk.plugin.callback import Callback

_SessionRunArgs = tf.compat.v1.train.SessionRunArgs


class FeedInput(InputSource):
    """Feeds one datapoint for each tower in each step; the step waits for the data.

    Args:
        flow: any iterable of datapoints: lists or tuples by position, or dicts by name.
        infinite: whether the flow is started again when it is exhausted. Otherwise the training ends then;
            datapoints that are left over because they do not suffice for all towers are not used.

    Raises:
        ConfigError: `flow` cannot be iterated.

    Example:
        ```python
        source = FeedInput(BatchData(flow, 32))
        trainer.setup_graph(signature, source, get_cost, get_optimizer)
        ```
    """

    def __init__(self, flow: Iterable[Any], infinite: bool = True) -> None:
        self.flow = flow
        self._stream = DatapointStream(flow, infinite=infinite, owner=type(self).__name__)
        self._callback = _FeedCallback(self, self._stream)

    @property
    def size(self) -> int | None:
        """The length of the flow, or None if it has none."""
        return flow_size(self.flow)

    def state_dict(self) -> dict[str, Any]:
        """Return the flow's position if it keeps one; nothing is read ahead, so it is the training's."""
        get_state = getattr(self.flow, "state_dict", None)
        return {"flow": get_state()} if get_state is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the flow back its position."""
        if state and hasattr(self.flow, "load_state_dict"):
            self.flow.load_state_dict(state["flow"])
        else:
            super().load_state_dict(state)

    def _setup(self) -> list[Callback]:
        self._stream.bind(self.signature)
        return [self._callback]

    def _get_input_tensors(self) -> list[Any]:
        placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape, name=spec.name) for spec in self.signature]
        self._callback.add_tower(placeholders)
        return placeholders

    def _reset_state(self) -> None:
        self._stream.start()


class _FeedCallback(InputCallback):
    """Feeds the placeholders of all towers."""

    def __init__(self, source: FeedInput, stream: DatapointStream) -> None:
        self._source = source
        self._stream = stream
        self._placeholders: list[Any] = []
        self._towers = 0

    def add_tower(self, placeholders: list[Any]) -> None:
        self._placeholders.extend(placeholders)
        self._towers += 1

    def before_train(self, trainer: Any) -> None:
        self._source.reset_state()

    def before_run(self, run_context: Any) -> Any:
        stream = self._stream
        try:
            if self._towers == 1:
                arrays: Iterable[Any] = next(stream)
            else:
                arrays = chain.from_iterable([next(stream) for _ in range(self._towers)])
        except StopIteration:
            raise tf.errors.OutOfRangeError(
                None, None, f"{stream.owner}: the dataflow ended after {stream.index} datapoints"
            ) from None
        return _SessionRunArgs(None, dict(zip(self._placeholders, arrays)))  # noqa: B905 - hot

    def after_train(self, trainer: Any) -> None:
        self._stream.close()
