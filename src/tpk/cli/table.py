"""Tables and sizes for people to read."""

from __future__ import annotations

from collections.abc import Sequence


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return `rows` under `header`, in columns."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def human_size(size: int | None) -> str:
    """Return a size in bytes as people say it, such as ``1.5 MiB``; ``-`` if it is not known."""
    if size is None:
        return "-"
    if size < 1024:
        return f"{size} B"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.1f} {units[0]}"
