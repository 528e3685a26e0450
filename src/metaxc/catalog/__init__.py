"""Live items: a durable store, an index that follows it, and the life cycle of an item from novel to observed."""

from metaxc.catalog.catalog import Catalog
from metaxc.catalog.catalog_errors import (
    CatalogError,
    ConflictError,
    LockedError,
    NotFoundError,
    OutcomeUnknownError,
    StorageError,
)
from metaxc.catalog.generations import migrate
from metaxc.catalog.records import CatalogSettings, Item, NewClick, NewItem, State

__all__ = [
    "Catalog",
    "CatalogError",
    "CatalogSettings",
    "ConflictError",
    "Item",
    "LockedError",
    "NewClick",
    "NewItem",
    "NotFoundError",
    "OutcomeUnknownError",
    "State",
    "StorageError",
    "migrate",
]
