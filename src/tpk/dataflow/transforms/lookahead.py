"""Base of the dataflows that take datapoints ahead of what they deliver, and yet can say where they stand."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from tpk.dataflow.base import StatefulProxyDataFlow

logger = logging.getLogger(__name__)


class LookaheadDataFlow(StatefulProxyDataFlow):
    """A proxy that takes datapoints ahead of what it delivers; a resumed one takes them again, and delivers in silence.

    Its state is where the flow beneath stood when all that was taken had been delivered, and how many datapoints were
    delivered since. So it is at the beginning of a pass; a subclass that has caught up at other times, too, says so.

    Example:
        ```python
        class Pairs(LookaheadDataFlow):
            def deliver(self, datapoints):
                for first in datapoints:
                    second = next(datapoints, None)
                    yield [first, second]
                    self.caught_up()
        ```
    """

    @abstractmethod
    def deliver(self, datapoints: Iterator[Any]) -> Iterator[Any]:
        """Deliver a pass, given what the flow beneath delivers."""

    def caught_up(self) -> None:
        """Say that what was taken from the flow beneath so far has been delivered."""
        self.place = {"caught_up": self.upstream.state_dict(), "since": 0}

    def __iter__(self) -> Iterator[Any]:
        for datapoint in self._start():
            self.place["since"] += 1
            yield datapoint
        self.place = None

    def _start(self) -> Iterator[Any]:
        """Return what is to be delivered in this pass: all, or what comes after the place that was loaded."""
        place = self.begin()
        datapoints = iter(self.upstream)
        self.caught_up()
        delivered = self.deliver(datapoints)
        if place is not None and place["since"]:
            for _ in islice(delivered, place["since"]):
                self.place["since"] += 1
            logger.info(
                "%s goes on in the middle of a pass: made %d datapoints again that had been delivered",
                type(self).__name__,
                place["since"],
            )
        return delivered

    def break_off(self) -> None:
        """Let the next iteration begin the next pass, even if a pass is under way."""
        if self._is_loaded and self.place is not None:
            self._start()  # so that the flow beneath is as far in the pass as it was
        super().break_off()

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration under way stands."""
        state = super().state_dict()
        if self.place is not None:
            del state["upstreams"]  # it is further on, by what was taken ahead
            state["place"] = dict(self.place)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on from there."""
        place = state["place"]
        super().load_state_dict({"upstreams": [place["caught_up"]], **state} if place is not None else state)
