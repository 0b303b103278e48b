"""Plugins that load without being named, from the group ``tpk.plugins`` and from ``TPK_PLUGINS``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tpk.errors import add_note
from tpk.plugin.catalog import Catalog, CatalogEntry
from tpk.plugin.environment import is_on, names_in

logger = logging.getLogger(__name__)


def load_autoloaded(catalog: Catalog, *steps: Callable[[object], object]) -> None:
    """Import the plugins in ``TPK_PLUGINS``, then the plugins of the entry-point group ``tpk.plugins``, by name.

    The latter are skipped if ``TPK_DISABLE_AUTOLOAD`` is on.

    Args:
        catalog: the catalog.
        steps: functions that are called with each plugin; the first one with all plugins, then the next one.

    Raises:
        PluginError: if a plugin in ``TPK_PLUGINS`` is missing or broken; with ``TPK_STRICT``, if any plugin is. Without
            it, a broken installed plugin is a warning, and has the status ``"failed"`` in the catalog.
    """
    required, loaded = [catalog.find("plugin", name) for name in names_in("TPK_PLUGINS")], []
    named = {entry.target for entry in required}
    others = [] if is_on("TPK_DISABLE_AUTOLOAD") else catalog.entries("plugin")
    for entry in [*required, *(each for each in others if each.status != "blocked" and each.target not in named)]:
        with _tolerated(catalog, entry, entry in required):
            loaded.append((entry, catalog.resolve("plugin", entry.name)))
    for step in steps:
        for entry, plugin in loaded:
            if catalog.outcomes.get(entry) != "failed":
                with _tolerated(catalog, entry, entry in required):
                    step(plugin)


@contextmanager
def _tolerated(catalog: Catalog, entry: CatalogEntry, is_required: bool) -> Iterator[None]:
    """Skip a plugin that fails in the context, with a warning, unless it is required or ``TPK_STRICT`` is on."""
    try:
        yield
    except Exception as error:
        catalog.outcomes[entry] = "failed"
        if is_required:
            add_note(error, f"TPK_PLUGINS asks for {entry}")
        if is_required or is_on("TPK_STRICT"):
            raise
        logger.warning(
            "%s is broken and was skipped. TPK_BLOCK=plugin:%s blocks it, uninstalling %s removes it, and TPK_STRICT=1 "
            "makes this an error.",
            entry,
            entry.name,
            entry.distribution,
            exc_info=True,
        )
