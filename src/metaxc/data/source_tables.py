"""Tables from outside: CSV, TSV, JSON lines and Parquet files, data frames and Arrow tables, read row by row.

Bad rows are reported and left out, so that one does not cost the file. A row has the number that a spreadsheet shows:
in a file with a header the first record is row 2.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from metaxc.data.data_problems import Reporter, file_error, raise_first
from metaxc.data.parquet_files import read_parquet, to_python
from metaxc.data.text_lines import AS_WINDOWS, decode_windows, read_json_lines
from metaxc.errors import DataError

SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")
"""Ends of the names of files that can be imported; all but the last may be followed by .gz."""

DELIMITERS = ",;\t|"
SAMPLE = 200
"""Records of a JSON-lines file that are looked at for the names of its columns."""

BLOCK = 4 << 20
"""Bytes of a CSV file that are parsed at once. A record may not be longer, so it is the largest line that is read."""

PANDAS_INDEX = "__index_level_"
"""How pandas names an index without a name when it hands a frame to Arrow."""

Row = tuple[Any, ...]
"""The number of a row, then its values."""


@dataclass(frozen=True)
class Table:
    """A table that can be read once or more.

    Args:
        path: Names it in problems: a file, or only a name for a table in memory.
        columns: Names of its columns; a field of a nested object is "object.field".
        read: read(columns, report) returns the rows: number, then the value of each of these columns.
        rows: Number of rows, if it is known before they are read.
        untyped: Whether all values are strings, because the file has no types.
    """

    path: Path
    columns: list[str]
    read: Callable[[Sequence[str], Reporter], Iterator[Row]]
    rows: int | None = None
    untyped: bool = False


def open_table(source: object, name: str, *, header: bool = True) -> Table:
    """A table of a file's path, a pandas or polars data frame, an Arrow table, any other object that offers the Arrow
    or the dataframe interchange protocol, a dictionary of columns, or a list of dictionaries.

    Args:
        source: The file or table.
        name: Names a table in memory in problems.
        header: Whether the first line of a CSV or TSV file has the names of the columns; if not they are "1", "2", ….
    """
    if isinstance(source, str | Path):
        return _open_file(Path(source), header)
    if isinstance(source, list | tuple) and all(isinstance(row, Mapping) for row in source):
        return _open_records(cast("Sequence[Mapping[str, object]]", source), Path(name))
    return _open_frame(source, Path(name))


def _open_file(path: Path, header: bool) -> Table:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    kind = suffixes[-1] if suffixes else ""
    if not path.is_file():
        raise DataError("The file does not exist", got=path, expected="a file", fix="check the path")
    if kind == ".parquet":
        return _open_parquet(path)
    if kind in (".jsonl", ".ndjson", ".json"):
        return _open_json(path)
    if kind in (".csv", ".tsv", ".txt"):
        return _open_csv(path, "\t" if kind == ".tsv" else None, header)
    raise DataError(
        "The kind of file is not known", got=path.name, expected=f"a name that ends in {', '.join(SUFFIXES)}"
    )


def _open_bytes(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _open_csv(path: Path, delimiter: str | None, header: bool) -> Table:
    try:
        with _open_bytes(path) as file:
            first = file.readline(BLOCK)
    except (OSError, EOFError) as error:
        raise DataError("The file cannot be read", got=f"{path}: {error}") from error
    line = _decode(first)[0].lstrip("\ufeff").rstrip("\r\n")
    if not line:
        raise DataError(
            "The file has no header", got=f"{path}: an empty first line", expected="names of columns"
        )
    delimiter = delimiter or max(DELIMITERS, key=line.count)
    columns = _split_header(line, delimiter)
    if not header:
        columns = [str(number + 1) for number in range(len(columns))]
    return Table(
        path,
        columns,
        lambda wanted, report: _csv_rows(path, columns, delimiter, header, wanted, report),
        untyped=True,
    )


def _split_header(line: str, delimiter: str) -> list[str]:
    import csv

    return [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]


def _csv_rows(
    path: Path, columns: list[str], delimiter: str, header: bool, wanted: Sequence[str], report: Reporter
) -> Iterator[Row]:
    """Rows by Arrow's CSV reader. Values are read as bytes, so that a value that is not UTF-8 costs no more than a
    warning."""
    import pyarrow as pa
    from pyarrow import csv

    skipped: set[int] = set()

    def skip(row: Any) -> str:
        # The reader counts lines from 1, those with the header included.
        skipped.add(row.number)
        if row.text.strip(f"\r\n{delimiter} "):
            message = f"The row has {row.actual_columns} columns"
            expected = f"{row.expected_columns} columns, as in the first row"
            report(file_error(path, row.number, "wrong number of columns", message, row.text, expected))
        return "skip"

    places = [columns.index(name) for name in wanted]
    names = [str(place) for place in range(len(columns))]
    options = {
        "read_options": csv.ReadOptions(
            column_names=names, skip_rows=int(header), block_size=BLOCK, use_threads=False
        ),
        "parse_options": csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=skip
        ),
        "convert_options": csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()), include_columns=[names[p] for p in places]
        ),
    }
    number = int(header)
    try:
        with _open_bytes(path) as file, csv.open_csv(file, **options) as reader:
            for batch in reader:
                for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    while number in skipped:
                        number += 1
                    row = [_decode_value(path, number, raw, report) for raw in values]
                    if all(value == name for value, name in zip(row, wanted, strict=True)):
                        message, expected = "The row repeats the header", "values"
                        got = ", ".join(wanted)
                        report(file_error(path, number, "header row", message, got, expected, "skipped"))
                        continue
                    yield number, *row
    except (OSError, EOFError, pa.ArrowException) as error:
        message = f"The file cannot be read: {error}"
        report(file_error(path, None, "unreadable file", message, f"after row {number:,}"))


def _decode_value(path: Path, row: int, raw: bytes, report: Reporter) -> str:
    text, valid = _decode(raw)
    if not valid:
        message, expected = "The value is not valid UTF-8", "UTF-8 text"
        report(file_error(path, row, "invalid UTF-8", message, raw, expected, AS_WINDOWS))
    return text


def _decode(raw: bytes) -> tuple[str, bool]:
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return decode_windows(raw), False


def _open_json(path: Path) -> Table:
    columns: dict[str, None] = {}
    for _, record in islice(_json_records(path, lambda problem: None), SAMPLE):
        columns |= dict.fromkeys(_flatten(record))
    if not columns:
        raise_first(path.parent, "check the file")(
            file_error(path, None, "empty file", "The file has no record", None, "one JSON object per line")
        )

    def read(wanted: Sequence[str], report: Reporter) -> Iterator[Row]:
        for number, record in _json_records(path, report):
            yield number, *(_find(record, name) for name in wanted)

    return Table(path, list(columns), read)


def _json_records(path: Path, report: Reporter) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of the file; those of an index dump ("_source") without their envelope."""
    for number, record in read_json_lines(path, report):
        source = record.get("_source")
        yield number, source if isinstance(source, dict) else record


def _flatten(record: Mapping[str, object]) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from (f"{name}.{inner}" for inner in _flatten(value))
        else:
            yield name


def _find(record: Mapping[str, Any], name: str) -> object:
    """The value of a column; "a.b" is the field b of the object a."""
    if name in record:
        return record[name]
    first, _, rest = name.partition(".")
    inner = record.get(first)
    return _find(inner, rest) if rest and isinstance(inner, Mapping) else None


def _open_parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            "The file cannot be read", got=f"{path}: {error}", expected="a Parquet file"
        ) from error
    columns = [name for field in metadata.schema.to_arrow_schema() for name in _field_names(field, pa)]

    def read(wanted: Sequence[str], report: Reporter) -> Iterator[Row]:
        tops = list(
            dict.fromkeys(name if name in columns and "." not in name else _top(name) for name in wanted)
        )
        for number, *values in read_parquet(path, tops, {}, report):
            record = dict(zip(tops, values, strict=True))
            yield number, *(_find(record, name) for name in wanted)

    return Table(path, columns, read, metadata.num_rows)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _field_names(field: Any, pa: Any) -> Iterator[str]:
    if pa.types.is_struct(field.type):
        for inner in field.type:
            yield from (f"{field.name}.{name}" for name in _field_names(inner, pa))
    else:
        yield field.name


def _open_records(records: Sequence[Mapping[str, object]], path: Path) -> Table:
    columns = dict.fromkeys(name for record in records for name in _flatten(record))

    def read(wanted: Sequence[str], report: Reporter) -> Iterator[Row]:
        for number, record in enumerate(records, 1):
            yield number, *(_find(record, name) for name in wanted)

    return Table(path, list(columns), read, len(records))


def _open_frame(frame: Any, path: Path) -> Table:
    columns = frame_columns(frame)
    names = list(columns)

    def read(wanted: Sequence[str], report: Reporter) -> Iterator[Row]:
        values = [list(columns[name]()) for name in wanted]
        for number, row in enumerate(zip(*values, strict=True), 1):
            yield number, *row

    return Table(path, names, read)


def frame_columns(frame: Any) -> dict[str, Callable[[], Iterable[object]]]:
    """The columns of a data frame, an Arrow table or a dictionary of columns: a function that returns the values of
    each.

    Arrow is asked first: pandas and polars offer its stream. Where Arrow cannot represent a column (pandas allows any
    mixture of objects in one), the column's own values are taken.
    """
    import pyarrow as pa

    if isinstance(frame, Mapping):
        return {str(name): lambda values=values: values for name, values in frame.items()}  # type: ignore[misc]
    table = None
    try:
        if isinstance(frame, pa.Table):
            table = frame
        elif hasattr(frame, "__arrow_c_stream__"):
            table = pa.RecordBatchReader.from_stream(frame).read_all()
        elif hasattr(frame, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            table = from_dataframe(frame)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError):
        table = None
    if table is not None:
        return {
            name: lambda column=column: (v for chunk in column.chunks for v in to_python(chunk, pa))  # type: ignore[misc]
            for name, column in zip(table.column_names, table.columns, strict=True)
            if not name.startswith(PANDAS_INDEX)
        }
    if hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
        return {str(name): lambda name=name: frame[name].tolist() for name in frame.columns}  # type: ignore[misc]
    raise DataError(
        "This is no table",
        got=type(frame).__name__,
        expected="a file's path, a pandas or polars data frame, an Arrow table, a dictionary of columns, or a list of "
        "dictionaries",
    )
