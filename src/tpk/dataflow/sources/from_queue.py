"""Datapoints that somebody else puts into a queue."""

from __future__ import annotations

import copy
import logging
import queue
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tpk.checks import check_positive
from tpk.dataflow.base import DataFlow, check_share
from tpk.errors import ConfigError, InputError

logger = logging.getLogger(__name__)


class GetsItems(Protocol):
    """What a queue must offer."""

    def get(self, block: bool = ..., timeout: float | None = ...) -> Any:
        """Return the next item; raise `queue.Empty` if none came within `timeout` seconds."""


class DataFromQueue(DataFlow):
    """Deliver what somebody puts into a queue, until they put None.

    A None ends a pass; the next pass delivers what comes after it. A queue that is shut down ends the pass as well.

    A resumed run takes what is in the queue then: what went through it before cannot be had again. Several workers may
    share one queue; each datapoint goes to one of them, and each needs a None of its own.

    Args:
        queue: a `queue.Queue`, a `multiprocessing.Queue`, or whatever else has their ``get(timeout=...)``.
        timeout: seconds without a datapoint after which waiting is an error; None waits for ever.
        warn_after: seconds without a datapoint after which a warning is logged, and again each time that they pass.

    Raises:
        ConfigError: `queue` has no ``get``, or a time is not positive.
        InputError: no datapoint came for `timeout` seconds.

    Example:
        ```python
        datapoints = queue.Queue(maxsize=100)
        flow = BatchData(DataFromQueue(datapoints, timeout=300), 32)
        # in another thread: datapoints.put([image, label]), and datapoints.put(None) in the end
        ```
    """

    def __init__(self, queue: GetsItems, timeout: float | None = None, warn_after: float = 60.0) -> None:
        if not callable(getattr(queue, "get", None)):
            raise ConfigError(f"DataFromQueue: queue must have get(timeout=...) as queue.Queue has, not {queue!r}")
        check_positive(self, timeout=timeout, warn_after=warn_after)
        self.queue = queue
        self.timeout = timeout
        self.warn_after = warn_after

    def __iter__(self) -> Iterator[Any]:
        number = 0
        while (datapoint := self._get(number)) is not None:
            number += 1
            yield datapoint

    def _get(self, number: int) -> Any:
        waited = 0.0
        while True:
            wait = self.warn_after if self.timeout is None else min(self.warn_after, self.timeout - waited)
            try:
                return self.queue.get(timeout=wait)
            except queue.Empty:
                waited += wait
            except _SHUT_DOWN:
                return None
            if self.timeout is not None and waited >= self.timeout:
                raise InputError(
                    f"DataFromQueue: datapoint {number} did not come within {self.timeout:g} seconds. Does whoever "
                    "fills the queue still run? It ends the data by putting None."
                )
            logger.warning(
                "DataFromQueue has waited %g seconds for datapoint %d; does whoever fills the queue still run?",
                waited,
                number,
            )

    def shard_blocks(self, index: int, count: int, block: int) -> DataFlow:
        """Return a flow from the same queue: each datapoint goes to one of the workers."""
        check_share(index, count)
        return copy.copy(self)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: a queue has no position."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Leave the queue as it is."""


# Only Python 3.13 and later have it; an empty tuple catches nothing.
_SHUT_DOWN: Any = getattr(queue, "ShutDown", ())
