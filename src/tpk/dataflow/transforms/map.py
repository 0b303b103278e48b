"""Functions applied to each datapoint, or to one component of it; selection of components."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from tpk.dataflow.base import DataFlow, Share, StatefulProxyDataFlow, flow_length, name_of
from tpk.errors import ConfigError, InputError, add_note

logger = logging.getLogger(__name__)


class MapData(StatefulProxyDataFlow):
    """Apply a function to each datapoint, and drop the datapoint if the function returns None.

    `len` returns the length of the flow beneath, which is too large if datapoints are dropped. The first dropped
    datapoint of a flow with a length is therefore logged as a warning. Workers apply the function to their shares only:
    if it drops datapoints, they make other batches than a single process.

    Args:
        flow: any iterable of datapoints.
        func: takes a datapoint and returns a datapoint or None. Its exceptions get a note with the datapoint's number.
            Resume is exact if its result depends only on the datapoint.

    Raises:
        ConfigError: `func` is not callable.
    """

    def __init__(self, flow: Iterable[Any], func: Callable[[Any], Any]) -> None:
        super().__init__(flow)
        _check_function(func, type(self).__name__)
        self.func = func
        self._has_dropped = False

    def __iter__(self) -> Iterator[Any]:
        func = self.func
        datapoint = None
        try:
            for datapoint in self.upstream:
                mapped = func(datapoint)
                if mapped is None:
                    self._note_dropped()
                # Free a large datapoint while its result is in use.
                datapoint = None
                if mapped is not None:
                    yield mapped
        except Exception as error:
            if datapoint is not None:
                add_note(error, f"{type(self).__name__}: datapoint {self.upstream.delivered - 1}, {name_of(func)}")
            raise

    def _note_dropped(self) -> None:
        if self._has_dropped:
            return
        self._has_dropped = True
        length = flow_length(self)
        if length is None:
            return
        logger.warning(
            "%s: %s dropped datapoint %d, so a pass delivers fewer datapoints than the length of the flow, %d",
            type(self).__name__,
            name_of(self.func),
            self.upstream.delivered - 1,
            length,
        )


class MapDataComponent(MapData):
    """Apply a function to one component of each datapoint, and drop the datapoint if the function returns None.

    The datapoint of the flow beneath does not change: the result is a shallow copy, a dict for a dict and a list for a
    list or tuple.

    Args:
        flow: any iterable of datapoints.
        func: takes the component and returns the new one or None.
        component: its index in a list or tuple, or its key in a dict.

    Raises:
        ConfigError: `func` is not callable.
        InputError: a datapoint lacks the component.
    """

    def __init__(self, flow: Iterable[Any], func: Callable[[Any], Any], component: int | str = 0) -> None:
        _check_function(func, type(self).__name__)
        super().__init__(flow, _OnComponent(func, component))
        self.component = component


class SelectComponent(MapData):
    """Deliver some components of each datapoint, in the given order.

    Args:
        flow: any iterable of datapoints.
        components: indices, which give a list, or keys of dicts, which give a dict.

    Raises:
        ConfigError: `components` is not a list of them.
        InputError: a datapoint has no such component.

    Example:
        ```python
        flow = SelectComponent([["a.png", image, label]], [1, 2])  # delivers [image, label]
        ```
    """

    refills_arrays = None

    def __init__(self, flow: Iterable[Any], components: Sequence[int | str]) -> None:
        if isinstance(components, str) or not isinstance(components, Sequence) or not components:
            raise ConfigError(f"SelectComponent: components must be a list of indices or keys, not {components!r}")
        super().__init__(flow, Selection(tuple(components)))
        self.components = list(components)


@attrs.frozen
class _OnComponent:
    """The function of `MapDataComponent`; a class, so that it can be pickled."""

    func: Callable[[Any], Any]
    component: int | str

    def __call__(self, datapoint: Any) -> Any:
        try:
            value = datapoint[self.component]
        except (LookupError, TypeError) as error:
            raise _missing(self.component, datapoint) from error
        mapped = self.func(value)
        if mapped is None:
            return None
        copy: Any = dict(datapoint) if _is_mapping(datapoint) else list(datapoint)
        copy[self.component] = mapped
        return copy


@attrs.frozen
class Selection:
    """The function of `SelectComponent`."""

    components: tuple[int | str, ...]

    def __call__(self, datapoint: Any) -> Any:
        """Return the components of a datapoint."""
        component: int | str = ""
        selected = []
        try:
            for component in self.components:
                selected.append(datapoint[component])
        except (LookupError, TypeError) as error:
            raise _missing(component, datapoint) from error
        return dict(zip(self.components, selected, strict=True)) if _is_mapping(datapoint) else selected


def _missing(component: int | str, datapoint: Any) -> InputError:
    return InputError(f"the datapoint has no component {component!r}; it {describe_components(datapoint)}")


def _is_mapping(datapoint: Any) -> bool:
    # A check against the abstract class is slow, so it comes last.
    return not isinstance(datapoint, (list, tuple)) and isinstance(datapoint, Mapping)


def describe_components(datapoint: Any) -> str:
    """Return the components of a datapoint as the end of a sentence that begins with "the datapoint"."""
    if isinstance(datapoint, Mapping):
        return f"has the keys {list(datapoint)}"
    if isinstance(datapoint, (list, tuple)):
        return f"has {len(datapoint)} components"
    return f"is of type {type(datapoint).__name__}, which is not a list, tuple or dict"


def _check_function(func: object, owner: str) -> None:
    if not callable(func):
        raise ConfigError(f"{owner}: func must be a function of a datapoint or component, not {func!r}")


def log_undivided(share: Iterable[Any], owner: str, whose: str, level: int) -> None:
    """Log which flows beneath a share every worker has to iterate completely, and what to do about it.

    Flows beneath a `MapData` are not reported: its function does the work, and is applied to the share only.

    Args:
        share: the result of `shard`.
        owner: the flow or input that divides the data, for the message.
        whose: the workers, such as ``"its 4 workers"``.
        level: the log level of the message.
    """
    for flow in _undivided(share):
        kind = type(flow).__name__
        logger.log(
            level,
            "%s: %s cannot be divided, so each of %s makes all of its datapoints and drops the rest: many "
            "workers are as slow as one. Let it deliver something cheap, such as indices or file names, and do the "
            "work in a MapData on top, whose function each worker applies to its own share only; or use a sequence (an "
            "object with len() and []) instead, of which each worker reads its own items only.",
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
