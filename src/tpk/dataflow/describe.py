"""Descriptions of datapoints, for the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tpk.checks import check_at_least
from tpk.dataflow.base import StatefulProxyDataFlow, allocate_with
from tpk.dataflow.memory import Allocate

logger = logging.getLogger(__name__)


class PrintData(StatefulProxyDataFlow):
    """Log what the first datapoints look like: their structure, shapes, dtypes and ranges; all pass through.

    Args:
        flow: any iterable of datapoints.
        num: how many datapoints of the first pass.
        name: what to call them; by default the type of the flow beneath.
        max_depth: how many levels of lists and dicts within lists and dicts are shown.
        max_items: how many items of each of those.

    Raises:
        ConfigError: a number is below 1.

    Example:
        ```python
        flow = PrintData(BatchData(flow, 32))
        # BatchData, datapoint 0: list of 2
        #   0: array of float32, shape (32, 28, 28), from 0 to 1
        #   1: array of int64, shape (32,), from 0 to 9
        ```
    """

    refills_arrays = None

    def __init__(
        self, flow: Iterable[Any], num: int = 1, name: str | None = None, max_depth: int = 3, max_items: int = 3
    ) -> None:
        super().__init__(flow)
        check_at_least(self, 1, num=num, max_depth=max_depth, max_items=max_items)
        self.num = num
        self.name = name or type(flow).__name__
        self.max_depth = max_depth
        self.max_items = max_items
        self._shown = 0

    def __iter__(self) -> Iterator[Any]:
        datapoints = iter(self.upstream)
        if self._shown < self.num:
            for datapoint in datapoints:
                number = self.upstream.delivered - 1
                described = describe(datapoint, self.max_depth, self.max_items)
                logger.info("%s, datapoint %d: %s", self.name, number, described)
                self._shown += 1
                yield datapoint
                if self._shown >= self.num:
                    break
        yield from datapoints
        self._shown = self.num

    def allocate_with(self, allocate: Allocate) -> None:
        """Hand it on: each datapoint is delivered as it comes."""
        allocate_with(self.flow, allocate)


def describe(datapoint: Any, max_depth: int = 3, max_items: int = 3) -> str:
    """Return what a datapoint looks like: one line, and an indented one for each component.

    Args:
        datapoint: anything.
        max_depth: how many levels of lists and dicts are shown.
        max_items: how many items of each.
    """
    return "\n".join(_lines(datapoint, max_depth, max_items))


def _lines(value: Any, max_depth: int, max_items: int) -> list[str]:
    if isinstance(value, Mapping):
        items = [(repr(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return [_leaf(value)]
    lines = [f"{type(value).__name__} of {len(items)}"]
    if not max_depth:
        return lines
    for name, item in items[:max_items]:
        first, *rest = _lines(item, max_depth - 1, max_items)
        lines += [f"  {name}: {first}", *(f"  {line}" for line in rest)]
    if len(items) > max_items:
        lines.append(f"  … {len(items) - max_items} more")
    return lines


def _leaf(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return f"{type(value).__name__} of length {len(value)}: {value[:_TEXT]!r}{'…' if len(value) > _TEXT else ''}"
    if isinstance(value, np.generic) or not hasattr(value, "shape"):
        return f"{type(value).__name__}: {value!r}"[:_LINE]
    described = f"array of {value.dtype}, shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size:
        described += f", from {value.min():g} to {value.max():g}"
        if value.dtype.kind == "f" and (bad := value.size - int(np.isfinite(value).sum())):
            described += f", {bad} of {value.size} not finite"
    return described


_TEXT = 40
_LINE = 100
