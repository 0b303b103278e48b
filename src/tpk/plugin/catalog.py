"""The catalog: which plugins can be named and where they come from. A plugin is imported when it is named."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import inspect
import logging
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from tpk.errors import PluginError, PluginImportError, UnknownPluginError
from tpk.plugin.callback import Callback
from tpk.plugin.environment import names_in
from tpk.plugin.names.builtins import BUILTINS, builtin_entries, not_installed
from tpk.plugin.names.creation import Ref, Use, create
from tpk.plugin.names.entry import CatalogEntry, blocked_entries, check_version, installed_entries

logger = logging.getLogger(__name__)


class Catalog:
    """The built-in plugins, and those of installed distributions.

    Args:
        path: where to look for installed distributions, once, when a name is first needed; by default
            ``sys.path``.

    Attributes:
        path: as given.

    Example:
        ```python
        saver = get_catalog().resolve("callback", tpk.use("ModelSaver", max_to_keep=3))
        ```
    """

    def __init__(self, path: Sequence[str] | None = None) -> None:
        self.path = path
        self._installed: list[CatalogEntry] | None = None
        self._outcomes: dict[CatalogEntry, str] = {}

    def resolve(self, kind: str, spec: Any) -> Any:
        """Return the plugin that `spec` stands for.

        Args:
            kind: one of ``"trainer"``, ``"strategy"``, ``"callback"``, ``"monitor"`` and ``"plugin"``.
            spec: an instance, which is returned as it is; a class that needs no arguments; a name;
                ``"module:attr"``; or `use(name, **options)`.

        Raises:
            UnknownPluginError: nothing has this name.
            PluginImportError: what has this name cannot be imported.
            PluginError: it is blocked, two distributions offer it, the options are not those that it takes, or it is a
                plugin of another kind.
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
        """Return a value, in which each ``use("module:attr", **options)`` has become the object that it stands for.

        The name of a plugin is left to whoever expects a plugin.

        Args:
            value: such a description, or a list, tuple or mapping in which there may be some; anything else is returned
                as it is.

        Raises:
            PluginImportError: the module cannot be imported, or lacks the attribute.
            PluginError: the options are not those that it takes.
        """
        if isinstance(value, Ref):
            return self.load(CatalogEntry("object", value.target, target=value.target))
        if isinstance(value, Use) and ":" in value.name:
            entry = CatalogEntry("object", value.name, target=value.name)
            return create(self.load(entry), self.make(value.options), str(entry), value.origin)
        if type(value) is dict:
            made: Any = {name: self.make(item) for name, item in value.items()}
            unchanged = all(made[name] is item for name, item in value.items())
        elif type(value) in (list, tuple):
            made = type(value)(map(self.make, value))
            unchanged = all(new is old for new, old in zip(made, value, strict=True))
        else:
            return value
        # The caller's own list stays that list.
        return value if unchanged else made

    def find(self, kind: str, name: str) -> CatalogEntry:
        """Return what `name` stands for: ``"module:attr"`` itself, a built-in, or an installed plugin.

        Raises:
            UnknownPluginError: nothing has this name.
            PluginError: it is blocked, or two distributions offer it.
        """
        if ":" in name:
            return CatalogEntry(kind, name, target=name)
        found = [entry for entry in self.entries(kind) if entry.name == name]
        if not found and kind == "plugin" and _is_module(name):
            return CatalogEntry(kind, name, target=name)
        if not found:
            raise unknown_plugin(kind, name, self.entries())
        # Built-ins come first, and nothing shadows them.
        if len(found) > 1 and found[0].target == BUILTINS[kind].get(name):
            logger.warning(
                "%r means the %s of tpk; that of %s is got by its target, %s",
                name,
                kind,
                " and ".join(f"{each.distribution} {each.version}" for each in found[1:]),
                " or ".join(repr(each.target) for each in found[1:]),
            )
        if found[0].status == "conflict":
            raise PluginError(
                f"more than one distribution offers the {kind} {name!r}: {', '.join(map(str, found))}. Name "
                f"the one that you mean by its target: {' or '.join(repr(entry.target) for entry in found)}"
            )
        if found[0].status == "blocked":
            raise PluginError(f"{found[0]} is blocked by TPK_BLOCK={','.join(names_in('TPK_BLOCK'))}")
        return found[0]

    def load(self, entry: CatalogEntry) -> Any:
        """Import what `entry` stands for.

        Raises:
            PluginImportError: its module cannot be imported, for whatever reason, or lacks the attribute.
            PluginError: its distribution requires another version of tpk.
        """
        check_version(entry)
        try:
            target = pkgutil.resolve_name(entry.target)
        except (Exception, SystemExit) as error:
            self.mark(entry, "failed")
            raise PluginImportError(f"{entry} cannot be imported: {type(error).__name__}: {error}") from error
        self.mark(entry, "loaded")
        return target

    def entries(self, kind: str | None = None) -> list[CatalogEntry]:
        """Return what can be named, of one kind or of all: built-ins, then the rest by kind and name.

        Raises:
            UnknownPluginError: ``TPK_BLOCK`` names something that there is not.
        """
        if self._installed is None:
            self._installed = installed_entries(self.path)
        known = [*builtin_entries(), *self._installed]
        blocked = blocked_entries(known)
        return [
            attrs.evolve(entry, status=self._status(entry, known, blocked))
            for entry in known
            if kind is None or entry.kind == kind
        ]

    def loaded(self) -> list[CatalogEntry]:
        """Return what was named and imported, by kind and name: the ranks of a training must agree on it."""
        outcomes = self._outcomes.items()
        loaded = [attrs.evolve(entry, status=outcome) for entry, outcome in outcomes if outcome == "loaded"]
        return sorted(loaded, key=lambda entry: (entry.kind, entry.name))

    def mark(self, entry: CatalogEntry, outcome: str) -> None:
        """Remember that `entry` is ``"loaded"`` or ``"failed"``."""
        self._outcomes[entry] = outcome

    def outcome(self, entry: CatalogEntry) -> str | None:
        """Return ``"loaded"`` or ``"failed"`` of what was named; None of what was not."""
        return self._outcomes.get(entry)

    def refresh(self) -> None:
        """Look for installed distributions anew, when a name is next needed."""
        self._installed = None

    def _status(self, entry: CatalogEntry, known: list[CatalogEntry], blocked: set[CatalogEntry]) -> str:
        namesakes = [each for each in known if (each.kind, each.name) == (entry.kind, entry.name)]
        if entry in blocked:
            return "blocked"
        if len(namesakes) > 1 and entry.target != BUILTINS[entry.kind].get(entry.name):
            return "conflict"
        return self._outcomes.get(entry, "available")


_current = Catalog()


def get_catalog() -> Catalog:
    """Return the catalog of this process."""
    return _current


@contextlib.contextmanager
def use_catalog(catalog: Catalog) -> Iterator[Catalog]:
    """Make `catalog` that of this process while the context lasts; for tests."""
    global _current
    previous, _current = _current, catalog
    try:
        yield catalog
    finally:
        _current = previous


def unknown_plugin(kind: str | None, name: str, known: Sequence[CatalogEntry]) -> UnknownPluginError:
    """Return the error for a `name` that no plugin of this kind, or of any, has: what was meant, and what there is."""
    names = sorted({entry.name for entry in known if kind in (None, entry.kind)})
    nearest = difflib.get_close_matches(name, names, n=3)
    if (advice := not_installed(name)) and not any(entry.name == name for entry in known):
        return UnknownPluginError(advice)
    message = f"there is no {kind or 'plugin'} {name!r}"
    for entry in known:
        if entry.name == name:
            message += f"; there is a {entry.kind} of that name"
    message += f"; did you mean {' or '.join(map(repr, nearest))}?" if nearest else "."
    return UnknownPluginError(f"{message} Known are: {', '.join(names) or 'none'}")


_LISTS = {"callback": "callbacks", "monitor": "monitors", "strategy": "strategy of a trainer"}


def _check_kind(kind: str, plugin: object, what: str) -> None:
    """Refuse what is a plugin, but not of this kind; what a trainer is, who makes trainers knows."""
    if kind not in _LISTS:
        return
    found = plugin.kind if isinstance(plugin, Callback) else ""
    if found and found != kind:
        raise PluginError(f"{what} is no {kind} but a {found}: it belongs in the {_LISTS[found]}")
    if not found and kind != "callback":
        raise PluginError(
            f"{what} is no {kind}: expected an instance of tpk.{kind.capitalize()}, but it is {plugin!r}"
            + (". What only uses hooks is a callback, and belongs in the callbacks" if kind == "monitor" else "")
        )


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except ValueError:
        # A module that was made at run time has no spec.
        return name in sys.modules
