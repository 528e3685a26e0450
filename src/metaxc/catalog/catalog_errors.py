"""The errors of a live catalog. Each derives from `MetaxcError` and says what failed and what to do."""

from __future__ import annotations

from metaxc.errors import MetaxcError

RECOVERY = (
    "restore a snapshot (`metaxc catalog restore --overwrite`), or continue with the rows that are intact "
    "(`metaxc catalog check --accept`)"
)


class CatalogError(MetaxcError):
    """The catalog is damaged, closed, of another model, or not a catalog at all."""


class LockedError(CatalogError):
    """Another process has the catalog open for writing."""


class NotFoundError(MetaxcError):
    """There is no item with that id, or no click with that number."""


class ConflictError(MetaxcError):
    """An item with that id exists with another text, other tags or other fields."""


class StorageError(MetaxcError):
    """Disk full, I/O error or read-only file system: nothing was written, and reads continue."""


class OutcomeUnknownError(StorageError):
    """The disk failed in the middle of a commit: after a restart the write may be there or not. Reads continue."""


OUTCOME_UNKNOWN = "The outcome of the write is unknown"


def outcome_unknown(reason: str) -> OutcomeUnknownError:
    """The error for a write that is neither acknowledged nor refused."""
    return OutcomeUnknownError(
        OUTCOME_UNKNOWN,
        got=f"I/O error during a commit: {reason}",
        expected="a disk that works",
        fix="repeat the write until it is accepted or refused, or look after a restart whether it is there",
    )


def damaged_error(reason: str) -> CatalogError:
    """The error for a catalog whose files are not what was written."""
    return CatalogError(
        "The catalog is damaged", got=reason, expected="the content that was written", fix=RECOVERY
    )
