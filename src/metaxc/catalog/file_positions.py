"""Files of any number of records, written to a catalog block by block: a run that was stopped resumes where it was.

Each block is one transaction, all of it or nothing. The same transaction notes up to which line the file is written, so
that no record is lost or written twice, wherever a run was killed. A file is known by the SHA-256 of its content. It is
read twice, first to check every line and then to write, so that memory does not grow with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from metaxc.artifacts import file_digest
from metaxc.catalog.schema import read_metadata
from metaxc.data.data_problems import Problem, Reporter, raise_first
from metaxc.errors import DataError

if TYPE_CHECKING:
    from metaxc.catalog.reader import CatalogReader

Record = TypeVar("Record")
Progress = Callable[[int, int], None]
"""Called with the number of records done and their total."""

BLOCK = 256
"""Records per transaction: what a stopped run may have to encode again, and what one sync is shared by."""

FILES_KEPT = 100
"""Files whose positions a catalog remembers, the newest of each kind."""

PROBLEMS_KEPT = 1_000
"""Problems that are kept to be shown; more are counted."""


@dataclass(frozen=True)
class FilePositions:
    """The positions that a catalog notes for one kind of file.

    Args:
        name: The entry of the catalog's metadata that has them.
    """

    name: str

    def read(self, catalog: CatalogReader) -> dict[str, int]:
        """The last written line of each file that the catalog remembers, by the SHA-256 of the file."""
        with catalog.store.read_snapshot() as connection:
            stored: dict[str, int] = json.loads(read_metadata(connection).get(self.name, "{}"))
            return stored

    def note(self, metadata: dict[str, str], digest: str, line: int) -> None:
        """Note in a transaction's metadata that a file is written up to a line."""
        positions = json.loads(metadata.get(self.name, "{}"))
        positions.pop(digest, None)
        newest = list(positions.items())[-(FILES_KEPT - 1) :]
        metadata[self.name] = json.dumps(dict([*newest, (digest, line)]))


CLICK_FILES = FilePositions("click files")
ITEM_FILES = FilePositions("item files")


@dataclass
class FileProblems:
    """Lines of a file that were left out, or read differently, and why.

    Args:
        shown: The first `PROBLEMS_KEPT` of them.
        count: How many there are.
    """

    shown: list[Problem] = field(default_factory=list)
    count: int = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.shown)

    def __call__(self, problem: Problem) -> None:
        """Note a problem; one of the whole file is an error."""
        if problem.line is None:
            raise DataError("The file cannot be read", got=problem)
        self.count += 1
        if len(self.shown) < PROBLEMS_KEPT:
            self.shown.append(problem)


@dataclass(frozen=True)
class FileWriter(Generic[Record]):
    """Writes the records of one kind of file.

    Args:
        positions: Where the catalog notes how far a file is written.
        read: Reads the (line, record) pairs of a file in the order of its lines; lines that are no record are reported.
        check: Whether a record fits what the catalog holds at that moment; given the file, the line and the record, it
            reports why not.
        write: Writes a block of records in one transaction, which notes the digest of the file and the last line.
    """

    positions: FilePositions
    read: Callable[[Path, Reporter], Iterable[tuple[int, Record]]]
    check: Callable[[Path, int, Record, Reporter], bool]
    write: Callable[[list[Record], tuple[str, int]], object]

    def run(
        self,
        catalog: CatalogReader,
        path: Path,
        problems: FileProblems | None,
        *,
        again: bool = False,
        progress: Progress = lambda done, total: None,
    ) -> tuple[int, int]:
        """Write a file from where the last run was stopped; returns the number of records written now and before.

        Args:
            catalog: The catalog.
            path: The file.
            problems: Receives the lines that cannot be used; None makes the first of them a `DataError`, and nothing is
                written.
            again: Whether a file that was written before is written once more, from its beginning.
            progress: Called after each block.
        """
        digest = file_digest(path) if path.is_file() else ""
        done = 0 if again else self.positions.read(catalog).get(digest, 0)
        fix = "correct the line, or leave such lines out: --skip-bad; nothing was written"
        total = before = 0
        checked: Reporter = raise_first(path.parent, fix) if problems is None else FileProblems()
        for line, _ in self._usable(path, done, checked):
            total += 1
            before += line <= done
        written, last = 0, done

        def report(problem: Problem) -> None:
            """Lines of one file may contradict each other, which shows when the first of them is written."""
            so_far = f"{before + written:,} records, up to line {last:,}, are written and stay"
            fix = (
                f"correct the line, or leave such lines out: --skip-bad; then run the command again: {so_far}"
            )
            raise_first(path.parent, fix)(problem)

        progress(before, total)
        usable = self._usable(path, done, report if problems is None else problems)
        for block in in_blocks(pair for pair in usable if pair[0] > done):
            last = block[-1][0]
            self.write([record for _, record in block], (digest, last))
            written += len(block)
            progress(before + written, total)
        return written, before

    def _usable(self, path: Path, done: int, report: Reporter) -> Iterator[tuple[int, Record]]:
        """The records that can be written; those up to the line `done` are."""
        for line, record in self.read(path, report):
            if line <= done or self.check(path, line, record, report):
                yield line, record


def in_blocks(records: Iterable[tuple[int, Record]]) -> Iterator[list[tuple[int, Record]]]:
    """(line, record) pairs in blocks of about `BLOCK`; those of one line are never parted."""
    block: list[tuple[int, Record]] = []
    for _, line in groupby(records, key=lambda pair: pair[0]):
        block += line
        if len(block) >= BLOCK:
            yield block
            block = []
    if block:
        yield block
