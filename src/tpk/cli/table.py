"""Tables of the commands."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    **dict.fromkeys(("failed", "conflict", "killed"), "bold red"),
    **dict.fromkeys(("warning", "interrupted", "blocked"), "yellow"),
    **dict.fromkeys(("running", "ok", "finished"), "green"),
}
"""The styles of cells that begin with these words."""

_UNLIMITED = 100_000
_GAP = 2
"""The number of spaces between columns."""


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    crop: bool = False,
    kept: int | None = None,
    console: Console | None = None,
) -> None:
    """Print `rows` under `header`. In a terminal, long cells are folded, between words if possible, so that they fit.

    Args:
        header: the titles of the columns.
        rows: the cells.
        crop: crop the last column instead, so that each row is one line.
        kept: the number of columns that are always shown; the others are left out if the terminal is too narrow.
        console: where to print; stdout by default.
    """
    # Slow to import.
    from rich.console import Console as Terminal
    from rich.table import Table
    from rich.text import Text

    if console is None:
        console = Terminal(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED)
    titles, *body = ([printable(cell) for cell in row] for row in (header, *rows))
    columns = list(zip(titles, *body, strict=True))
    # No word is broken, if there is room for that.
    widths = [max(len(word) for cell in column for word in cell.split()) for column in columns]
    if kept is not None:
        widths[kept:] = [max(map(len, column)) for column in columns[kept:]]
        ends = itertools.accumulate(width + _GAP for width in widths)
        del widths[max(kept, sum(end <= console.width for end in ends)) :]
    has_room = not crop and sum(width + _GAP for width in widths) <= console.width
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for number, (title, width) in enumerate(zip(titles, widths, strict=False), 1):
        is_whole = crop and number < len(header)
        table.add_column(Text(title), overflow="fold", no_wrap=is_whole, min_width=width if has_room else None)
    for row in body:
        # In `Text`, brackets are not markup.
        cells = [Text(cell, style=_style(cell), no_wrap=crop) for cell in row[: len(widths)]]
        if crop:
            cells[-1].overflow = "ellipsis"
        table.add_row(*cells)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip(), file=console.file)


def _style(cell: str) -> str:
    return _STYLES.get(cell.partition(" ")[0].rstrip(":,"), "")


def printable(text: str) -> str:
    """Return `text` as one line, with control characters escaped, as in ``\\x1b``."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
