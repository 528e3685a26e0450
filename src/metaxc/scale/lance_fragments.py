"""A fragment of a Lance dataset as a partition: reading it, writing its vectors, and the record that it is complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metaxc.artifacts import json_digest, sync, write_atomically
from metaxc.errors import DataError, MetaxcError
from metaxc.extras import import_extra
from metaxc.scale.partitions import BATCH_ROWS, check_columns, check_worker, unusable_partition
from metaxc.scale.represent_batch import VECTOR, RepresentBatch

EXTRA = "sync-lance"
SUFFIX = ".lance"
RECORDS, DATA, VERSIONS = "_represent", "data", "_versions"
"""Folders of an output dataset."""

MOST_ROWS = 2**31 - 1
"""Rows of a data file: a partition becomes one fragment, as long as Lance does not divide it by its bytes."""

LANCE_ERRORS = (OSError, RuntimeError, ValueError)
"""What Lance raises for missing and damaged files, and for conflicts."""


@dataclass(frozen=True)
class FragmentPartition:
    """A fragment of the input dataset, and the dataset that its vectors are written to.

    Args:
        source: The input dataset.
        version: Of the input dataset, which workers open.
        fragment: Id of the fragment.
        rows: Of the fragment, without those that were deleted.
        content: Identifies the data files and deleted rows of the fragment: another content is another source.
        output: The output dataset.
    """

    source: Path
    version: int
    fragment: int
    rows: int
    content: str
    output: Path

    def record(self, identity: dict[str, object]) -> dict[str, object]:
        """What the record says about the partition; `identity` is that of the callable."""
        return {**identity, "source": self.source.name, "fragment": self.fragment, "content": self.content}

    def record_file(self, identity: dict[str, object]) -> Path:
        """Another model or content has a record of its own: the old one stays until the new one is committed."""
        name = f"{self.fragment:06d}-{json_digest(self.record(identity))[:16]}.json"
        return self.output / RECORDS / name


@dataclass(frozen=True)
class WrittenPartition:
    """A record of `_represent`.

    Args:
        file: Of the record.
        record: That of `FragmentPartition.record`.
        rows: Of all fragments.
        fragments: Of the output, as JSON of Lance.
        sizes: Bytes of each data file, by its name.
    """

    file: Path
    record: dict[str, Any]
    rows: int
    fragments: list[dict[str, Any]]
    sizes: dict[str, int]

    @property
    def is_whole(self) -> bool:
        """Whether its data files are there, with the sizes that they had."""
        folder = self.file.parent.parent / DATA
        try:
            return all((folder / name).stat().st_size == size for name, size in self.sizes.items())
        except OSError:
            return False

    def matches(self, partition: FragmentPartition, identity: dict[str, object]) -> bool:
        """Whether it is a complete output of this partition."""
        return self.record == partition.record(identity) and self.rows == partition.rows and self.is_whole


@dataclass(frozen=True)
class FragmentWriter:
    """Computes and writes one partition; sent to every worker of an engine.

    Args:
        represent: Computes the vectors.
        identity: That of the callable where the work began: a worker with another model must not write.
    """

    represent: RepresentBatch
    identity: dict[str, object]

    def __call__(self, partition: FragmentPartition) -> int:
        """Write the output of a partition, unless it is there already, and return the number of its rows."""
        file = partition.record_file(self.identity)
        written = read_written(file)
        if written is not None and written.matches(partition, self.identity):
            return partition.rows  # by a worker that was lost before it could say so
        check_worker(self.represent, self.identity)
        fragments = self._write(partition)
        names = [name for fragment in fragments for name in data_files(fragment)]
        folder = partition.output / DATA
        for name in names:
            sync(folder / name)
        sync(folder)
        new = {
            "record": partition.record(self.identity),
            "rows": partition.rows,
            "fragments": fragments,
            "sizes": {name: (folder / name).stat().st_size for name in names},
        }
        write_atomically(file, json.dumps(new).encode())
        return partition.rows

    def _write(self, partition: FragmentPartition) -> list[dict[str, Any]]:
        """Write data files, which belong to no version of the dataset yet."""
        import pyarrow as pa

        lance = import_extra("lance", EXTRA)
        place = f"{partition.source}, fragment {partition.fragment}"
        try:
            opened = lance.dataset(str(partition.source), version=partition.version)
        except LANCE_ERRORS as error:
            raise unusable_partition(place, error) from error
        failed: list[Exception] = []  # Lance would turn an error of the reader into a text

        def read() -> Iterator[Any]:
            try:
                for batch in opened.get_fragment(partition.fragment).to_batches(batch_size=BATCH_ROWS):
                    yield from self.represent(pa.Table.from_batches([batch])).to_batches()
            except (MetaxcError, pa.ArrowException, *LANCE_ERRORS) as error:
                failed.append(error)
                raise

        schema = output_schema(opened, self.represent)
        reader = pa.RecordBatchReader.from_batches(schema, read())
        # Neither mode commits anything; "overwrite" permits another schema than that of the dataset.
        mode = "overwrite" if (partition.output / VERSIONS).is_dir() else "create"
        try:
            fragments = lance.fragment.write_fragments(
                reader, str(partition.output), schema, mode=mode, max_rows_per_file=MOST_ROWS
            )
        except LANCE_ERRORS as error:
            if failed:
                raise unusable_partition(place, failed[0]) from failed[0]
            raise lance_failed("A fragment cannot be written", partition.output, error) from error
        return [json.loads(json.dumps(one.to_json())) for one in fragments]


def list_fragments(opened: Any, source: Path, folder: Path) -> list[FragmentPartition]:
    """The fragments of an open dataset that have rows, in their order.

    Args:
        opened: The input dataset.
        source: Its folder.
        folder: The output dataset.
    """
    check_columns(source, opened.schema.names)
    found = []
    for fragment in opened.get_fragments():
        facts, rows = fragment.metadata.to_json(), fragment.count_rows()
        content = [
            data_files(facts),
            facts["physical_rows"],
            facts["deletion_file"],
            facts.get("overlays") or [],
        ]
        if rows:
            digest = json_digest(content)
            found.append(
                FragmentPartition(source, opened.version, fragment.fragment_id, rows, digest, folder)
            )
    if not found:
        raise DataError("The input has no rows", got=source, expected="a Lance dataset with rows")
    return found


def output_schema(opened: Any, represent: RepresentBatch) -> Any:
    """The Arrow schema of the output for an open input: all of its columns, and `vector`."""
    import pyarrow as pa

    vector = pa.list_(pa.float32(), represent.model.encoder.dim + 1)
    return opened.schema.remove_metadata().append(pa.field(VECTOR, vector))


def data_files(fragment: dict[str, Any]) -> list[str]:
    """The names of the data files of a fragment, which is JSON of Lance."""
    return [str(file["path"]) for file in fragment["files"]]


def read_written(file: Path) -> WrittenPartition | None:
    """A record of `_represent`; None where there is none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return WrittenPartition(file, found["record"], found["rows"], found["fragments"], found["sizes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def lance_failed(what: str, folder: Path, error: Exception) -> MetaxcError:
    """The error for what Lance itself has refused."""
    return MetaxcError(
        what, got=f"{folder}: {error}", fix="run the same command again: what is complete is kept"
    )
