"""Tables in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpk.text import text_table

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    "failed": "bold red",
    "conflict": "bold red",
    "killed": "red",
    "warning": "yellow",
    "interrupted": "yellow",
    "blocked": "yellow",
    "running": "bold green",
    "ok": "green",
    "finished": "green",
}
"""How a cell looks that begins with such a word, where there are colors."""


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], console: Console | None = None) -> None:
    """Write `rows` under `header` to stdout: as wide as they are, or as a terminal is, if it is one.

    Args:
        header: the titles of the columns.
        rows: the cells.
        console: a terminal in place of stdout.
    """
    header, rows = [printable(cell) for cell in header], [[printable(cell) for cell in row] for row in rows]
    if console is None and not sys.stdout.isatty():
        print("\n".join(text_table(header, rows)))
        return
    # Only here: it takes time to import.
    from rich.console import Console as Terminal
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in header:
        table.add_column(Text(title), overflow="fold")
    for row in rows:
        # As `Text`, in which brackets are no markup.
        table.add_row(*(Text(cell, style=_STYLES.get(cell.partition(" ")[0].rstrip(":,"), "")) for cell in row))
    (console or Terminal(highlight=False)).print(table)


def printable(text: str) -> str:
    """Return a text as one line, in which control characters are escaped, as in ``\\x1b``."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
