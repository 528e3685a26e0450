"""The folder of a catalog: which generation is in use, and which process may write.

CATALOG/
├── CURRENT       names the generation in use; replaced by a rename, so a switch happens completely or not at all
├── writer.lock   locked by the process that writes, for older versions of metaxc, which know no other lock
└── gen-1/        catalog.sqlite, its checksum files, and index/, which is rebuilt where it is missing

The writer locks what it writes to: the folder itself, and the file that counts its acknowledged writes. Nobody admits
a second writer by deleting a lock file, and none by moving the files into another folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from metaxc.artifacts import json_digest, sync, write_atomically
from metaxc.catalog.catalog_errors import CatalogError, LockedError, StorageError, damaged_error
from metaxc.catalog.schema import ACKNOWLEDGED, CLOSED, DATABASE, read_acknowledged
from metaxc.output_claims import CATALOG_MARK as CURRENT

LOCK = "writer.lock"
KIND = "catalog"
GENERATION_FILES = re.compile(
    rf"{re.escape(DATABASE)}(-wal|-shm|-journal)?|{ACKNOWLEDGED}|{re.escape(CLOSED)}|index"
    rf"|\.({ACKNOWLEDGED}|{re.escape(CLOSED)}|index)\..+"
)
"""Names of what a generation consists of, and of what a killed process leaves of it."""

FIRST_WRITE = 1
"""The sequence number of the write that fills a new catalog with the items of its model."""


class WriterLock:
    """The right to write to a catalog; the system takes it back when the process dies."""

    def __init__(self) -> None:
        self._handles: dict[Path, int] = {}

    def add(self, path: Path, flags: int) -> None:
        """Lock one more file or folder; one that another process has locked is a `BlockingIOError`."""
        self._handles[path] = os.open(path, flags, 0o644)
        fcntl.flock(self._handles[path], fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self, path: Path) -> None:
        """Unlock one of them, if it is locked."""
        if path in self._handles:
            os.close(self._handles.pop(path))

    def release(self) -> None:
        """Give the right back."""
        for path in list(self._handles):
            self.remove(path)


class CatalogFolder:
    """The folder of a catalog.

    Args:
        path: The folder's path.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"CatalogFolder({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """Whether the folder holds a catalog."""
        return (self.path / CURRENT).is_file()

    def claim(self) -> None:
        """Raise a `CatalogError` unless a new catalog may be created here: in a folder that does not exist, is empty,
        or has nothing but the remains of a creation that was killed."""
        if self.exists:
            raise CatalogError(
                "The folder already holds a catalog",
                got=self.path.name,
                expected="a folder without one",
                fix="open it, or use another folder; `metaxc catalog restore --overwrite` replaces its content",
            )
        for entry in sorted(self.path.iterdir()) if self.path.is_dir() else ():
            left_behind = entry.name in (LOCK, "lost+found") or entry.name.startswith(f".{CURRENT}.")
            if left_behind or (_is_generation(entry) and _never_used(entry)):
                continue
            raise CatalogError(
                "A catalog cannot be created in a folder that holds other data",
                got=f"{self.path.name}/{entry.name}",
                expected="a new or empty folder",
                fix="choose another folder; nothing was deleted",
            )

    def current(self) -> Path:
        """The folder of the generation in use."""
        file = self.path / CURRENT
        if not file.is_file():
            raise CatalogError(
                "Not a catalog",
                got=self.path.name,
                expected=f"a folder with a file {CURRENT}",
                fix="check the path, or create a catalog with `metaxc catalog create`",
            )
        try:
            content = file.read_bytes()
            number = int(json.loads(content)["generation"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            content, number = b"", 0
        if content != _render_current(number):
            raise damaged_error(f"the file {CURRENT} was changed")
        generation = self.path / f"gen-{number}"
        if not generation.is_dir():
            raise damaged_error(f"the folder {generation.name} is missing")
        return generation

    def next(self) -> Path:
        """The folder in which to build a new generation, which is not used until `switch`."""
        return self.path / f"gen-{max([0, *self._numbers()]) + 1}"

    def unfinished(self) -> list[Path]:
        """Generations that are not in use: an earlier process has begun them and was stopped, or they were in use
        before."""
        current = self.current()
        generations = [self.path / f"gen-{number}" for number in sorted(self._numbers())]
        return [generation for generation in generations if generation != current]

    def switch(self, generation: Path) -> None:
        """Use this generation from now on, and remove the others."""
        self.activate(generation)
        self.remove_others([generation])

    def activate(self, generation: Path) -> None:
        """Use this generation from now on."""
        sync(generation)
        write_atomically(self.path / CURRENT, _render_current(int(generation.name.removeprefix("gen-"))))

    def remove_others(self, kept: Sequence[Path]) -> None:
        """Remove all generations but these."""
        for number in self._numbers():
            generation = self.path / f"gen-{number}"
            if generation not in kept and _is_generation(generation):
                shutil.rmtree(generation, ignore_errors=True)

    def lock(self) -> WriterLock:
        """Acquire the right to write; a catalog that another process writes to is a `LockedError`.

        Where the file system cannot lock a folder, its files alone are locked.
        """
        lock = WriterLock()
        try:
            with suppress_unsupported():
                lock.add(self.path, os.O_RDONLY)
            lock.add(self.path / LOCK, os.O_RDWR | os.O_CREAT)
            self.lock_record(lock)
        except BlockingIOError as error:
            lock.release()
            raise LockedError(
                "Another process has the catalog open for writing",
                got=self.path.name,
                expected="one writer at a time",
                fix="stop the other process, or open the catalog for reading only",
            ) from error
        except OSError as error:
            lock.release()
            raise StorageError(
                "The catalog cannot be opened for writing",
                got=f"{self.path.name}: {error.strerror or error}",
                expected="a folder on a writable file system",
                fix="make it writable, or open it for reading only (`metaxc serve --read-only`, read_only=True)",
            ) from error
        return lock

    def lock_record(self, lock: WriterLock) -> None:
        """Lock the record of the generation in use, if there is one."""
        with suppress(CatalogError, FileNotFoundError):  # a new or damaged catalog
            lock.add(self.current() / ACKNOWLEDGED, os.O_RDWR)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the right to write during a block."""
        lock = self.lock()
        try:
            yield
        finally:
            lock.release()

    def _numbers(self) -> list[int]:
        if not self.path.is_dir():
            return []
        found = [re.fullmatch(r"gen-(\d+)", path.name) for path in self.path.iterdir()]
        return [int(match[1]) for match in found if match]


@contextmanager
def suppress_unsupported() -> Iterator[None]:
    """Ignore the error of a file system that cannot lock folders; a lock that another process holds is raised."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError:
        pass


def _is_generation(folder: Path) -> bool:
    """Whether a folder has nothing in it but what a generation consists of."""
    return (
        re.fullmatch(r"gen-\d+", folder.name) is not None
        and folder.is_dir()
        and not folder.is_symlink()
        and all(GENERATION_FILES.fullmatch(entry.name) for entry in folder.iterdir())
    )


def _never_used(generation: Path) -> bool:
    """Whether nothing was written to a generation after its items had come from the model."""
    try:
        return read_acknowledged(generation)[1] <= FIRST_WRITE
    except CatalogError:
        return not (generation / ACKNOWLEDGED).exists()


def _render_current(generation: int) -> bytes:
    """The content of the file CURRENT."""
    content = {"kind": KIND, "generation": generation, "digest": json_digest([KIND, generation])}
    return (json.dumps(content) + "\n").encode()
