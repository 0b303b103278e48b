"""Tables of the commands."""

from __future__ import annotations

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


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, crop: bool = False, console: Console | None = None
) -> None:
    """Print `rows` under `header`. In a terminal, long cells are folded so that the table fits.

    Args:
        header: the titles of the columns.
        rows: the cells.
        crop: crop the last column instead, so that each row is one line.
        console: where to print; stdout by default.
    """
    # Slow to import.
    from rich.console import Console as Terminal
    from rich.table import Table
    from rich.text import Text

    if console is None:
        console = Terminal(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, title in enumerate(header, 1):
        table.add_column(Text(printable(title)), overflow="fold", no_wrap=crop and number < len(header))
    for row in rows:
        # In `Text`, brackets are not markup.
        cells = [Text(printable(cell), style=_style(cell), no_wrap=crop) for cell in row]
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
