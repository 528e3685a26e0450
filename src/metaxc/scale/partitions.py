"""Vectors of the items or queries of Parquet files, one partition at a time, so that interrupted work resumes.

A partition is a row group of an input file. It becomes an output file of its own, which is written under a hidden name
and then renamed, so it is complete wherever it exists. Its metadata tell the model and the source. Partitions do not
depend on each other: an engine may work on them in any order, on any machine, and twice.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from metaxc.artifacts import atomic_file, make_folder
from metaxc.errors import ConfigError, DataError, MetaxcError
from metaxc.output_claims import claim_place
from metaxc.scale.engines import Engine, work_here
from metaxc.scale.represent_batch import TEXT, VECTOR, RepresentBatch

RECORD = b"metaxc.represent"
"""Key of the metadata of an output file, JSON."""

BATCH_ROWS = 4_096
"""Rows that are represented at once, and rows of a row group of an output file: 6 MB with 385 numbers a vector."""

LOCK = ".represent.lock"
UNFINISHED = re.compile(r"\..+\.parquet\.[^.]+\.part\.parquet")
"""Names of what a killed process leaves of `atomic_file`."""


class HasRows(Protocol):
    """A partition of any kind of input."""

    @property
    def rows(self) -> int:
        """How many it has."""
        ...


@dataclass(frozen=True)
class Partition:
    """A row group of an input file, and the file that its vectors are written to.

    Args:
        source: The Parquet file.
        row_group: Counted from 0.
        rows: Of the row group.
        output: The Parquet file to write.
        version: Size in bytes and time of the last change in ns of the source: another version is another source.
    """

    source: Path
    row_group: int
    rows: int
    output: Path
    version: tuple[int, int]

    def record(self, identity: dict[str, object]) -> dict[str, object]:
        """What the metadata of the output say about it; `identity` is that of the callable."""
        return {
            **identity,
            "source": self.source.name,
            "row_group": self.row_group,
            "version": list(self.version),
        }


@dataclass(frozen=True)
class PartitionWriter:
    """Computes and writes one partition; sent to every worker of an engine.

    Args:
        represent: Computes the vectors.
        identity: That of the callable where the work began: a worker with another model must not write.
    """

    represent: RepresentBatch
    identity: dict[str, object]

    def __call__(self, partition: Partition) -> int:
        """Write the output of a partition, unless it is there already, and return the number of its rows."""
        import pyarrow as pa

        record = partition.record(self.identity)
        if is_complete(partition, record):  # by a worker that was lost before it could say so
            return partition.rows
        check_worker(self.represent, self.identity)
        try:
            make_folder(partition.output.parent)
            with atomic_file(partition.output) as new:
                self._write(partition, record, new)
        except (DataError, pa.ArrowException) as error:
            place = f"{partition.source}, row group {partition.row_group}"
            raise unusable_partition(place, error) from error
        return partition.rows

    def _write(self, partition: Partition, record: dict[str, object], new: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with pq.ParquetFile(partition.source) as file:
            schema = file.schema_arrow.remove_metadata()
            batches = file.iter_batches(BATCH_ROWS, row_groups=[partition.row_group])
            tables = (self.represent(pa.Table.from_batches([batch])) for batch in batches)
            first = next(tables)
            schema = schema.append(first.schema.field(VECTOR)).with_metadata({RECORD: json.dumps(record)})
            dictionaries = [name for name in schema.names if name != VECTOR]  # numbers do not repeat
            with pq.ParquetWriter(new, schema, use_dictionary=dictionaries) as writer:
                for table in chain([first], tables):
                    writer.write_table(table)


@dataclass(frozen=True)
class RepresentedFiles:
    """What `represent_files` has done.

    Args:
        partitions: All partitions of the input.
        rows: Of all partitions.
        kept: Partitions that an earlier run has written.
    """

    partitions: int
    rows: int
    kept: int


def represent_files(
    represent: RepresentBatch,
    source: str | Path,
    out: str | Path,
    *,
    engine: Engine = work_here,
    overwrite: bool = False,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RepresentedFiles:
    """Write the vectors of Parquet files to a folder, one file for each row group; a second call resumes.

    Args:
        represent: Computes the vectors.
        source: A Parquet file, or a folder with such files at any depth. Each needs a column `text`, and keeps its
            other columns.
        out: The folder; what another model or another input has left there is an error, and so are other files.
        engine: Where the partitions are worked on.
        overwrite: Whether outputs of another model or input are replaced; other files never are.
        report: Called with the rows that are done and all rows, first with those of an earlier run.
    """
    source = Path(os.path.abspath(source))  # workers have other current folders
    folder = claim_place(Path(out), [represent.folder, source])
    partitions = list_partitions(source, folder)
    with lock_output(folder):
        pending = _find_pending(partitions, folder, represent.identity, overwrite)
        writer = PartitionWriter(represent, represent.identity)
        try:
            return write_partitions(writer, partitions, pending, engine, report)
        finally:
            _remove_unfinished(folder)


def write_partitions(
    writer: Callable[[Any], int],
    partitions: Sequence[HasRows],
    pending: Sequence[HasRows],
    engine: Engine,
    report: Callable[[int, int], None],
) -> RepresentedFiles:
    """Have an engine write the partitions that are missing, and report the rows that are done."""
    total = sum(one.rows for one in partitions)
    done = total - sum(one.rows for one in pending)
    report(done, total)
    for rows in engine(writer, pending) if pending else ():
        done += rows
        report(done, total)
    return RepresentedFiles(len(partitions), total, len(partitions) - len(pending))


def list_partitions(source: Path, folder: Path) -> list[Partition]:
    """The row groups of a Parquet file, or of all such files of a folder that are not hidden, in the order of names.

    Args:
        source: The file or the folder.
        folder: Where the outputs will be: `shop/a.parquet` becomes `shop/a-00000.parquet` and so on.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = source if source.is_dir() else source.parent
    files = sorted(source.rglob("*.parquet")) if source.is_dir() else [source]
    found = []
    for file in files:
        place = file.relative_to(root)
        if file != source and any(part.startswith((".", "_")) for part in place.parts):
            continue  # as Spark, Ray and Arrow do
        try:
            facts, metadata = file.stat(), pq.read_metadata(file)
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                "An input file cannot be read",
                got=f"{file}: {error}",
                expected="a Parquet file, or a folder with Parquet files",
            ) from error
        check_columns(file, metadata.schema.to_arrow_schema().names)
        for group in range(metadata.num_row_groups):
            output = folder / place.with_name(f"{place.stem}-{group:05d}.parquet")
            rows = metadata.row_group(group).num_rows
            if rows:
                found.append(Partition(file, group, rows, output, (facts.st_size, facts.st_mtime_ns)))
    if not found:
        raise DataError(
            "The input has no rows", got=source, expected="a Parquet file, or a folder with Parquet files"
        )
    return found


def check_columns(place: Path, names: Sequence[str]) -> None:
    """Raise a `DataError` where an input has no column of texts, or one with the name of the vectors."""
    if TEXT not in names or VECTOR in names:
        raise DataError(
            "An input file does not have the columns that are needed",
            got=f"{place}: {', '.join(names)}",
            expected=f"a column {TEXT!r} and others, such as 'id', but none with the name {VECTOR!r}",
            fix="rename the columns",
        )


def check_worker(represent: RepresentBatch, identity: dict[str, object]) -> None:
    """Raise where the model of this process is not the one of the machine that gave the work."""
    if represent.identity != identity:
        raise ConfigError(
            "A worker has another model than the machine that gave it the work",
            got=f"{represent.folder}: {str(represent.identity['model'])[:16]}",
            expected=str(identity["model"])[:16],
            fix="put the same model under this path on every machine",
        )


def unusable_partition(place: str, error: Exception) -> DataError:
    """The error for a partition whose texts cannot be read or represented."""
    return DataError(
        "A partition of the input cannot be represented",
        got=f"{place}: {error}",
        fix="correct the input, and run the command again with --overwrite: other partitions keep their vectors",
    )


def read_record(file: Path) -> tuple[dict[str, Any], int] | None:
    """The record in the metadata of an output file and the number of its rows; None for any other file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file)
        return dict(json.loads(metadata.metadata[RECORD])), metadata.num_rows
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None


def is_complete(partition: Partition, record: dict[str, object]) -> bool:
    """Whether the output of a partition exists with this record and with all rows."""
    return partition.output.exists() and read_record(partition.output) == (record, partition.rows)


def _find_pending(
    partitions: Sequence[Partition], folder: Path, identity: dict[str, object], overwrite: bool
) -> list[Partition]:
    """The partitions without an output; outputs of anything else are an error, or removed where `overwrite` says so."""
    _remove_unfinished(folder)
    by_output = {one.output: one for one in partitions}
    complete, other = set(), []
    for file in sorted(file for file in folder.rglob("*") if not file.is_dir() and file.name != LOCK):
        found, partition = read_record(file), by_output.get(file)
        if found is None:
            raise ConfigError(
                "The output folder has a file that `metaxc represent` has not written, or that is damaged",
                got=file,
                expected="a new or empty folder, or one of an earlier run with the same model and input",
                fix="choose another folder, or remove the file if it is not needed; nothing was deleted",
            )
        if partition is not None and found == (partition.record(identity), partition.rows):
            complete.add(file)
            continue
        if not overwrite:
            place = f"{found[0].get('source')}, row group {found[0].get('row_group')}"
            raise different_output(file, found[0], identity, place, partition is not None)
        other.append(file)
    for file in other:  # only after all files were looked at
        file.unlink()
    return [one for one in partitions if one.output not in complete]


def different_output(
    output: Path, found: dict[str, Any], identity: dict[str, object], source: str, is_changed: bool
) -> MetaxcError:
    """The error for an output that does not belong to this model and input.

    Args:
        output: The file.
        found: Its record.
        identity: That of the callable.
        source: The place in the input that it was made from.
        is_changed: Whether the input still has this place, with another content.
    """
    names = {"vectors": "kind", "model": "model", "exposure": "exposure"}
    name = next((name for name in names if found.get(name) != identity[name]), None)
    if name is not None:
        what = f"The output folder has vectors of another {names[name]}"
        got, expected = str(found.get(name))[:16], str(identity[name])[:16]
    else:
        what = "The output folder has vectors of another input"
        got, expected = source, "the input as it is now" if is_changed else "outputs of this input alone"
    return ConfigError(
        what,
        got=f"{output}: {got}",
        expected=expected,
        fix="choose another folder, or add --overwrite (in Python: overwrite=True) to replace them",
    )


def _remove_unfinished(folder: Path) -> None:
    for file in folder.rglob(".*.parquet"):
        if UNFINISHED.fullmatch(file.name):
            file.unlink(missing_ok=True)


@contextmanager
def lock_output(folder: Path) -> Iterator[None]:
    """Create the output folder, and keep other runs on this machine from writing to it."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError("The output is not a folder", got=folder, expected="a new or empty folder")
    make_folder(folder)
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise ConfigError(
            "Another process is writing to the output folder", got=folder, fix="wait until it has finished"
        ) from error
