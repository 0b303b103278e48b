"""What was restored and what was not, as one table in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import attrs

logger = logging.getLogger(__name__)

STATUSES = ("mismatched", "missing", "unused", "loaded")
"""In the order of the table: what may need attention stands first."""

_MAX_ROWS = {"mismatched": 20, "missing": 20, "unused": 20, "loaded": 10}
_MAX_NAME = 72
_HEADER = ("", "name", "in the graph", "stored", "")


@attrs.frozen
class Row:
    """One name, and what became of it.

    Attributes:
        status: ``"loaded"``, ``"missing"`` (in the graph only), ``"unused"`` (stored only), or ``"mismatched"``
            (in both, but it does not fit).
        name: the name; in the graph, if it is there.
        graph_shape: the shape in the graph; empty if it is not there.
        stored_shape: the shape of what is stored; empty if there is none.
        note: what was done, if it is not what one expects.
    """

    status: str
    name: str
    graph_shape: str
    stored_shape: str
    note: str = ""


def log_table(rows: Sequence[Row], sources: Sequence[str]) -> None:
    """Write `rows` to the log: a bounded number of each status, and all of them at DEBUG.

    It is a warning if anything was not loaded.

    Args:
        rows: all names.
        sources: where the values came from.
    """
    text, is_whole = format_table(rows, sources)
    is_clean = all(row.status == "loaded" for row in rows)
    logger.log(logging.INFO if is_clean else logging.WARNING, "%s", text)
    if not is_whole and logger.isEnabledFor(logging.DEBUG):
        logger.debug("all of them:\n%s", "\n".join(_align([_HEADER, *map(_cells, _in_order(rows))])))


def format_table(rows: Sequence[Row], sources: Sequence[str]) -> tuple[str, bool]:
    """Return the table, in a bounded number of lines, and whether it shows all names in full.

    Args:
        rows: all names.
        sources: where the values came from.
    """
    counts = {status: sum(row.status == status for row in rows) for status in STATUSES}
    others = "".join(f", {counts[status]:,} {status}" for status in STATUSES if counts[status] and status != "loaded")
    summary = f"restored {counts['loaded']:,} variables from {', then '.join(sources)}{others}"
    cells = [_HEADER]
    is_whole = True
    for status in STATUSES:
        group = [row for row in rows if row.status == status]
        # Among many that went as expected, those with a remark are the ones to see.
        shown = sorted(group, key=lambda row: not row.note)[: _MAX_ROWS[status]] if status == "loaded" else group
        shown = shown[: _MAX_ROWS[status]]
        cells += [_cells(attrs.evolve(row, name=_shorten(row.name))) for row in _in_order(shown)]
        if len(shown) < len(group):
            cells.append((status, f"… and {len(group) - len(shown):,} more", "", "", ""))
        is_whole &= len(shown) == len(group) and all(len(row.name) <= _MAX_NAME for row in shown)
    return "\n".join([summary, *_align(cells)]), is_whole


def _in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (STATUSES.index(row.status), row.name))


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    return row.status, row.name, row.graph_shape or "-", row.stored_shape or "-", row.note


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _shorten(name: str) -> str:
    """Return `name`, with its middle left out if it is long: both ends tell names apart."""
    half = (_MAX_NAME - 1) // 2
    return name if len(name) <= _MAX_NAME else f"{name[:half]}…{name[-half:]}"
