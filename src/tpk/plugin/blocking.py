"""Blocking plugins by name, before anything of them is imported."""

from __future__ import annotations

from collections.abc import Iterable

from tpk.errors import UnknownPluginError
from tpk.plugin.entry import GROUPS, CatalogEntry
from tpk.plugin.environment import names_in


def blocked_entries(known: Iterable[CatalogEntry]) -> set[CatalogEntry]:
    """Return those of `known` that ``TPK_BLOCK`` names, as ``name`` or as ``kind:name``.

    Raises:
        UnknownPluginError: it names something else: a name that blocks nothing is a slip.
    """
    known = list(known)
    blocked: set[CatalogEntry] = set()
    for item in names_in("TPK_BLOCK"):
        matching = {entry for entry in known if item in (entry.name, f"{entry.kind}:{entry.name}")}
        if not matching:
            raise UnknownPluginError(
                f"TPK_BLOCK names {item!r}, which is no plugin here: write a name that `tpk plugins` lists, "
                f"or kind:name with one of the kinds {', '.join(GROUPS)}"
            )
        blocked |= matching
    return blocked
