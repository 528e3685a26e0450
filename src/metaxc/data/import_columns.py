"""Which columns of the imported tables are used: those that were named, and guesses for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from metaxc.data.column_names import (
    UBI_ACTION,
    UBI_OBJECT,
    UBI_QUERY,
    UBI_QUERY_ID,
    guess_columns,
    normalise,
    suggest_columns,
)
from metaxc.data.source_tables import Table
from metaxc.errors import DataError


@dataclass(frozen=True)
class ImportColumns:
    """Names of columns; None (of tags and text: nothing) where a name is to be guessed; fields are never guessed.

    Args:
        id: The item's id.
        text: The item's texts, which are joined: title and description.
        tags: Columns whose values become tags.
        fields: Columns whose values become fields with the columns' names.
        first_seen: When the item appeared.
        query: The query's text; its id where there is a table of queries; with `exclude_self` the id or the text of an
            item.
        item: The id of the item that was clicked.
        time: When it was clicked.
        count: How many times.
        query_id: The query's id in the table of queries.
        query_text: Its text there.
    """

    id: str | None = None
    text: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    first_seen: str | None = None
    query: str | None = None
    item: str | None = None
    time: str | None = None
    count: str | None = None
    query_id: str | None = None
    query_text: str | None = None

    @property
    def of_items(self) -> list[str]:
        """The columns that are named for the table of items."""
        return [name for name in (self.id, *self.text, *self.tags, *self.fields, self.first_seen) if name]

    @property
    def of_events(self) -> list[str]:
        """The columns that are named for the table of events."""
        return [name for name in (self.query, self.item, self.time, self.count) if name]


def name_columns(options: dict[str, Any]) -> dict[str, Any]:
    """Options of `import_tables` from options in which columns are named one by one; `text`, `tags` and `fields`
    may be one name or several."""
    names = {field.name for field in fields(ImportColumns)}
    named = {key: value for key, value in options.items() if key in names and value is not None}
    for key in ("text", "tags", "fields"):
        value = named.get(key, ())
        named[key] = (value,) if isinstance(value, str) else tuple(value)
    others = {key: value for key, value in options.items() if key not in names}
    return others | {"columns": ImportColumns(**named)}


def are_numbers(names: Sequence[str]) -> bool:
    """Whether columns are named by their numbers, so that the file has no header."""
    return bool(names) and all(name.isdecimal() for name in names)


def is_ubi(events: Table) -> bool:
    """Whether events have the columns of the User Behavior Insights schema."""
    return {UBI_ACTION, UBI_QUERY_ID, UBI_OBJECT} <= set(events.columns)


def find_item_columns(given: ImportColumns, items: Table) -> ImportColumns:
    """The columns of the table of items, each of which exists."""
    text = tuple(_named(name, "text", items) for name in given.text)
    if not text:
        titles, descriptions = (guess_columns(kind, items.columns) for kind in ("title", "description"))
        text = (*titles[:1], *descriptions[:1])
        if not text:
            raise _not_found("text", "the item's text", items)
    taken = {*text}
    tags, columns = (
        tuple(_named(name, kind, items) for name in names)
        for kind, names in (("tags", given.tags), ("fields", given.fields))
    )
    return replace(
        given,
        id=_find(given.id, "id", "id", "the item's id", items, taken),
        text=text,
        tags=tags or tuple(guess_columns("tags", items.columns)),
        fields=columns,
        first_seen=_find(given.first_seen, "first_seen", "first_seen", None, items, taken),
    )


def find_event_columns(given: ImportColumns, events: Table, queries: Table | None) -> ImportColumns:
    """The columns of the tables of events and of queries; `given` has those of the items already."""
    item = given.item
    if item is None and given.id in events.columns and normalise(str(given.id)) != "id":
        item = given.id
    elif item is None and is_ubi(events):
        item = UBI_OBJECT
    if (
        given.query is None
        and queries is None
        and is_ubi(events)
        and not guess_columns("query", events.columns)
    ):
        raise DataError(
            f"The events of {events.path.name} have no query texts, only ids of queries",
            got=", ".join(events.columns),
            expected=f"a column {UBI_QUERY}, or a file of queries",
            fix="give the file of queries of the same log with --queries (queries= in Python)",
        )
    found = replace(
        given,
        query=_find(
            given.query, "query", "query_id" if queries is not None else "query", "the query", events, set()
        ),
        item=_find(item, "item", "item", "the id of the clicked item", events, set()),
        time=_find(given.time, "time", "time", None, events, set()),
        count=_find(given.count, "count", "count", None, events, set()),
    )
    if queries is None:
        return found
    return replace(
        found,
        query_id=_find(given.query_id, "query_id", "query_id", "the query's id", queries, set()),
        query_text=_find(given.query_text, "query_text", "query", "the query's text", queries, set()),
    )


def describe_columns(given: ImportColumns, found: ImportColumns, names: dict[str, str]) -> list[str]:
    """One line per column in use: "products.csv: id = sku (guessed)".

    Args:
        given: The columns as they were named.
        found: The columns in use.
        names: The name of the table of each field.
    """
    lines = []
    for field in fields(ImportColumns):
        value, before = getattr(found, field.name), getattr(given, field.name)
        if value and field.name in names:
            shown = " + ".join(value) if isinstance(value, tuple) else value
            lines.append(f"{names[field.name]}: {field.name} = {shown}" + ("" if before else " (guessed)"))
    return lines


def _find(
    given: str | None, option: str, kind: str, needed: str | None, table: Table, taken: set[str]
) -> str | None:
    """The column that was named, or the most telling name; an error where a column that is needed is not found."""
    if given is not None:
        return _named(given, option, table)
    found = [name for name in guess_columns(kind, table.columns) if name not in taken]
    if not found and needed is not None:
        raise _not_found(option, needed, table)
    return found[0] if found else None


def _named(name: str, option: str, table: Table) -> str:
    if name in table.columns:
        return name
    same = [column for column in table.columns if normalise(column) == normalise(name)]
    if len(same) == 1:
        return same[0]
    similar = suggest_columns(name, table.columns)
    fix = f"did you mean {' or '.join(similar)}?" if similar else f"name another column for {_option(option)}"
    raise DataError(
        f"{table.path.name} has no column {name!r}", got=name, expected=", ".join(table.columns), fix=fix
    )


def _not_found(option: str, what: str, table: Table) -> DataError:
    return DataError(
        f"No column of {table.path.name} looks like {what}",
        got=", ".join(table.columns),
        expected="a column for it",
        fix=f"name it with {_option(option)}; columns of a file without a header are named by their numbers, 1, 2, …",
    )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')} ({name}= in Python)"
