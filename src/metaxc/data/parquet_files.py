"""Reading Parquet files: rows of some of their columns as Python values, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from metaxc.data.data_problems import Reporter, file_error
from metaxc.data.text_lines import MAX_LINE

MAX_INFLATION = 50
"""How many times larger a column of a Parquet file may be uncompressed; columns of up to 200 MB may be smaller still.
Texts shrink to a tenth."""


def is_parquet(path: Path) -> bool:
    """Whether the file's name is that of a Parquet file."""
    return path.suffix == ".parquet"


def read_parquet(
    path: Path,
    needed: Sequence[str],
    optional: Mapping[str, object],
    report: Reporter,
    *,
    may_be_empty: bool = False,
    rows_at_once: int = 65_536,
) -> Iterator[tuple[Any, ...]]:
    """Row number, the needed columns and the optional ones, batch by batch.

    Args:
        path: The file.
        needed: Names of the columns that must exist.
        optional: The value of each other column where the file has no such column.
        report: Receives each problem.
        may_be_empty: Whether a file without rows is allowed.
        rows_at_once: Rows of a batch, which are in memory together; fewer for columns of vectors.
    """
    import pyarrow as pa  # takes a third of a second to import, and most folders have no Parquet file
    import pyarrow.parquet as pq

    row = 0
    try:
        metadata = pq.read_metadata(path)
        found = metadata.schema.to_arrow_schema().names
        missing = [name for name in needed if name not in found]
        if missing:
            message = f"The file has no column {missing[0]!r}"
            expected = f"the columns {', '.join(needed)} and optionally {', '.join(optional)}"
            report(file_error(path, None, "missing column", message, found, expected))
            return
        columns = [*needed, *(name for name in optional if name in found)]
        with pq.ParquetFile(path, read_dictionary=_check_columns(metadata, columns)) as file:
            for batch in file.iter_batches(rows_at_once, columns=columns):
                values = {name: to_python(batch.column(name), pa) for name in columns}
                values |= {
                    name: [value] * len(batch) for name, value in optional.items() if name not in values
                }
                for record in zip(*(values[name] for name in (*needed, *optional)), strict=True):
                    row += 1
                    yield row, *record
    except (OSError, pa.ArrowException, ValueError, KeyError, OverflowError) as problem:
        report(file_error(path, None, "unreadable file", f"The file cannot be read: {problem}"))
        return
    if row == 0 and not may_be_empty:
        report(file_error(path, None, "empty file", "The file is empty", expected="at least one row"))


def _check_columns(metadata: Any, columns: Sequence[str]) -> list[str]:
    """The columns of strings; an `OSError` where a column of a small file would become very large in memory.

    They are read as dictionaries, in which a repeated value is one value: a small file can repeat a long text.
    """
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            size, packed = column.total_uncompressed_size, max(column.total_compressed_size, MAX_LINE)
            if column.path_in_schema in columns and size > MAX_INFLATION * packed:
                raise OSError(f"column {column.path_in_schema!r} has {size:,} bytes uncompressed")
    known = (metadata.schema.column(place) for place in range(metadata.num_columns))
    return [one.path for one in known if one.path in columns and one.physical_type == "BYTE_ARRAY"]


def to_python(column: Any, pa: Any) -> list[object]:
    """A column as Python values; a string that is not UTF-8 stays bytes, which are then reported as no string."""
    if pa.types.is_dictionary(column.type):
        values = to_python(column.dictionary, pa)
        return [None if place is None else values[place] for place in column.indices.to_pylist()]
    if pa.types.is_timestamp(column.type):  # Python has no nanoseconds
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    try:
        return cast("list[object]", column.to_pylist())
    except UnicodeDecodeError:
        return [_decode(raw) for raw in column.cast(pa.binary()).to_pylist()]


def _decode(raw: bytes | None) -> object:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return raw
