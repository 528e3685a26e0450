"""Live items: a durable record, an index beside it, and the life of an item from novel to observed."""

from metaxc.catalog.catalog import Catalog
from metaxc.catalog.catalog_errors import (
    CatalogError,
    ConflictError,
    LockedError,
    NotFoundError,
    StorageError,
)
from metaxc.catalog.catalog_settings import CatalogSettings
from metaxc.catalog.records import Item, NewItem, State

__all__ = [
    "Catalog",
    "CatalogError",
    "CatalogSettings",
    "ConflictError",
    "Item",
    "LockedError",
    "NewItem",
    "NotFoundError",
    "State",
    "StorageError",
]
