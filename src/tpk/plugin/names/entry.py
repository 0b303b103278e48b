"""Entries of the catalog: what is known of a plugin without importing it, and where installed ones announce it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from tpk import __version__
from tpk.errors import PluginError, UnknownPluginError
from tpk.plugin.environment import names_in

if TYPE_CHECKING:
    from importlib.metadata import Distribution

logger = logging.getLogger(__name__)

GROUPS = {
    "trainer": "tpk.trainers",
    "strategy": "tpk.strategies",
    "callback": "tpk.callbacks",
    "monitor": "tpk.monitors",
    "plugin": "tpk.plugins",
}
"""The entry-point group of each kind of plugin."""


@attrs.frozen
class CatalogEntry:
    """A plugin that can be named.

    Attributes:
        kind: one of `GROUPS`.
        name: the name that stands for it.
        target: where it is, as ``"module:attr"``, or ``"module"`` if the module itself is the plugin.
        distribution: what installed it; empty if it was not found as installed but named by its target.
        version: that of the distribution.
        status: ``"available"``, ``"loaded"`` (it was named and imported), ``"failed"`` (it could not be
            used), ``"blocked"`` (by ``TPK_BLOCK``), or ``"conflict"`` (another plugin has the same name).
    """

    kind: str
    name: str
    target: str
    distribution: str = ""
    version: str = ""
    status: str = attrs.field(default="available", eq=False)

    def __str__(self) -> str:
        origin = f", from {self.distribution} {self.version}" if self.distribution else ""
        return f"{self.kind} {self.name!r} ({self.target}{origin})"


def installed_entries(path: Sequence[str] | None = None) -> list[CatalogEntry]:
    """Return what is announced in the entry-point groups of tpk, by kind and name.

    Args:
        path: the directories to look at; by default ``sys.path``.
    """
    # It takes 40 ms to import.
    from importlib import metadata

    distributions = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    found: dict[str, list[CatalogEntry]] = {}
    for distribution in distributions:
        try:
            entries = list(_entries_of(distribution))
        except Exception:
            logger.warning("the metadata of %s cannot be read; skipped", distribution, exc_info=True)
            continue
        if entries:
            # Python imports the first one on the path; another one of the same name is hidden by it.
            found.setdefault(re.sub(r"[-_.]+", "-", entries[0].distribution).lower(), entries)
    entries = [entry for entries in found.values() for entry in entries]
    return sorted(entries, key=lambda entry: (entry.kind, entry.name, entry.distribution))


def _entries_of(distribution: Distribution) -> Iterator[CatalogEntry]:
    kinds = {group: kind for kind, group in GROUPS.items()}
    for point in distribution.entry_points:
        if point.group in kinds:
            name, version = distribution.metadata["Name"], distribution.version
            yield CatalogEntry(kinds[point.group], point.name, point.value, name, version)


def check_version(entry: CatalogEntry) -> None:
    """Check that the distribution of a plugin accepts this version of tpk.

    Raises:
        PluginError: if it requires another version.
    """
    if entry.distribution in ("", "tpk"):
        return
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        requirements = metadata.requires(entry.distribution)
    except metadata.PackageNotFoundError:
        return
    for requirement in map(Requirement, requirements or ()):
        if requirement.name == "tpk" and not requirement.specifier.contains(__version__, prereleases=True):
            raise PluginError(f"{entry} requires {requirement}, but this is tpk {__version__}")


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
