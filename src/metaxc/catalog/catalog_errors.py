"""What can go wrong with a live catalog."""

from __future__ import annotations

from metaxc.errors import MetaxcError

RESTORE = (
    "restore a snapshot (`metaxc catalog restore`), or go on with the rows that are whole "
    "(`metaxc catalog check --accept`)"
)


class CatalogError(MetaxcError):
    """A catalog that is damaged, of another model, or not a catalog."""


class LockedError(CatalogError):
    """Another process writes to the catalog."""


class NotFoundError(MetaxcError):
    """No item, or no click, of that name."""


class ConflictError(MetaxcError):
    """An item of that id is there, with other content."""


class StorageError(MetaxcError):
    """The disk is full or does not answer: nothing was written, reading goes on."""


def damaged(how: str) -> CatalogError:
    """The record is not what was written."""
    return CatalogError("The catalog is damaged", got=how, expected="what was written", fix=RESTORE)
