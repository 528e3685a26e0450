"""The records of a data set: texts and clicks, parsed from the lines of its files or from the rows of an import.

What cannot be used is passed to `report` and left out, or read as it was probably meant (`Problem.remedy`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

from metaxc.data.column_names import looks_like_header
from metaxc.data.data_problems import LEFT_OUT, Reporter, file_error
from metaxc.data.input_rules import validate_id, validate_tags, validate_text
from metaxc.data.item_fields import Fields, validate_fields
from metaxc.data.parquet_files import is_parquet, read_parquet
from metaxc.data.text_lines import read_json_lines, read_lines
from metaxc.errors import DataError

TIME_FORMAT = "seconds since 1970, or an ISO-8601 date or time (UTC if it has no time zone)"
_COUNT = "a whole number from 1 to 1,000,000,000"
MAX_COUNT = 1_000_000_000
"""Largest count on one line; sums over all lines of a file stay far below the largest int64."""

MAX_SECONDS = 1e11
"""Seconds since 1970 until the year 5138. A larger number is a time in a smaller unit: `SMALLER_UNITS`."""

SMALLER_UNITS = ((1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds"))
"""How many of a unit make a second. A time of these years is told by its size: 1.7e12 can only be milliseconds."""


class TextRecord(NamedTuple):
    """An item or a query of a file.

    Args:
        line: Line number, from 1.
        id: A valid id.
        text: A valid text, or "" where the text cannot be used: clicks on it are then not reported as unknown.
        first_seen: Whole seconds since 1970, if given.
        tags: The item's tags, sorted.
        fields: The item's fields.
    """

    line: int
    id: str
    text: str
    first_seen: int | None
    tags: tuple[str, ...]
    fields: Fields


RawText = tuple[int, object, object, object, object, object]
"""Line, id, text, first_seen, tags and fields of a record, not yet parsed."""

RawClick = tuple[int, str, str, object, object]
"""Line, query, item, time (None for none) and count of a click, not yet parsed."""


def read_texts(path: Path, report: Reporter) -> Iterator[TextRecord]:
    """The records of a file of items or queries."""
    optional = {"first_seen": None, "tags": None, "fields": None}
    if is_parquet(path):
        return parse_texts(path, read_parquet(path, ("id", "text"), optional, report), report)
    return parse_texts(path, _text_lines(path, report), report)


def parse_texts(path: Path, rows: Iterable[RawText], report: Reporter) -> Iterator[TextRecord]:
    """Parse records; those without a valid id are left out.

    Args:
        path: Names the file in problems.
        rows: The records.
        report: Receives each problem.
    """
    for line, raw_id, raw_text, raw_time, raw_tags, raw_fields in rows:
        name = parse_id(path, line, raw_id, report)
        if name is None:
            continue
        text = parse_text(path, line, raw_text, report)
        time = None
        if raw_time is not None:
            time = _parse_time(path, line, raw_time, "first_seen", report)
        tags = () if raw_tags is None else _parse_tags(path, line, raw_tags, report)
        fields = {} if raw_fields is None else _parse_fields(path, line, raw_fields, report)
        yield TextRecord(line, name, text, None if time is None else math.floor(time), tags, fields)


def _text_lines(path: Path, report: Reporter) -> Iterator[RawText]:
    expected = '{"id": …, "text": …} on one line'
    for number, record in read_json_lines(path, report, expected=expected, may_be_empty=False):
        get = record.get
        yield number, get("id"), get("text"), get("first_seen"), get("tags"), get("fields")


def parse_id(path: Path, line: int, value: object, report: Reporter, key: str = "id") -> str | None:
    """A valid id, or None where the value is none."""
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


def parse_text(path: Path, line: int, value: object, report: Reporter) -> str:
    """A valid text, or "" where the value is none."""
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


def _parse_tags(path: Path, line: int, value: object, report: Reporter) -> tuple[str, ...]:
    try:
        if not isinstance(value, list | tuple):
            raise DataError("The tags are not a list", expected="a list of strings")
        return validate_tags(value)
    except DataError as wrong:
        remedy = "read without its tags"
        report(file_error(path, line, "invalid tags", wrong.what, value, str(wrong.expected), remedy))
        return ()


def _parse_fields(path: Path, line: int, value: object, report: Reporter) -> Fields:
    """Valid fields; those that a .parquet file has as a string are JSON."""
    try:
        if isinstance(value, str):
            value = json.loads(value)
        return validate_fields(value)  # type: ignore[arg-type]
    except (DataError, ValueError, RecursionError) as wrong:
        what, expected = (
            (wrong.what, str(wrong.expected))
            if isinstance(wrong, DataError)
            else ("The fields are not JSON", 'an object: {"price": 19.9}')
        )
        report(file_error(path, line, "invalid fields", what, value, expected, "read without its fields"))
        return {}


def _parse_time(path: Path, line: int, value: object, name: str, report: Reporter) -> float | None:
    """Seconds since 1970, or None where the value is no time. One in a smaller unit is reported and converted."""
    time = parse_time(value)
    if time is not None:
        return time
    converted = convert_smaller_unit(value)
    if converted is None:
        remedy = "read without it" if name == "first_seen" else LEFT_OUT
        message = f"The {name} is not valid"
        report(file_error(path, line, "invalid time", message, value, TIME_FORMAT, remedy))
        return None
    seconds, unit = converted
    message = f"The {name} is in {unit} in place of seconds"
    remedy = f"converted from {unit} to seconds"
    report(file_error(path, line, f"time in {unit}", message, value, TIME_FORMAT, remedy))
    return seconds


def parse_time(value: object) -> float | None:
    """Seconds since 1970 from a number, an ISO-8601 string or a date; None if it is none of these.

    A string of digits is a number, never a date without dashes.
    """
    try:
        number = _to_number(value)
    except (ValueError, OverflowError):
        return None
    return number if number is not None and math.isfinite(number) and abs(number) < MAX_SECONDS else None


def convert_smaller_unit(value: object) -> tuple[float, str] | None:
    """Seconds, and the name of the unit, of a time that is too large for seconds; None if it is no such number."""
    try:
        number = _to_number(value)
    except (ValueError, OverflowError):
        return None
    if number is None or not math.isfinite(number) or abs(number) < MAX_SECONDS:
        return None
    units = ((number / many, unit) for many, unit in SMALLER_UNITS)
    return next((found for found in units if abs(found[0]) < MAX_SECONDS), None)


def _to_number(value: object) -> float | None:
    if isinstance(value, str):
        text = value
        try:
            value = float(text)
        except ValueError:
            value = datetime.fromisoformat(text.strip().removesuffix(" UTC"))  # so BigQuery writes it
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


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
    """The clicks of a file; see `parse_clicks`."""
    rows = _parquet_clicks if is_parquet(path) else _click_lines
    return parse_clicks(path, rows(path, report, may_be_empty), report)


def parse_clicks(
    path: Path, rows: Iterable[RawClick], report: Reporter
) -> Iterator[tuple[int, str, str, float | None, int]]:
    """Line, query, item, time (seconds since 1970, or None) and number of events of each click whose time and count
    are valid.

    Args:
        path: Names the file in problems.
        rows: The clicks.
        report: Receives each problem.
    """
    for line, query, item, raw_time, raw_count in rows:
        time = None
        if raw_time is not None:
            time = _parse_time(path, line, raw_time, "time", report)
            if time is None:
                continue
        count = parse_count(raw_count)
        if isinstance(count, str):
            report(file_error(path, line, "invalid count", count, raw_count, _COUNT))
        else:
            yield line, query, item, time, count


def _click_lines(path: Path, report: Reporter, may_be_empty: bool) -> Iterator[RawClick]:
    columns = 0
    for number, line in read_lines(path, report, may_be_empty=may_be_empty):
        if not line:
            continue
        parts = line.split("\t")
        if number == 1 and looks_like_header(parts):
            report_header(path, number, parts, report)
            continue
        if not columns and 2 <= len(parts) <= 4:
            columns = len(parts)
        if len(parts) != columns:
            _report_columns(path, number, line, len(parts), columns, report)
            continue
        # Only beside a count may the time be left out.
        time = None if columns == 2 or (columns == 4 and not parts[2]) else parts[2]
        yield number, parts[0], parts[1], time, parts[3] if columns == 4 else 1


def report_header(path: Path, line: int, names: Sequence[str], report: Reporter) -> None:
    """Report that a line has the names of columns in place of values."""
    message, expected = "The line is a header row", "values; this file has no header"
    report(file_error(path, line, "header row", message, "\t".join(names), expected, "skipped"))


def _report_columns(path: Path, number: int, line: str, found: int, columns: int, report: Reporter) -> None:
    expected = "a query id, an item id and optionally a time and a count, separated by tabs"
    if columns:
        expected = f"{columns} columns separated by tabs, as on the first line"
    message = f"The line has {found} {'column' if found == 1 else 'columns'}"
    report(file_error(path, number, "wrong number of columns", message, line, expected))


def _parquet_clicks(path: Path, report: Reporter, may_be_empty: bool) -> Iterator[RawClick]:
    optional = {"time": None, "count": 1}
    for row, query, item, time, count in read_parquet(
        path, ("query", "item"), optional, report, may_be_empty=may_be_empty
    ):
        query_id = parse_id(path, row, query, report, "query")
        item_id = parse_id(path, row, item, report, "item")
        if query_id is not None and item_id is not None:
            yield row, query_id, item_id, time, count
