"""Reading and writing the files of a data set: lines of text, JSON lines, tab-separated clicks and Parquet.

A reader passes each line that it cannot use to `report` and skips it. The caller decides whether a problem is raised
(`raise_first`, for `read_folder` and the converters) or collected (`check_folder`), so the two never disagree.
Only a line feed ends a line, because a text may contain other characters that Unicode classifies as line breaks.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import IO, Any, cast

from metaxc.data.data_problems import Reporter, file_error
from metaxc.data.input_rules import BYTE_ORDER_MARK, validate_id, validate_text
from metaxc.errors import DataError

TIME_FORMAT = "seconds since 1970, or an ISO-8601 date or time (UTC if it has no time zone)"
_COUNT = "a whole number from 1 to 1,000,000,000"
MAX_COUNT = 1_000_000_000
"""Largest count on one line; sums over all lines of a file stay far below the largest int64."""

MAX_LINE = 4 << 20
"""Bytes of a line. The longest line that the rules for texts allow is far shorter; in other formats a line may be a
whole document or a long list of clicks. A megabyte of gzip may contain a line of a gigabyte, so a longer line is
refused before it is in memory."""

MAX_INFLATION = 50
"""How many times larger a column of a Parquet file may be uncompressed; columns of up to 200 MB may be smaller still.
Texts shrink to a tenth."""

MAX_SECONDS = 1e15
"""Largest time; a float64 cannot represent fractions of a second much beyond it."""


def read_lines(
    path: Path, report: Reporter, *, encoding: str = "utf-8", may_be_empty: bool = True
) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, blank ones included, without line ends; plain or `.gz`."""
    empty = True
    try:
        with _open(path) as file:
            for number, raw in enumerate(limited_lines(file), 1):
                try:
                    line = raw.decode(encoding).rstrip("\r\n")
                except UnicodeDecodeError as problem:
                    empty = False
                    name = encoding.upper()
                    message = f"The line is not valid {name}: byte {problem.start + 1} cannot be decoded"
                    report(file_error(path, number, f"invalid {name}", message, raw, f"{name} text"))
                    continue
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                empty = empty and not line
                yield number, line
    except (OSError, EOFError, zlib.error) as problem:
        report(file_error(path, None, "unreadable file", f"The file cannot be read: {problem}"))
        return
    if empty and not may_be_empty:
        report(file_error(path, None, "empty file", "The file is empty", expected="at least one line"))


def limited_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of an open file, with their line ends; one of more than `MAX_LINE` bytes is an `OSError`."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), 1):
        if len(line) > MAX_LINE:
            raise OSError(f"line {number} has more than {MAX_LINE:,} bytes")
        yield line


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(cast("io.RawIOBase", gzip.open(path, "rb")), 1 << 20)
    return path.open("rb")


def read_json_lines(
    path: Path, report: Reporter, *, expected: str = "one JSON object per line", may_be_empty: bool = True
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and JSON object of each line that is not blank."""
    for number, line in read_lines(path, report, may_be_empty=may_be_empty):
        if not line or line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as problem:
            message = f"The line is not JSON: {problem}"
            report(file_error(path, number, "invalid JSON", message, line, expected))
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            message = "The line is not a JSON object"
            report(file_error(path, number, "invalid JSON", message, line, expected))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, each ended by a line feed; a name that ends in .gz is compressed (same input, same bytes)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                packed.writelines(f"{line}\n".encode() for line in lines)
        else:
            file.writelines(f"{line}\n".encode() for line in lines)


def json_lines(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Each record as one line of JSON in plain UTF-8."""
    return (json.dumps(record, ensure_ascii=False) for record in records)


def read_texts(path: Path, report: Reporter) -> Iterator[tuple[int, str, str, int | None]]:
    """Line, id, text and first_seen (whole seconds since 1970, or None) of each record with a valid id.

    A record with a valid id and an invalid text is returned with the text "", so that clicks on it are not reported as
    unknown. Either every record has a first_seen or none has.
    """
    timed: bool | None = None
    rows = (
        _read_parquet(path, ("id", "text"), {"first_seen": None}, report)
        if _is_parquet(path)
        else _text_records(path, report)
    )
    for line, raw_id, raw_text, raw_time in rows:
        name = _parse_id(path, line, raw_id, report)
        if name is None:
            continue
        text = _parse_text(path, line, raw_text, report)
        if timed is None:
            timed = raw_time is not None
        time = None if raw_time is None else parse_time(raw_time)
        if timed != (raw_time is not None):
            message = "Some lines have a first_seen and some do not"
            expected = "a first_seen on every line, or on none"
            report(file_error(path, line, "first_seen on some lines", message, raw_time, expected))
            time = None
        elif timed and time is None:
            message = "The first_seen is not a valid time"
            report(file_error(path, line, "invalid time", message, raw_time, TIME_FORMAT))
        yield line, name, text, None if time is None else math.floor(time)


def _text_records(path: Path, report: Reporter) -> Iterator[tuple[int, object, object, object]]:
    expected = '{"id": …, "text": …} on one line'
    for number, record in read_json_lines(path, report, expected=expected, may_be_empty=False):
        yield number, record.get("id"), record.get("text"), record.get("first_seen")


def _parse_id(path: Path, line: int, value: object, report: Reporter, key: str = "id") -> str | None:
    if value is None:
        report(file_error(path, line, "missing key", f'The line has no "{key}"', expected="an id"))
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        report(file_error(path, line, "invalid id", "The id is not a string", value, "a string"))
        return None
    name = str(value)
    try:
        return validate_id(name)
    except DataError as wrong:
        report(file_error(path, line, "invalid id", wrong.what, name, str(wrong.expected)))
        return None


def _parse_text(path: Path, line: int, value: object, report: Reporter) -> str:
    if value is None:
        report(file_error(path, line, "missing key", 'The line has no "text"', expected="a text"))
        return ""
    if not isinstance(value, str):
        report(file_error(path, line, "text not a string", "The text is not a string", value, "a string"))
        return ""
    try:
        return validate_text(value)
    except DataError as wrong:
        kind = "empty text" if wrong.what.endswith("empty") else "invalid text"
        report(file_error(path, line, kind, wrong.what, value, str(wrong.expected)))
        return ""


def parse_time(value: object) -> float | None:
    """Seconds since 1970 from a number, an ISO-8601 string or a date; None if it is none of these.

    A string of digits is a number, never a date without dashes.
    """
    try:
        if isinstance(value, str):
            text = value
            try:
                value = float(text)
            except ValueError:
                value = datetime.fromisoformat(text.strip())
        if isinstance(value, date):
            moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < MAX_SECONDS else None


def format_time(seconds: float) -> str:
    """The time as ISO 8601 in UTC; as a number of seconds where it is outside of the years 1 to 9999."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s"


def parse_count(value: object) -> int | str:
    """A count of events from a number or a string of digits; a sentence that says what is wrong if it is none."""
    try:
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        number = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
        )
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number != math.floor(number):
        return "The count is not a whole number"
    if number < 1:
        return "The count is below 1"
    return int(number) if number <= MAX_COUNT else "The count is too large"


def read_clicks(
    path: Path, report: Reporter, *, may_be_empty: bool = False
) -> Iterator[tuple[int, str, str, float | None, int]]:
    """Line, query id, item id, time (seconds since 1970, or None) and number of events of each line.

    The first line decides whether there are a time and a count; all other lines must agree with it.
    """
    timed: bool | None = None
    rows = _parquet_clicks if _is_parquet(path) else _click_lines
    for line, query, item, raw_time, raw_count in rows(path, report, may_be_empty):
        time = None if raw_time is None else parse_time(raw_time)
        count = parse_count(raw_count)
        if timed is None:
            timed = raw_time is not None
        if timed != (raw_time is not None):
            message, expected = "Some lines have a time and some do not", "a time on every line, or on none"
            report(file_error(path, line, "time on some lines", message, raw_time, expected))
        elif timed and time is None:
            report(file_error(path, line, "invalid time", "The time is not valid", raw_time, TIME_FORMAT))
        elif isinstance(count, str):
            report(file_error(path, line, "invalid count", count, raw_count, _COUNT))
        else:
            yield line, query, item, time, count


def _click_lines(
    path: Path, report: Reporter, may_be_empty: bool
) -> Iterator[tuple[int, str, str, str | None, object]]:
    columns = 0
    for number, line in read_lines(path, report, may_be_empty=may_be_empty):
        if not line:
            continue
        parts = line.split("\t")
        if not columns and 2 <= len(parts) <= 4:
            columns = len(parts)
        if len(parts) != columns:
            _report_columns(path, number, line, len(parts), columns, report)
            continue
        # Only beside a count may the time be left out.
        time = None if columns == 2 or (columns == 4 and not parts[2]) else parts[2]
        yield number, parts[0], parts[1], time, parts[3] if columns == 4 else 1


def _report_columns(path: Path, number: int, line: str, found: int, columns: int, report: Reporter) -> None:
    expected = "a query id, an item id and optionally a time and a count, separated by tabs"
    if columns:
        expected = f"{columns} columns separated by tabs, as on the first line"
    message = f"The line has {found} {'column' if found == 1 else 'columns'}"
    report(file_error(path, number, "wrong number of columns", message, line, expected))


def _parquet_clicks(
    path: Path, report: Reporter, may_be_empty: bool
) -> Iterator[tuple[int, str, str, object, object]]:
    optional = {"time": None, "count": 1}
    for row, query, item, time, count in _read_parquet(
        path, ("query", "item"), optional, report, may_be_empty=may_be_empty
    ):
        query_id = _parse_id(path, row, query, report, "query")
        item_id = _parse_id(path, row, item, report, "item")
        if query_id is not None and item_id is not None:
            yield row, query_id, item_id, time, count


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def _read_parquet(
    path: Path,
    needed: tuple[str, str],
    optional: Mapping[str, object],
    report: Reporter,
    *,
    may_be_empty: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """Row number, the two needed columns and the optional ones, batch by batch.

    Args:
        path: The file.
        needed: Names of the columns that must exist.
        optional: The value of each other column where the file has no such column.
        report: Receives each problem.
        may_be_empty: Whether a file without rows is allowed.
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
            for batch in file.iter_batches(columns=columns):
                values = {name: _to_python(batch.column(name), pa) for name in columns}
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


def _to_python(column: Any, pa: Any) -> list[object]:
    """A column as Python values; a string that is not UTF-8 stays bytes, which are then reported as no string."""
    if pa.types.is_dictionary(column.type):
        values = _to_python(column.dictionary, pa)
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
