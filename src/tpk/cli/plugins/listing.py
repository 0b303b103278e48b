"""``tpk plugins``: the list of what can be named."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs

from tpk.cli.table import print_table
from tpk.plugin.catalog import GROUPS, CatalogEntry, get_catalog

COLUMNS = ("kind", "name", "distribution", "version", "target", "status")


def list_plugins(kind: str | None, *, check: bool, as_json: bool) -> int:
    """Write the list of plugins to stdout.

    Args:
        kind: only those of this kind.
        check: import each of them, in another process, and write what came of it in place of its status.
        as_json: write a JSON list in place of a table.

    Returns:
        The exit status: 1 if a plugin was checked and cannot be imported.
    """
    entries = sorted(get_catalog().entries(kind), key=lambda entry: (list(GROUPS).index(entry.kind), entry.name))
    problems: list[str | None] = [None] * len(entries)
    if check:
        from tpk.cli.plugins.check import check_imports  # which takes time to import

        unblocked = [position for position, entry in enumerate(entries) if entry.status != "blocked"]
        for position, problem in zip(unblocked, check_imports([entries[each] for each in unblocked]), strict=True):
            problems[position] = problem
            if entries[position].status != "conflict":
                entries[position] = attrs.evolve(entries[position], status="failed" if problem else "ok")
    if as_json:
        print(json.dumps(_as_data(entries, problems if check else None), indent=2))
    else:
        print_table(COLUMNS, [[getattr(entry, column) for column in COLUMNS] for entry in entries])
        for entry, problem in zip(entries, problems, strict=True):
            if problem:
                print(f"\n{entry.kind} {entry.name}: {problem}")
    return int(any(problems))


def _as_data(entries: Sequence[CatalogEntry], problems: Sequence[str | None] | None) -> list[dict[str, str | None]]:
    rows: list[dict[str, str | None]] = [attrs.asdict(entry) for entry in entries]
    for row, problem in zip(rows, problems or (), strict=False):
        row["problem"] = problem
    return rows
