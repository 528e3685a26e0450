"""A live catalog's vectors in the vector store that a company already runs, kept equal by `metaxc sync`."""

from metaxc.catalog.sync.sync_driver import SyncReport, SyncSettings, roll_back, sync_catalog
from metaxc.catalog.sync.sync_target import SyncError, SyncState, SyncTarget
from metaxc.catalog.sync.sync_urls import open_target, search_target

__all__ = [
    "SyncError",
    "SyncReport",
    "SyncSettings",
    "SyncState",
    "SyncTarget",
    "open_target",
    "roll_back",
    "search_target",
    "sync_catalog",
]
