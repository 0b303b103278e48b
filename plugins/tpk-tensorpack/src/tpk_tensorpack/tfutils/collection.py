"""Back up, restore and freeze the collections of a graph."""

from tpk.graph import backup_collection, freeze_collection, restore_collection

__all__ = ["backup_collection", "freeze_collection", "restore_collection"]
