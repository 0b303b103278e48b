"""Text for people: tables, sizes, durations, and lists of names."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any


def nearest(name: str, known: Iterable[str], n: int = 3, cutoff: float = 0.5) -> str:
    """Return a sentence with the known names that are nearest to an unknown one, with a space in front, or nothing.

    Args:
        name: the unknown name.
        known: the names that exist.
        n: the maximum number of names.
        cutoff: how similar a name must be, from 0 to 1; see `difflib.get_close_matches`.

    Example:
        >>> "No variable 'convo/W'." + nearest("convo/W", ["conv0/W", "fc/W"])
        "No variable 'convo/W'. Nearest: 'conv0/W'."
    """
    close = difflib.get_close_matches(name, dict.fromkeys(known), n=n, cutoff=cutoff)
    return f" Nearest: {', '.join(map(repr, close))}." if close else ""


def some(names: Iterable[object], n: int = 5) -> str:
    """Return the first `n` names separated by commas, and the number of the others: ``"a, b and 3 more"``."""
    texts = list(map(str, names))
    rest = len(texts) - n
    return ", ".join(texts[:n]) + (f" and {rest:,} more" if rest > 0 else "")


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> list[str]:
    """Return the lines of a table whose columns are aligned and separated by two spaces.

    Args:
        header: the titles of the columns.
        rows: the cells.
        right: the titles of the columns that are aligned on the right, such as those of numbers.
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    align = [str.rjust if title in set(right) else str.ljust for title in header]
    return [
        "  ".join(put(cell, width) for put, cell, width in zip(align, line, widths, strict=True)).rstrip()
        for line in lines
    ]


def shorten(text: str, length: int) -> str:
    """Return `text`, its middle replaced by an ellipsis if it is longer than `length`. Both ends tell names apart."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"


def describe_value(value: Any) -> str:
    """Return a short description of a value: its type, and its dtype and shape if it has them, else its repr."""
    kind = type(value).__name__
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{kind} of dtype {value.dtype} and shape {tuple(value.shape)}"
    return f"{kind} {reprlib.repr(value)}"


def format_count(number: int, noun: str) -> str:
    """Return a number and what it counts, such as ``1,437 datapoints`` or ``1 step``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def human_size(size: int | None) -> str:
    """Return a size in bytes, such as ``1.5 MiB``; ``-`` if it is unknown."""
    if size is None:
        return "-"
    if size < 1024:
        return f"{size} B"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.1f} {units[0]}"


def human_duration(seconds: float | None) -> str:
    """Return a duration, such as ``1:02:03`` or ``42 s``; ``-`` if it is unknown."""
    if seconds is None:
        return "-"
    return f"{seconds:.3g} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
