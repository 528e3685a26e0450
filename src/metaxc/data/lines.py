"""Texts and clicks, line by line: the one parser behind reading a folder and checking it.

A line that cannot be used is told to `report` and left out; the caller decides whether that ends the reading
(`read_folder` raises) or is one entry of a list (`check_folder` collects). Lines end with a newline and with
nothing else, so that a text may hold any other character that Unicode calls a line end.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import IO, Any, cast

from metaxc.data.data_problems import BYTE_ORDER_MARK, Reporter, error, id_problem, text_problem

_TIME = "seconds since 1970, or an ISO-8601 date or time (UTC where it names no zone)"
FARTHEST = 1e15  # seconds; beyond it a float64 no longer holds a fraction of a second


def seconds(value: object) -> float | None:
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
    return number if math.isfinite(number) and abs(number) < FARTHEST else None


def read_lines(path: Path, report: Reporter, *, may_be_empty: bool = False) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text, without its line end, of each line that is not blank; plain or `.gz`."""
    content = False
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, 1):
                try:
                    line = raw.decode().rstrip("\r\n")
                except UnicodeDecodeError as problem:
                    content = True
                    message = f"The line is not UTF-8: byte {problem.start + 1} cannot be decoded"
                    report(error(path, number, "invalid UTF-8", message, raw, "UTF-8 text"))
                    continue
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                if line:
                    content = True
                    yield number, line
    except (OSError, EOFError, zlib.error) as problem:
        report(error(path, None, "unreadable file", f"The file cannot be read: {problem}"))
        return
    if not content and not may_be_empty:
        report(error(path, None, "empty file", "The file is empty", expected="at least one line"))


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(cast("io.RawIOBase", gzip.open(path, "rb")), 1 << 20)
    return path.open("rb")


def read_texts(path: Path, report: Reporter) -> Iterator[tuple[int, str, str, int | None]]:
    """Line, id, text and first_seen (whole seconds since 1970, or None) of each record that has an id.

    A record with a good id and a bad text comes with the text "", so that clicks on it are not called
    unknown. Either every record has a first_seen or none has.
    """
    timed: bool | None = None
    rows = _parquet(path, ("id", "text"), "first_seen", report) if _is_parquet(path) else _json(path, report)
    for line, raw_id, raw_text, raw_time in rows:
        name = _id_of(path, line, raw_id, report)
        if name is None:
            continue
        text = _text_of(path, line, raw_text, report)
        if timed is None:
            timed = raw_time is not None
        time = None if raw_time is None else seconds(raw_time)
        if timed != (raw_time is not None):
            message = "Some lines have a first_seen and some have none"
            expected = "a first_seen on every line, or on none"
            report(error(path, line, "first_seen on some lines", message, raw_time, expected))
            time = None
        elif timed and time is None:
            report(error(path, line, "invalid time", "The first_seen is not a time", raw_time, _TIME))
        yield line, name, text, None if time is None else math.floor(time)


def _id_of(path: Path, line: int, value: object, report: Reporter, key: str = "id") -> str | None:
    if value is None:
        report(error(path, line, "missing key", f'The line has no "{key}"', expected="an id"))
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        report(error(path, line, "invalid id", "The id is not a string", value, "a string"))
        return None
    name = str(value)
    wrong = id_problem(name)
    if wrong is not None:
        report(error(path, line, "invalid id", wrong, name, "a string on one line, without tabs"))
        return None
    return name


def _text_of(path: Path, line: int, value: object, report: Reporter) -> str:
    if value is None:
        report(error(path, line, "missing key", 'The line has no "text"', expected="a text"))
        return ""
    if not isinstance(value, str):
        report(error(path, line, "text not a string", "The text is not a string", value, "a string"))
        return ""
    wrong = text_problem(value)
    if wrong is not None:
        kind = "empty text" if wrong.endswith("empty") else "invalid Unicode"
        report(error(path, line, kind, wrong, value, "a text of at least one visible character"))
        return ""
    return value


def _json(path: Path, report: Reporter) -> Iterator[tuple[int, object, object, object]]:
    expected = '{"id": …, "text": …} on one line'
    for number, line in read_lines(path, report):
        if line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as problem:
            report(error(path, number, "invalid JSON", f"The line is not JSON: {problem}", line, expected))
            continue
        if not isinstance(record, dict):
            report(error(path, number, "invalid JSON", "The line is not a JSON object", line, expected))
            continue
        yield number, record.get("id"), record.get("text"), record.get("first_seen")


def read_pairs(
    path: Path, report: Reporter, *, may_be_empty: bool = False
) -> Iterator[tuple[int, str, str, float | None]]:
    """Line, query id, item id and time (seconds since 1970, or None) of each click.

    The first line decides whether clicks have a time; every other line must be like it.
    """
    if _is_parquet(path):
        yield from _parquet_pairs(path, report, may_be_empty)
        return
    columns = 0
    for number, line in read_lines(path, report, may_be_empty=may_be_empty):
        parts = line.split("\t")
        if len(parts) != columns:
            if not columns and 2 <= len(parts) <= 3:
                columns = len(parts)
            else:
                _columns(path, number, line, len(parts), columns, report)
                continue
        if columns == 2:
            yield number, parts[0], parts[1], None
            continue
        time = seconds(parts[2])
        if time is None:
            report(error(path, number, "invalid time", "The third column is not a time", parts[2], _TIME))
        else:
            yield number, parts[0], parts[1], time


def _columns(path: Path, number: int, line: str, found: int, columns: int, report: Reporter) -> None:
    expected = "query id, item id, and perhaps a time, with tabs between"
    if columns:
        expected = f"{columns} columns with tabs between, as on the first line"
    plural = "column" if found == 1 else "columns"
    report(error(path, number, "wrong number of columns", f"The line has {found} {plural}", line, expected))


def _parquet_pairs(
    path: Path, report: Reporter, may_be_empty: bool
) -> Iterator[tuple[int, str, str, float | None]]:
    timed: bool | None = None
    for row, query, item, raw in _parquet(path, ("query", "item"), "time", report, may_be_empty=may_be_empty):
        query_id = _id_of(path, row, query, report, "query")
        item_id = _id_of(path, row, item, report, "item")
        time = None if raw is None else seconds(raw)
        if timed is None:
            timed = raw is not None
        if timed != (time is not None) or (raw is not None and time is None):
            report(error(path, row, "invalid time", "The time is missing or not a time", raw, _TIME))
        elif query_id is not None and item_id is not None:
            yield row, query_id, item_id, time


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def _parquet(
    path: Path, needed: tuple[str, str], time: str, report: Reporter, *, may_be_empty: bool = False
) -> Iterator[tuple[int, object, object, object]]:
    """Row number, the two needed columns and the time column (None where absent), batch by batch."""
    import pyarrow as pa  # a third of a second to import, and most folders have no parquet file
    import pyarrow.parquet as pq

    row = 0
    try:
        with pq.ParquetFile(path) as file:
            found = file.schema_arrow.names
            missing = [name for name in needed if name not in found]
            if missing:
                message = f"The file has no column {missing[0]!r}"
                expected = f"columns {', '.join(needed)} and perhaps {time}"
                report(error(path, None, "missing column", message, found, expected))
                return
            columns = [*needed, *([time] if time in found else [])]
            for batch in file.iter_batches(columns=columns):
                values = [_values(batch.column(name), pa) for name in columns]
                times = values[2] if len(values) == 3 else [None] * len(values[0])
                for first, second, moment in zip(values[0], values[1], times, strict=True):
                    row += 1
                    yield row, first, second, moment
    except (OSError, pa.ArrowException, ValueError, OverflowError) as problem:
        report(error(path, None, "unreadable file", f"The file cannot be read: {problem}"))
        return
    if row == 0 and not may_be_empty:
        report(error(path, None, "empty file", "The file is empty", expected="at least one row"))


def _values(column: Any, pa: Any) -> list[object]:
    """A column as Python values; a string that is not UTF-8 stays bytes, which no parser takes for a text."""
    if pa.types.is_timestamp(column.type):  # nanoseconds have no Python counterpart
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    try:
        return cast("list[object]", column.to_pylist())
    except UnicodeDecodeError:
        return [_decoded(raw) for raw in column.cast(pa.binary()).to_pylist()]


def _decoded(raw: bytes | None) -> object:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return raw
