"""What can be told of a dataflow without iterating it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpk.dataflow.base import DataFlow


def flow_size(flow: Iterable[Any]) -> int | None:
    """Return the length of a dataflow, or None where it has or knows none."""
    try:
        return len(flow)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


def describe_flow(flow: Iterable[Any]) -> str:
    """Return of which classes a dataflow is composed, such as ``"BatchData(DataFromList)"``.

    Two flows of which that differs cannot have a position in common.
    """
    kind = type(flow).__name__
    sources = flow.sources if isinstance(flow, DataFlow) else ()
    return f"{kind}({', '.join(map(describe_flow, sources))})" if sources else kind
