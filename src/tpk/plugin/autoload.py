"""The plugins that no script names: those of the group ``tpk.plugins``, and those in ``TPK_PLUGINS``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tpk.plugin.environment import is_on, names_in
from tpk.plugin.implementations import implementations_of

if TYPE_CHECKING:
    from tpk.plugin.catalog import Catalog
    from tpk.plugin.entry import CatalogEntry

logger = logging.getLogger(__name__)


def load_autoloaded(catalog: Catalog) -> list[object]:
    """Import what the environment asks for and what installed distributions ask to load.

    First come those in ``TPK_PLUGINS``, in that order, then those of the entry-point group ``tpk.plugins``,
    by name, unless ``TPK_DISABLE_AUTOLOAD`` is on.

    Returns:
        Modules and objects that implement hooks, ready to be registered.

    Raises:
        PluginError: a plugin that ``TPK_PLUGINS`` names is missing or broken; or, with ``TPK_STRICT``, any
            is. Without it, a broken installed one is logged as a warning, and has the status ``"failed"`` in
            the catalog.
    """
    entries = [catalog.find("plugin", name) for name in names_in("TPK_PLUGINS")]
    plugins = [_load(catalog, entry) for entry in entries]
    if is_on("TPK_DISABLE_AUTOLOAD"):
        return plugins
    named = {entry.target for entry in entries}
    for entry in catalog.entries("plugin"):
        if entry.status != "blocked" and entry.target not in named:
            try:
                plugins.append(_load(catalog, entry))
            except Exception:
                if is_on("TPK_STRICT"):
                    raise
                catalog.mark(entry, "failed")
                _warn(entry)
    return plugins


def _load(catalog: Catalog, entry: CatalogEntry) -> object:
    plugin: object = catalog.resolve("plugin", entry.name)
    # What could not be registered is as broken as what cannot be imported, and must not get as far as a
    # trainer.
    implementations_of(plugin)
    return plugin


def _warn(entry: CatalogEntry) -> None:
    logger.warning(
        "%s is broken and was left out of this training. TPK_BLOCK=%s:%s blocks it, uninstalling %s "
        "removes it, and TPK_STRICT=1 makes this an error.",
        entry,
        entry.kind,
        entry.name,
        entry.distribution,
        exc_info=True,
    )
