"""Apply a function to each datapoint, or to one component of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tpk.dataflow.base import ProxyDataFlow
from tpk.errors import InputError


class MapData(ProxyDataFlow):
    """Apply a function to each datapoint; where it returns None, the datapoint is dropped.

    The length is that of the flow beneath, so it is too large where the function drops datapoints.

    Args:
        flow: any iterable of datapoints.
        func: takes a datapoint, returns a datapoint or None.
    """

    def __init__(self, flow: Iterable[Any], func: Callable[[Any], Any]) -> None:
        super().__init__(flow)
        self.func = func

    def __iter__(self) -> Iterator[Any]:
        for datapoint in self.flow:
            mapped = self.func(datapoint)
            if mapped is not None:
                yield mapped


class MapDataComponent(MapData):
    """Apply a function to one component of each datapoint; where it returns None, the datapoint is dropped.

    The datapoint of the flow beneath is left as it is: what is delivered is a shallow copy, a dict of a dict
    and a list of a list or tuple.

    Args:
        flow: any iterable of datapoints.
        func: takes the component, returns the new one or None.
        component: its index in a list or tuple, or its key in a dict.

    Raises:
        InputError: a datapoint has no such component.
    """

    def __init__(self, flow: Iterable[Any], func: Callable[[Any], Any], component: int | str = 0) -> None:
        super().__init__(flow, self._map_component)
        self.component_func = func
        self.component = component

    def _map_component(self, datapoint: Any) -> Any:
        try:
            value = datapoint[self.component]
        except (LookupError, TypeError) as error:
            has = f"the keys {list(datapoint)}" if isinstance(datapoint, Mapping) else _size(datapoint)
            raise InputError(f"MapDataComponent: no component {self.component!r} in a datapoint with {has}") from error
        mapped = self.component_func(value)
        if mapped is None:
            return None
        copy: Any = dict(datapoint) if isinstance(datapoint, Mapping) else list(datapoint)
        copy[self.component] = mapped
        return copy


def _size(datapoint: Any) -> str:
    if isinstance(datapoint, (list, tuple)):
        return f"{len(datapoint)} components"
    return f"the type {type(datapoint).__name__}, which is not a list, tuple or dict"
