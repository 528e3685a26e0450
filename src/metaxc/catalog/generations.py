"""A catalog on disk: generations of the record, one of them current, one process that writes.

CATALOG/
├── CURRENT       which generation counts; replaced by a rename, so a change of model is there or is not
├── writer.lock   held by the process that writes; freed by the system when that dies
└── gen-1/        catalog.sqlite, its witnesses, and index/, which can be thrown away
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from filelock import FileLock, Timeout

from metaxc.artifacts import json_digest, write_atomically
from metaxc.catalog.catalog_errors import RESTORE, CatalogError, LockedError

CURRENT = "CURRENT"
LOCK = "writer.lock"
KIND = "catalog"


class CatalogFolder:
    """Where a catalog stands.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"CatalogFolder({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """Whether a catalog is there."""
        return (self.path / CURRENT).is_file()

    def current(self) -> Path:
        """The folder of the generation that counts."""
        file = self.path / CURRENT
        if not file.is_file():
            raise CatalogError(
                "Not a catalog",
                got=self.path.name,
                expected=f"a folder with a file {CURRENT}",
                fix="check the path, or make one with `metaxc catalog create`",
            )
        try:
            content = file.read_bytes()
            number = int(json.loads(content)["generation"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            content, number = b"", 0
        if content != _named(number):
            raise CatalogError("The catalog is damaged", got=f"{CURRENT} was changed", fix=RESTORE)
        place = self.path / f"gen-{number}"
        if not place.is_dir():
            raise CatalogError("The catalog is damaged", got=f"{place.name} is missing", fix=RESTORE)
        return place

    def next(self) -> Path:
        """Where a new generation may be built; it does not count until `switch`."""
        return self.path / f"gen-{max([0, *self._numbers()]) + 1}"

    def others(self) -> list[Path]:
        """Generations that do not count, begun and not finished."""
        current = self.current()
        places = [self.path / f"gen-{number}" for number in sorted(self._numbers())]
        return [place for place in places if place != current]

    def switch(self, place: Path) -> None:
        """Let the generation at `place` count from now on, and remove the others."""
        number = int(place.name.removeprefix("gen-"))
        write_atomically(self.path / CURRENT, _named(number))
        for other in self._numbers():
            if other != number:
                shutil.rmtree(self.path / f"gen-{other}", ignore_errors=True)

    def _numbers(self) -> list[int]:
        if not self.path.is_dir():
            return []
        found = [re.fullmatch(r"gen-(\d+)", place.name) for place in self.path.iterdir()]
        return [int(match[1]) for match in found if match]

    def lock(self) -> FileLock:
        """The right to write, for this process; another that has it is a `LockedError`."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / LOCK, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise LockedError(
                "Another process writes to the catalog",
                got=self.path.name,
                expected="one writer",
                fix="stop the other one, or open it for reading only",
            ) from error
        return lock


def _named(generation: int) -> bytes:
    """What CURRENT holds, byte by byte."""
    facts = {"kind": KIND, "generation": generation, "digest": json_digest([KIND, generation])}
    return (json.dumps(facts) + "\n").encode()
