"""What the catalog knows of a plugin without importing it."""

from __future__ import annotations

import attrs

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
