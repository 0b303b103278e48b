"""The catalog: which plugins can be named, and where they come from. A plugin is imported when it is named."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from tpk import __version__
from tpk.errors import PluginError, PluginImportError, UnknownPluginError
from tpk.other_libraries import instead_of
from tpk.plugin.builtins import BUILTINS, where_to_find
from tpk.plugin.callback import Callback
from tpk.plugin.creation import Ref, Use, create
from tpk.plugin.environment import names_in
from tpk.text import nearest

logger = logging.getLogger(__name__)

GROUPS = {
    "trainer": "tpk.trainers",
    "strategy": "tpk.strategies",
    "callback": "tpk.callbacks",
    "monitor": "tpk.monitors",
    "plugin": "tpk.plugins",
    "command": "tpk.commands",
}
"""The entry-point group of each kind of plugin."""

DISTRIBUTION = "tpk-train"
"""The name of tpk's own distribution."""

_LISTS = {"callback": "callbacks", "monitor": "monitors", "strategy": "strategy of a trainer"}


@attrs.frozen
class CatalogEntry:
    """A plugin that can be named.

    Attributes:
        kind: a key of `GROUPS`.
        name: the name of the plugin.
        target: where it is, as ``"module:attr"``, or ``"module"`` if the module itself is the plugin.
        distribution: the distribution that installed it; empty if the plugin was named by its target.
        version: the version of the distribution.
        status: ``"available"``, ``"loaded"`` (it was named and imported), ``"failed"`` (it could not be used),
            ``"blocked"`` (by ``TPK_BLOCK``), or ``"conflict"`` (another distribution has a plugin of this name).
    """

    kind: str
    name: str
    target: str
    distribution: str = ""
    version: str = ""
    status: str = attrs.field(default="available", eq=False)

    @property
    def is_builtin(self) -> bool:
        """Whether the plugin comes with tpk."""
        return self.distribution == DISTRIBUTION

    def __str__(self) -> str:
        origin = f", from {self.distribution} {self.version}" if self.distribution else ""
        return f"{self.kind} {self.name!r} ({self.target}{origin})"


class Catalog:
    """The built-in plugins and the plugins of installed distributions.

    Args:
        path: where to look for installed distributions, once, when a name is first needed; ``sys.path`` by default.

    Attributes:
        path: as given.
        outcomes: ``"loaded"`` or ``"failed"`` for each plugin that was named.

    Example:
        ```python
        saver = get_catalog().resolve("callback", tpk.use("ModelSaver", max_to_keep=3))
        ```
    """

    def __init__(self, path: Sequence[str] | None = None) -> None:
        self.path = path
        self._installed: list[CatalogEntry] | None = None
        self.outcomes: dict[CatalogEntry, str] = {}

    def resolve(self, kind: str, spec: Any) -> Any:
        """Return the plugin that `spec` names.

        Args:
            kind: ``"trainer"``, ``"strategy"``, ``"callback"``, ``"monitor"`` or ``"plugin"``.
            spec: an instance, which is returned as it is; a class that needs no arguments; a name; ``"module:attr"``;
                or `use(name, **options)`.

        Raises:
            UnknownPluginError: if no plugin has this name.
            PluginImportError: if the plugin cannot be imported.
            PluginError: if it is blocked, offered by two distributions, does not take these options, or is of another
                kind.
        """
        if isinstance(spec, str):
            spec = Use(spec)
        if isinstance(spec, Use):
            entry = self.find(kind, spec.name)
            target = self.load(entry)
            if entry.distribution and kind != "plugin" and not callable(target):
                raise PluginError(f"{entry} is {target!r}: an entry point of tpk.{kind}s leads to a class or a factory")
            plugin, what = create(target, self.make(spec.options), str(entry), spec.origin), str(entry)
        elif inspect.isclass(spec):
            what = f"{kind} {spec.__name__!r} ({spec.__module__}:{spec.__qualname__})"
            plugin = create(spec, {}, what)
        else:
            plugin, what = spec, repr(spec)
        _check_kind(kind, plugin, what)
        if isinstance(plugin, Callback):
            plugin.resolve_plugins()
        return plugin

    def make(self, value: Any) -> Any:
        """Return a value in which each ``use("module:attr", **options)`` is replaced by the object that it describes.

        Names of plugins are left as they are: the plugin that has the option resolves them.

        Args:
            value: such a description, or a list, tuple or mapping that may contain some; other values are returned as
                they are.

        Raises:
            PluginImportError: if the module cannot be imported, or lacks the attribute.
            PluginError: if the options are not those that the object takes.
        """
        if isinstance(value, Ref):
            return self.load(CatalogEntry("object", value.target, target=value.target))
        if isinstance(value, Use) and ":" in value.name:
            entry = CatalogEntry("object", value.name, target=value.name)
            return create(self.load(entry), self.make(value.options), str(entry), value.origin)
        if type(value) not in (dict, list, tuple):
            return value
        items = value.values() if type(value) is dict else value
        made = list(map(self.make, items))
        if all(new is old for new, old in zip(made, items, strict=True)):
            return value  # The caller's own list stays that list.
        return dict(zip(value, made, strict=True)) if type(value) is dict else type(value)(made)

    def find(self, kind: str, name: str) -> CatalogEntry:
        """Return the entry of a name: of ``"module:attr"``, of a built-in plugin, or of an installed one.

        Raises:
            UnknownPluginError: if no plugin has this name.
            PluginError: if it is blocked, or offered by two distributions.
        """
        if ":" in name:
            return CatalogEntry(kind, name, target=name)
        found = [entry for entry in self.entries(kind) if entry.name == name]
        if not found and kind == "plugin" and _may_be_imported(name):  # The name of a module.
            return CatalogEntry(kind, name, target=name)
        if not found:
            raise unknown_plugin([kind], name, self.entries())
        # Built-in plugins come first, and cannot be shadowed.
        if len(found) > 1 and found[0].is_builtin:
            others = " or ".join(map(str, found[1:]))
            logger.warning("%r is the built-in %s. To use %s, name its target", name, kind, others)
        if found[0].status == "conflict":
            raise PluginError(
                f"more than one distribution offers the {kind} {name!r}: {', '.join(map(str, found))}. Name one by its "
                f"target: {' or '.join(repr(entry.target) for entry in found)}"
            )
        if found[0].status == "blocked":
            raise PluginError(f"{found[0]} is blocked by TPK_BLOCK={','.join(names_in('TPK_BLOCK'))}")
        return found[0]

    def load(self, entry: CatalogEntry) -> Any:
        """Import the target of an entry.

        Raises:
            PluginImportError: if its module cannot be imported, or lacks the attribute.
            PluginError: if its distribution requires another version of tpk.
        """
        _check_version(entry)
        if not _may_be_imported(entry.target):
            raise PluginImportError(f"{entry} cannot be imported: expected 'module:attr', such as 'my_module:MyClass'")
        try:
            # Without a colon, "no such attribute" would hide the error of a submodule.
            target = pkgutil.resolve_name(entry.target if ":" in entry.target else f"{entry.target}:")
        except (Exception, SystemExit) as error:
            self.outcomes[entry] = "failed"
            raise PluginImportError(f"{entry} cannot be imported: {type(error).__name__}: {error}") from error
        self.outcomes[entry] = "loaded"
        return target

    def entries(self, kind: str | None = None) -> list[CatalogEntry]:
        """Return the plugins of a kind, or of all kinds: built-in plugins, then the others by kind and name.

        Raises:
            UnknownPluginError: if ``TPK_BLOCK`` has an unknown name.
        """
        if self._installed is None:
            self._installed = _installed_entries(self.path)
        builtin = [
            CatalogEntry(each, name, target, DISTRIBUTION, __version__)
            for each, targets in BUILTINS.items()
            for name, target in targets.items()
        ]
        known = [*builtin, *self._installed]
        blocked = _blocked(known)
        counts = Counter((entry.kind, entry.name) for entry in known)

        def status(entry: CatalogEntry) -> str:
            if entry in blocked:
                return "blocked"
            if counts[entry.kind, entry.name] > 1 and not entry.is_builtin:
                return "conflict"
            return self.outcomes.get(entry, "available")

        return [attrs.evolve(entry, status=status(entry)) for entry in known if kind in (None, entry.kind)]

    def loaded(self) -> list[CatalogEntry]:
        """Return the plugins that were named and imported, by kind and name; the ranks of a run must agree on them."""
        loaded = (entry for entry, found in self.outcomes.items() if found == "loaded")
        return sorted(loaded, key=lambda entry: (entry.kind, entry.name))

    def refresh(self) -> None:
        """Look for installed distributions again when a name is next needed."""
        self._installed = None


_current = Catalog()


def get_catalog() -> Catalog:
    """Return the catalog of this process."""
    return _current


@contextlib.contextmanager
def use_catalog(catalog: Catalog) -> Iterator[Catalog]:
    """Replace the catalog of this process while the context is active; for tests."""
    global _current
    previous, _current = _current, catalog
    try:
        yield catalog
    finally:
        _current = previous


def unknown_plugin(kinds: Sequence[str], name: str, known: Sequence[CatalogEntry]) -> UnknownPluginError:
    """Return the error for a name that no plugin of some kinds (of any kind if empty) has."""
    namesakes = [entry for entry in known if entry.name == name]
    if not namesakes and (advice := where_to_find(name) or instead_of(name)):
        return UnknownPluginError(advice)
    names = sorted({entry.name for entry in known if not kinds or entry.kind in kinds})
    also = "".join(f" There is a {entry.kind} of that name." for entry in namesakes)
    return UnknownPluginError(
        f"there is no {' or '.join(kinds) or 'plugin'} {name!r}.{also}{nearest(name, names)} Known: {', '.join(names)}"
    )


def _may_be_imported(target: str) -> bool:
    """Whether a text has the form of ``"module:attr"`` or ``"module"``."""
    return all(map(str.isidentifier, re.split("[:.]", target)))


def _installed_entries(path: Sequence[str] | None = None) -> list[CatalogEntry]:
    """Return the entry points of tpk's groups, by kind and name.

    Args:
        path: the directories to look at; ``sys.path`` by default.
    """
    # It takes 40 ms to import.
    from importlib import metadata

    kinds = {group: kind for kind, group in GROUPS.items()}
    found: dict[str, list[CatalogEntry]] = {}
    for distribution in metadata.distributions() if path is None else metadata.distributions(path=list(path)):
        try:
            entries = [
                CatalogEntry(
                    kinds[point.group], point.name, point.value, distribution.metadata["Name"], distribution.version
                )
                for point in distribution.entry_points
                if point.group in kinds
            ]
        except Exception:
            logger.warning("the metadata of %s cannot be read; skipped", distribution, exc_info=True)
            continue
        if entries:
            # Python imports the first one on the path; it hides others of the same name.
            found.setdefault(re.sub(r"[-_.]+", "-", entries[0].distribution).lower(), entries)
    return sorted(itertools.chain(*found.values()), key=lambda entry: (entry.kind, entry.name, entry.distribution))


def _check_version(entry: CatalogEntry) -> None:
    """Raise a `PluginError` if the distribution of a plugin requires another version of tpk."""
    if entry.distribution in ("", DISTRIBUTION):
        return
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        requirements = metadata.requires(entry.distribution)
    except metadata.PackageNotFoundError:
        return
    for requirement in map(Requirement, requirements or ()):
        if requirement.name == DISTRIBUTION and not requirement.specifier.contains(__version__, prereleases=True):
            raise PluginError(f"{entry} requires {requirement}, but this is tpk {__version__}")


def _blocked(known: Sequence[CatalogEntry]) -> set[CatalogEntry]:
    """Return the entries that ``TPK_BLOCK`` names, as ``name`` or as ``kind:name``."""
    blocked: set[CatalogEntry] = set()
    for item in names_in("TPK_BLOCK"):
        matching = {entry for entry in known if item in (entry.name, f"{entry.kind}:{entry.name}")}
        if not matching:
            raise UnknownPluginError(
                f"TPK_BLOCK has the unknown name {item!r}: write a name that `tpk plugins` lists, or kind:name with "
                f"one of the kinds {', '.join(GROUPS)}"
            )
        blocked |= matching
    return blocked


def _check_kind(kind: str, plugin: object, what: str) -> None:
    """Raise a `PluginError` if a plugin is of another kind. `make_trainer` checks trainers itself."""
    if kind not in _LISTS:
        return
    found = plugin.kind if isinstance(plugin, Callback) else ""
    if found and found != kind:
        raise PluginError(f"{what} is not a {kind} but a {found}: it belongs in the {_LISTS[found]}")
    if not found and kind != "callback":
        raise PluginError(
            f"{what} is not a {kind}: expected an instance of tpk.{kind.capitalize()}, but it is {plugin!r}. A plugin "
            "that only implements hooks belongs in the callbacks"
        )
