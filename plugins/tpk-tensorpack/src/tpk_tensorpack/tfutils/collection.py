"""Collections of a graph: kept, restored, and left as they are."""

from __future__ import annotations

from tpk.graph import backup_collection, freeze_collection, restore_collection

__all__ = ["backup_collection", "freeze_collection", "restore_collection"]
