"""Import: a table of items and a table of search events become a data set.

Queries with the same text, ignoring case and white space, are one query. Rows that cannot be used are left out if the
caller agrees (`skip_bad`); rows that can be read as they were meant (Windows-1252 text, times in milliseconds, a header
that is repeated) are read so, with a warning.

A log in the User Behavior Insights (UBI) schema is recognised by its columns. Its events have an action, of which
`UBI_ACTIONS` count as clicks, and the id of a query; the texts are in the events or in the file of queries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
from tqdm import tqdm

from metaxc.data.check import CheckReport, report_contents
from metaxc.data.column_names import UBI_ACTION
from metaxc.data.data_problems import LEFT_OUT, Problem, Reporter, file_error
from metaxc.data.dataset import Dataset, Texts
from metaxc.data.folder_contents import ClickCollector, ClickFile, FolderContents, TextFile, collect_texts
from metaxc.data.import_columns import (
    ImportColumns,
    are_numbers,
    describe_columns,
    find_event_columns,
    find_item_columns,
    is_ubi,
)
from metaxc.data.input_rules import MOST_TAG, MOST_TEXT, validate_text
from metaxc.data.item_fields import type_column
from metaxc.data.repair import RepairList, clean_contents
from metaxc.data.same_texts import normalise_text
from metaxc.data.source_tables import Row, Table, open_table
from metaxc.data.text_files import RawClick, RawText, parse_clicks, parse_texts, parse_time
from metaxc.errors import DataError

UBI_ACTIONS = ("click", "item_click", "product_click", "add_to_cart", "purchase", "watch", "download")
"""Actions of a UBI log that count as clicks where none are given; impressions, hovers and filters do not."""

ITEM_FIELDS = ("id", "text", "tags", "fields", "first_seen")
EVENT_FIELDS = ("query", "item", "time", "count")
QUERY_FIELDS = ("query_id", "query_text")


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    Args:
        dataset: The data set; None where rows cannot be used and `skip_bad` was not given.
        report: What was found, and the sizes.
        listed: What was left out and what was read differently.
        columns: One line per column in use, with the ones that were guessed marked.
        actions: Number of events of each action of a UBI log.
    """

    dataset: Dataset | None
    report: CheckReport
    listed: RepairList
    columns: list[str]
    actions: dict[str, int]


def import_tables(
    items: object,
    events: object,
    *,
    queries: object = None,
    columns: ImportColumns | None = None,
    actions: Sequence[str] = (),
    exclude_self: bool = False,
    skip_bad: bool = False,
    name: str = "data",
    progress: bool = False,
) -> Imported:
    """Build a data set from a table of items and a table of events.

    Args:
        items: A file (CSV, TSV, JSON lines, Parquet) or a table in memory: see `open_table`.
        events: Alike; a row is a click of a query on an item, or as many as its count.
        queries: Alike, where events have ids of queries: the texts of these.
        columns: Names of columns; the others are guessed by their names.
        actions: Of a UBI log, the actions that count as clicks; none for `UBI_ACTIONS`.
        exclude_self: Whether the queries are items themselves, given by id or by text (bought or read together); an
            item is then never an answer to its own text.
        skip_bad: Whether rows that cannot be used are left out; without it they leave no data set.
        name: Name of the data set in reports.
        progress: Whether to show progress bars on a terminal.
    """
    given = columns or ImportColumns()
    item_table = open_table(items, "items", header=not are_numbers(given.of_items))
    event_table = open_table(events, "events", header=not are_numbers(given.of_events))
    query_table = None if queries is None else open_table(queries, "queries")
    found = find_item_columns(given, item_table)
    found = find_event_columns(found, event_table, query_table)
    names = dict.fromkeys(ITEM_FIELDS, item_table.path.name) | dict.fromkeys(
        EVENT_FIELDS, event_table.path.name
    )
    if query_table is not None:
        names |= dict.fromkeys(QUERY_FIELDS, query_table.path.name)
    report, listed = CheckReport(name), RepairList()

    def add(problem: Problem) -> None:
        if problem.remedy not in (None, LEFT_OUT):  # it was read as it was meant
            problem = replace(problem, severity="warning")
        report.add(problem)
        listed.add(problem)

    item_file = _read_items(item_table, found, add, progress)
    reader = _EventReader(event_table, found, item_file, add, exclude_self, actions)
    if query_table is not None:
        reader.texts = _read_query_texts(query_table, found, progress)
    query_file, click_file = reader.read(progress)
    contents = FolderContents(item_file, query_file, click_file, exclude_self=exclude_self)
    report_contents(contents, report)
    report.problems = [problem for problem in report.problems if problem.severity != "note"]
    report.counts["note"] = 0
    dataset = None
    if report.ok or skip_bad:
        _refuse_unreadable(report)
        dataset = clean_contents(contents, listed.add).to_dataset(name)
    described = describe_columns(given, found, names)
    return Imported(dataset, report, listed, described, dict(reader.actions.most_common()))


def import_dataset(items: object, events: object, **options: Any) -> Dataset:
    """The data set of `import_tables`, with the same options; a row that cannot be used is a `DataError`, unless
    `skip_bad` is given."""
    imported = import_tables(items, events, **options)
    if imported.dataset is not None:
        return imported.dataset
    report = imported.report
    first = next(problem for problem in report.problems if problem.severity == "error")
    count = report.counts["error"]
    raise DataError(
        f"{count:,} {'row' if count == 1 else 'rows'} cannot be used",
        got=f"the first: {first}",
        expected="rows with an id, a text, and clicks on known items",
        fix="pass skip_bad=True to leave them out, or correct them",
    )


def _refuse_unreadable(report: CheckReport) -> None:
    """A file that could not be read to its end is not a bad row: nothing says what is missing."""
    broken = next((one for one in report.problems if one.severity == "error" and one.remedy is None), None)
    if broken is not None:
        raise DataError(f"{broken.file}: {broken.message}", got=broken.got, fix="export the file again")


def _rows(table: Table, columns: Sequence[str], report: Reporter, progress: bool) -> Iterator[Row]:
    rows = table.read(columns, report)
    bar = tqdm(
        rows,
        desc=table.path.name,
        total=table.rows,
        unit=" rows",
        leave=False,
        disable=None if progress else True,
    )
    for row in bar:
        if any(value is not None and value != "" for value in row[1:]):  # a blank line
            yield row


def _value(value: object) -> object:
    """The value of a cell, None where it is empty: of no data, an empty string, and what pandas has for nothing."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return int(value) if value.is_integer() else value  # ids of integers beside an empty one
    return None if value is None or str(value) in ("NaT", "<NA>") else value


def _read_items(table: Table, columns: ImportColumns, report: Reporter, progress: bool) -> TextFile:
    texts, tags, fields = list(columns.text), list(columns.tags), list(columns.fields)
    seen = [columns.first_seen] if columns.first_seen else []
    wanted = [str(columns.id), *texts, *tags, *fields, *seen]

    def raw() -> Iterator[tuple[RawText, list[object]]]:
        for row, name, *values in _rows(table, wanted, report, progress):
            cells = [_value(value) for value in values]
            text = _join(cells[: len(texts)])
            if len(text) > MOST_TEXT:
                message, remedy = "The text is very long", f"cut to {MOST_TEXT:,} characters"
                got, expected = f"{len(text):,} characters", f"at most {MOST_TEXT:,}"
                report(file_error(table.path, row, "long text", message, got, expected, remedy))
                text = text[:MOST_TEXT]
            after_tags = len(texts) + len(tags)
            found = list(_tags(cells[len(texts) : after_tags]))
            own = [_field_value(cell) for cell in cells[after_tags : after_tags + len(fields)]]
            yield (row, _value(name), text, cells[-1] if seen else None, found, None), own

    rows = _with_fields(raw(), fields, typed=not table.untyped)
    return collect_texts(table.path, parse_texts(table.path, rows, report), report)


def _with_fields(
    rows: Iterable[tuple[RawText, list[object]]], names: Sequence[str], *, typed: bool
) -> Iterator[RawText]:
    """The rows with the values of these columns as fields. Those of a file without types are typed by column, so that
    all of them have to be read first."""
    if names and not typed:
        rows = list(rows)
        columns = [type_column(column) for column in zip(*(values for _, values in rows), strict=True)]
        typed_rows = zip(*columns, strict=True)
        rows = [(row, list(values)) for (row, _), values in zip(rows, typed_rows, strict=True)]
    for row, values in rows:
        yield (*row[:5], dict(zip(names, values, strict=True)))


def _field_value(value: object) -> object:
    """A cell as the value of a field: times as seconds since 1970, so that ranges apply to them."""
    if isinstance(value, Decimal):
        return float(value)
    return parse_time(value) if isinstance(value, date) else value


def _join(parts: Iterable[object]) -> str:
    """Title and description as one text: "Title. Description"."""
    return ". ".join(str(part).strip().rstrip(".") for part in parts if part is not None)


def _tags(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        several = value if isinstance(value, list | tuple) else [value]
        yield from (str(one).strip()[:MOST_TAG] for one in several if one is not None and str(one).strip())


def _read_query_texts(table: Table, columns: ImportColumns, progress: bool) -> dict[str, str]:
    """Text by id; a query without an id or a text is none, and its events are reported."""
    wanted = [str(columns.query_id), str(columns.query_text)]
    rows = (
        (_value(name), _value(text)) for _, name, text in _rows(table, wanted, lambda problem: None, progress)
    )
    return {str(name): str(text) for name, text in rows if name is not None and text is not None}


class _EventReader:
    """Reads the events, and the queries that occur in them.

    Args:
        table: The events.
        columns: Their columns.
        items: The items.
        report: Receives each problem.
        exclude_self: Whether queries are items.
        actions: The actions of a UBI log that count as clicks.
    """

    def __init__(
        self,
        table: Table,
        columns: ImportColumns,
        items: TextFile,
        report: Reporter,
        exclude_self: bool,
        wanted_actions: Sequence[str],
    ):
        self.table, self.columns, self.items, self.report = table, columns, items, report
        self.exclude_self = exclude_self
        self.ubi = is_ubi(table)
        self.wanted_actions = {action.lower() for action in wanted_actions or UBI_ACTIONS}
        self.actions: Counter[str] = Counter()
        self.texts: dict[str, str] | None = None
        """Texts of queries by id, where events have ids."""
        self._row_of: dict[str, int] = {}
        self._queries: list[str] = []

    def read(self, progress: bool) -> tuple[TextFile, ClickFile]:
        """The queries and the clicks."""
        path, found = self.table.path, ClickCollector(self.table.path, self.report)
        row_of = self.items.texts.row_of
        for row, query, item, time, count in parse_clicks(path, self._raw_clicks(progress), self.report):
            item_row, text = row_of.get(item), self._query_text(query)
            if item_row is None:
                expected = f"an id of {self.items.path.name}"
                message = "The item id is unknown"
                self.report(file_error(path, row, "unknown item id", message, item, expected))
            elif self.exclude_self and normalise_text(text) == normalise_text(
                self.items.texts.texts[item_row]
            ):
                message, remedy = "The item is its own answer", "skipped"
                self.report(file_error(path, row, "own item", message, item, "another item", remedy))
            else:
                found.add(row, self._query_row(text), item_row, time, count)
        count = len(self._queries)
        texts = Texts([f"q{number + 1}" for number in range(count)], self._queries)
        return TextFile(path, texts, np.arange(1, count + 1), [None] * count), found.finish()

    def _raw_clicks(self, progress: bool) -> Iterator[RawClick]:
        columns, path = self.columns, self.table.path
        optional = [name for name in (columns.time, columns.count) if name]
        action = [UBI_ACTION] if self.ubi else []
        for row, query, item, *rest in _rows(
            self.table, [str(columns.query), str(columns.item), *optional, *action], self.report, progress
        ):
            values = [_value(value) for value in rest]
            if self.ubi:
                done = str(values.pop())
                self.actions[done] += 1
                if done.lower() not in self.wanted_actions or _value(query) is None or _value(item) is None:
                    continue
            text = self._parse_query(row, _value(query))
            name = _value(item)
            if name is None:
                self.report(file_error(path, row, "no item", "The row has no item", None, "an item's id"))
            elif text is not None:
                time = values[0] if columns.time else None
                yield row, text, str(name), time, values[-1] if columns.count else 1

    def _parse_query(self, row: int, value: object) -> str | None:
        """A valid text, or None after it was reported."""
        path, text = self.table.path, None if value is None else str(value)
        if text is not None and self.texts is not None:
            found = self.texts.get(text)
            if found is None:
                message, expected = "The query has no text", "an id of the file of queries"
                self.report(file_error(path, row, "unknown query id", message, text, expected))
                return None
            text = found
        try:
            return validate_text(text or "", "query")
        except DataError as wrong:
            kind = "empty query" if wrong.what.endswith("empty") else "invalid query"
            self.report(file_error(path, row, kind, wrong.what, text, str(wrong.expected)))
            return None

    def _query_text(self, query: str) -> str:
        """The query, or with `exclude_self` the text of the item whose id it is."""
        if not self.exclude_self:
            return query
        row = self.items.texts.row_of.get(query)
        return query if row is None else self.items.texts.texts[row] or query

    def _query_row(self, text: str) -> int:
        key = normalise_text(text)
        if key not in self._row_of:
            self._row_of[key] = len(self._queries)
            self._queries.append(" ".join(text.split()))
        return self._row_of[key]
