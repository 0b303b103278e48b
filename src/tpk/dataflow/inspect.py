"""Tools for looking into a flow: what its datapoints look like, and how fast each of its stages is."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import attrs
import numpy as np

from tpk.argument_checks import check_at_least, check_positive, given
from tpk.dataflow.base import (
    DataFlow,
    ProxyDataFlow,
    RNGDataFlow,
    StatefulDataFlow,
    StatefulProxyDataFlow,
    check_iterable,
    reset_state,
    shard,
)
from tpk.dataflow.combine import CombinedDataFlow
from tpk.dataflow.position import close_iterator, in_parts
from tpk.dataflow.transforms.batch import BatchData, BatchDataByShape
from tpk.errors import ConfigError, InputError
from tpk.text import text_table

logger = logging.getLogger(__name__)


class PrintData(StatefulProxyDataFlow):
    """Log what the first datapoints look like: their structure, shapes, dtypes and ranges; all pass through.

    Args:
        flow: any iterable of datapoints.
        num: number of datapoints of the first pass to log.
        name: what to call them; by default the type of the flow beneath.
        max_depth: how many levels of nested lists and dicts to describe.
        max_list: how many items of each list or dict to describe.

    Raises:
        ConfigError: a number is less than 1.

    Example:
        ```python
        flow = PrintData(BatchData(flow, 32))
        # BatchData, datapoint 0: list of 2
        #   0: array of float32, shape (32, 28, 28), from 0 to 1
        #   1: array of int64, shape (32,), from 0 to 9
        ```
    """

    refills_arrays = None
    delivers_unchanged = True

    def __init__(
        self, flow: Iterable[Any], num: int = 1, name: str | None = None, max_depth: int = 3, max_list: int = 3
    ) -> None:
        super().__init__(flow)
        check_at_least(self, 1, num=num, max_depth=max_depth, max_list=max_list)
        self.num = num
        self.max_depth = max_depth
        self.max_list = max_list
        self.name = name or type(flow).__name__
        self._shown = 0

    @in_parts
    def __iter__(self) -> Generator[Iterator[Any], None, None]:
        datapoints = iter(self.upstream)
        yield map(self._show, islice(datapoints, self.num - self._shown))
        yield datapoints
        self._shown = self.num

    def _show(self, datapoint: Any) -> Any:
        number = self.upstream.delivered - 1
        logger.info("%s, datapoint %d: %s", self.name, number, describe(datapoint, self.max_depth, self.max_list))
        self._shown += 1
        return datapoint


def describe(datapoint: Any, max_depth: int = 3, max_items: int = 3) -> str:
    """Return what a datapoint looks like: one line, and an indented one for each component.

    Args:
        datapoint: anything.
        max_depth: how many levels of lists and dicts are shown.
        max_items: how many items of each.
    """
    if isinstance(datapoint, Mapping):
        items = [(repr(key), item) for key, item in datapoint.items()]
    elif isinstance(datapoint, (list, tuple)):
        items = [(str(index), item) for index, item in enumerate(datapoint)]
    else:
        return _leaf(datapoint)
    lines = [f"{type(datapoint).__name__} of {len(items)}"]
    if not max_depth:
        return lines[0]
    for name, item in items[:max_items]:
        lines.append(f"{name}: {describe(item, max_depth - 1, max_items)}")
    if len(items) > max_items:
        lines.append(f"… {len(items) - max_items} more")
    return "\n".join(lines).replace("\n", "\n  ")


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


@attrs.frozen
class StageSpeed:
    """The speed of one flow in a tree of flows.

    Attributes:
        name: the type of the flow.
        depth: number of flows on top of it.
        datapoints: number of datapoints it delivered; 0 if it could not be measured.
        seconds: its time, without the time of the flows beneath.
        share: its share of the total time, from 0 to 1.
        in_worker: whether it runs in workers. Then the numbers are those of one worker, which is measured in this
            process, after the flow above it.
    """

    name: str
    depth: int
    datapoints: int
    seconds: float
    share: float
    in_worker: bool = False


@attrs.frozen
class SpeedReport:
    """The speed of a flow.

    Attributes:
        datapoints: number of datapoints delivered.
        seconds: the total time.
        megabytes: size of the arrays in them, in 10**6 bytes.
        stages: the flow and the flows beneath, from top to bottom.
        unit: what the flow delivers: ``"batches"`` if there is a `BatchData` in it, otherwise ``"datapoints"``.
    """

    datapoints: int
    seconds: float
    megabytes: float
    stages: tuple[StageSpeed, ...]
    unit: str = "datapoints"

    @property
    def datapoints_per_second(self) -> float:
        """Datapoints per second."""
        return self.datapoints / self.seconds if self.seconds else float("inf")

    @property
    def megabytes_per_second(self) -> float:
        """Megabytes of arrays per second."""
        return self.megabytes / self.seconds if self.seconds else float("inf")

    def __str__(self) -> str:
        rows = []
        for stage in self.stages:
            figures = ["elsewhere", "", ""]
            if stage.datapoints:
                figures = [str(stage.datapoints), f"{stage.seconds:.3f}", f"{stage.share:.1%}"]
            rows.append(["  " * stage.depth + stage.name + (" *" if stage.in_worker else ""), *figures])
        figure_names = ["datapoints", "seconds", "share"]
        total = (
            f"{self.datapoints} {self.unit} in {self.seconds:.3f} seconds: {self.datapoints_per_second:,.1f} "
            f"{self.unit}/s, {self.megabytes_per_second:,.1f} MB/s"
        )
        lines = [total, *text_table(["stage", *figure_names], rows, right=figure_names)]
        if any(stage.in_worker for stage in self.stages):
            lines.append("* runs in workers; the numbers are those of one worker, measured in this process")
        return "\n".join(lines)


def measure_speed(
    flow: Iterable[Any],
    size: int | None = None,
    seconds: float | None = 10.0,
    warmup: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> SpeedReport:
    """Iterate a flow repeatedly, and report its speed.

    Args:
        flow: any iterable of datapoints; its ``reset_state()`` is called first.
        size: number of datapoints to measure; None measures until the time is up.
        seconds: time limit; None measures until there are `size` datapoints.
        warmup: number of datapoints before the measurement. Parallel flows make many ahead while they start.
        clock: returns seconds.

    Raises:
        ConfigError: both limits are None, or a number is invalid.
        InputError: the flow delivers no datapoint after the warm-up.
    """
    check_iterable(flow, "measure_speed")
    if size is None and seconds is None:
        raise ConfigError("measure_speed must have a limit: size, seconds, or both")
    check_at_least("measure_speed", 1, **given(size=size))
    check_at_least("measure_speed", 0, warmup=warmup)
    check_positive("measure_speed", **given(seconds=seconds))
    timed = _timed(flow, clock)
    elapsed, size_in_bytes = timed.run(size, seconds, warmup)
    count = timed.datapoints
    if not count:
        raise InputError(
            f"measure_speed: {type(flow).__name__} delivered no datapoint" + (f" after {warmup}" if warmup else "")
        )
    return SpeedReport(count, elapsed, size_in_bytes / 1e6, tuple(timed.report(elapsed)), timed.unit)


class TestDataSpeed(StatefulProxyDataFlow):
    """Measure the speed of a flow before its first pass, log a table of its stages, then deliver the flow.

    Args:
        flow: any iterable of datapoints.
        size: number of datapoints to measure.
        warmup: number of datapoints before the measurement.

    Raises:
        ConfigError: a number is invalid.

    Example:
        ```python
        report = TestDataSpeed(flow, size=1000).start()
        print(report)
        ```
    """

    refills_arrays = None
    delivers_unchanged = True

    __test__ = False  # not a test that pytest should collect

    def __init__(self, flow: Iterable[Any], size: int = 5000, warmup: int = 0) -> None:
        super().__init__(flow)
        check_at_least(self, 1, size=size)
        check_at_least(self, 0, warmup=warmup)
        self.test_size = size
        self.warmup = warmup
        self.report: SpeedReport | None = None

    def start(self) -> SpeedReport:
        """Measure now, and return the report.

        Raises:
            InputError: the flow is empty.
        """
        self.report = measure_speed(self.flow, self.test_size, None, self.warmup)
        logger.info("The speed of %s:\n%s", type(self.flow).__name__, self.report)
        return self.report

    def __iter__(self) -> Iterator[Any]:
        if self.report is None:
            self.start()
        yield from self.upstream


def array_bytes(datapoint: Any) -> int:
    """Return the size of the arrays in a datapoint in bytes."""
    size = getattr(datapoint, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(datapoint, (list, tuple)):
        return sum(map(array_bytes, datapoint))
    if isinstance(datapoint, dict):
        return sum(map(array_bytes, datapoint.values()))
    return 0


class _Timed(DataFlow):
    """A flow that is timed, on top of timed flows."""

    refills_arrays = None

    def __init__(self, flow: Iterable[Any], untimed: Iterable[Any], clock: Callable[[], float]) -> None:
        self.flow, self.untimed, self.clock = flow, untimed, clock
        self.restart()

    @property
    def beneath(self) -> list[_Timed]:
        sources = self.flow.sources if isinstance(self.flow, DataFlow) else ()
        return [source for source in sources if isinstance(source, _Timed)]

    @property
    def sources(self) -> tuple[Iterable[Any], ...]:
        return (self.flow,)

    def restart(self) -> None:
        self.seconds, self.datapoints = 0.0, 0
        for stage in self.beneath:
            stage.restart()

    def __len__(self) -> int:
        return len(self.flow)  # type: ignore[arg-type]

    def shard(self, index: int, count: int) -> DataFlow:
        # A worker is timed from outside.
        return shard(self.untimed, index, count)

    def __iter__(self) -> Iterator[Any]:
        clock = self.clock
        begin = clock()
        iterator = iter(self.flow)
        try:
            for datapoint in iterator:
                self.seconds += clock() - begin
                self.datapoints += 1
                yield datapoint
                begin = clock()
            self.seconds += clock() - begin
        finally:
            close_iterator(iterator, self.flow)

    @property
    def unit(self) -> str:
        if isinstance(self.untimed, (BatchData, BatchDataByShape)):
            return "batches"
        return next((stage.unit for stage in self.beneath if stage.unit == "batches"), "datapoints")

    def report(self, whole: float, depth: int = 0, in_worker: bool = False) -> Iterator[StageSpeed]:
        beneath = self.beneath
        # Flows beneath that run in threads may take longer than this flow waits for them.
        own = max(self.seconds - sum(stage.seconds for stage in beneath), 0.0)
        share = own / whole if whole else 0.0
        yield StageSpeed(type(self.untimed).__name__, depth, self.datapoints, own, share, in_worker)
        for stage in beneath:
            if self.datapoints and not stage.datapoints:  # workers iterate shares of it
                elapsed, _ = stage.run(None, whole)
                yield from stage.report(elapsed, depth + 1, in_worker=True)
            else:
                yield from stage.report(whole, depth + 1, in_worker)

    def run(self, size: int | None, seconds: float | None, warmup: int = 0) -> tuple[float, int]:
        """Iterate this flow after a warm-up, and return the seconds that took and the size of the arrays in bytes."""
        reset_state(self)
        datapoints = _endless(self)
        try:
            for _ in islice(datapoints, warmup):
                pass
            self.restart()
            begin, elapsed, size_in_bytes = self.clock(), 0.0, 0
            for datapoint in islice(datapoints, size):
                elapsed = self.clock() - begin
                size_in_bytes += array_bytes(datapoint)
                if seconds is not None and elapsed >= seconds:
                    break
        finally:
            datapoints.close()
            self.close()
        return elapsed, size_in_bytes


def _timed(flow: Iterable[Any], clock: Callable[[], float]) -> _Timed:
    """Return a timed copy of a flow on top of timed copies; the flow keeps its own position."""
    if isinstance(flow, (ProxyDataFlow, CombinedDataFlow)):
        sources = [_timed(source, clock) for source in flow.sources]
        return _Timed(flow.with_sources(sources) if sources else flow, flow, clock)
    own = copy.copy(flow) if isinstance(flow, (StatefulDataFlow, RNGDataFlow)) else flow
    return _Timed(own, flow, clock)


def _endless(flow: _Timed) -> Any:
    """Iterate a flow pass after pass, until a pass is empty."""
    delivered = True
    while delivered:
        delivered = False
        for datapoint in flow:
            delivered = True
            yield datapoint
