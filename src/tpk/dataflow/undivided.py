"""Undivided flows: those of which each worker makes all datapoints, to drop what is the share of the others."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from tpk.dataflow.base import DataFlow, Share
from tpk.dataflow.transforms.map import MapData

logger = logging.getLogger(__name__)


def tell_of_undivided(share: Iterable[Any], owner: str, whose: str, level: int) -> None:
    """Log which flow beneath a share each worker makes as a whole, and what to do about it.

    What stands beneath a `MapData` is left alone: the work is in its function, which is applied to the share only.

    Args:
        share: what `shard` has returned.
        owner: who has divided the flow, for the message.
        whose: the workers, such as ``"its 4 workers"``.
        level: of the message.
    """
    for flow in _undivided(share):
        kind = type(flow).__name__
        logger.log(
            level,
            "%s: %s cannot be divided, so each of %s makes all of its datapoints and drops those of the others: as "
            "many of them are no faster than one. Let it deliver what costs little, such as indices or file names, and "
            "do the work in a MapData on top of it, whose function each applies to its own share only; or give a "
            "sequence (an object with len() and []) in its place, of which each touches its own items only.",
            owner,
            kind,
            whose,
        )


def _undivided(flow: Iterable[Any]) -> list[Iterable[Any]]:
    if isinstance(flow, Share):
        return _undivided(flow.flow) or [flow.flow]
    if isinstance(flow, MapData) or not isinstance(flow, DataFlow):
        return []
    return [found for source in flow.sources for found in _undivided(source)]
