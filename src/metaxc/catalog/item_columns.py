"""Tags, states and fields of all items in memory, in columns, so that a filter is a few passes over arrays.

Every version of an item is a row, numbered in the order in which they came; a change makes a new row and marks the old
one as dead. A column has the rows that have a value, and the values: appended, never changed. When half of the rows are
dead, the columns are written anew without them. So an update costs a few appends, and memory grows with the values that
there are, not with names × items.

Because rows never change, what a filter says about them never does: the answers to recent filters are kept, and only
rows that are new since then are looked at.

SQLite would have to parse the JSON of every item, more than a hundred times as long as a search takes
(`benchmarks/filters.py`).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Keys, Mask, Rows
from metaxc.catalog.item_filters import (
    AndFilter,
    FieldCondition,
    NotFilter,
    OrFilter,
    StateCondition,
    TagCondition,
    dump_filter,
    parts_of,
)
from metaxc.data.item_fields import FieldValue
from metaxc.errors import DataError

Kind = Literal["number", "boolean", "string"]
COMPARE = {"lt": np.less, "lte": np.less_equal, "gt": np.greater, "gte": np.greater_equal}
DTYPES: dict[Kind, Any] = {"number": np.float64, "boolean": np.bool_, "string": np.int32}
MIN_DEAD = 1024
"""Dead rows below which columns are not written anew."""

RECENT = 16
MOST_KEPT = 32
"""Filters whose answers are kept, one byte per row each."""

Test = Callable[[NDArray[Any]], Mask]
Span = tuple[int, int]
"""The first row to look at, and the number of all rows."""


@dataclass(frozen=True)
class FilteredItem:
    """What a filter can see of an item."""

    key: int
    tags: Sequence[str]
    state: str
    fields: Mapping[str, FieldValue]


class _Column:
    """The rows that have a value of one kind, ascending, and these values; strings are numbers of a dictionary."""

    def __init__(self, kind: Kind):
        self.kind, self.count = kind, 0
        self.repeats = False  # whether a row may have several values
        self.codes: dict[str, int] = {}
        self._rows: Rows = np.empty(4, np.int64)
        self._values: NDArray[Any] = np.empty(4, DTYPES[kind])

    @property
    def rows(self) -> Rows:
        return self._rows[: self.count]

    def extend(self, rows: Sequence[int], values: Sequence[Any]) -> None:
        """Append values of rows that come after all present ones."""
        if self.kind == "string":
            codes = self.codes
            values = [codes.setdefault(value, len(codes)) for value in values]
        end = self.count + len(rows)
        if end > len(self._rows):
            self._rows = _grow(self._rows, end)
            self._values = _grow(self._values, end)
        self._rows[self.count : end] = rows
        self._values[self.count : end] = values
        self.count = end

    def match(self, test: Test, span: Span) -> Mask:
        """(span,) bool: the rows of a span of which a value passes the test."""
        start, total = span
        first = int(np.searchsorted(self.rows, start)) if start else 0
        passed, rows = test(self._values[first : self.count]), self._rows[first : self.count]
        if self.repeats:
            return _mask(rows[np.flatnonzero(passed)] - start, total - start)
        if len(rows) == total - start:  # every row has one value, so that the rows are those of the span
            return passed
        mask = np.zeros(total - start, np.bool_)
        mask[rows - start] = passed
        return mask

    def equal(self, wanted: Sequence[Any], span: Span) -> Mask:
        """(span,) bool: the rows of a span of which a value is one of those wanted."""
        if self.kind == "string":
            wanted = [self.codes[value] for value in wanted if value in self.codes]
        if len(wanted) == 1:
            return self.match(lambda values: values == wanted[0], span)
        if self.kind == "string":
            chosen = np.zeros(len(self.codes), np.bool_)
            chosen[wanted] = True
            return self.match(lambda values: chosen[values], span)
        return self.match(lambda values: np.isin(values, np.array(wanted, DTYPES[self.kind])), span)

    def any_living(self, alive: Mask) -> bool:
        """Whether one of the rows is alive; most often one of the latest is."""
        return bool(alive[self.rows[-RECENT:]].any() or alive[self.rows].any())

    def renumber(self, places: Rows) -> None:
        """Keep the rows whose new place, of all old ones, is not −1; the others are dead."""
        rows = places[self.rows]
        kept = np.flatnonzero(rows >= 0)
        self._rows, self._values, self.count = rows[kept], self._values[: self.count][kept], len(kept)
        if self.kind == "string":
            used, codes = np.unique(self._values, return_inverse=True)
            names = list(self.codes)
            self.codes = {names[code]: place for place, code in enumerate(used.tolist())}
            self._values = codes.reshape(-1).astype(DTYPES["string"])


class ItemColumns:
    """The columns of a set of items. Not thread-safe: `metaxc.catalog.filter_follower` locks it.

    Example:
        >>> from metaxc.catalog.item_filters import parse_filter
        >>> columns = ItemColumns([FilteredItem(7, ["red"], "novel", {"price": 3}), FilteredItem(8, [], "novel", {})])
        >>> columns.select(parse_filter({"field": "price", "lt": 5})).tolist()
        [7]
    """

    def __init__(self, items: Iterable[FilteredItem] = ()):
        self._keys: Keys = np.empty(4, np.int64)
        self._alive: Mask = np.empty(4, np.bool_)
        self._total = self._dead = 0
        self._row_of: dict[int, int] = {}
        self._tags, self._states = _Column("string"), _Column("string")
        self._tags.repeats = True
        self._fields: dict[str, dict[Kind, _Column]] = {}
        self._kept: dict[str, Mask] = {}
        self._kept_lock = threading.Lock()
        self.update(items)

    def __len__(self) -> int:
        return len(self._row_of)

    def update(self, items: Iterable[FilteredItem]) -> None:
        """Add items, each at most once; those that are there already are replaced."""
        items = list(items)
        self.remove([item.key for item in items])
        first, end = self._total, self._total + len(items)
        if end > len(self._keys):
            self._keys, self._alive = _grow(self._keys, end), _grow(self._alive, end)
        self._keys[first:end] = [item.key for item in items]
        self._alive[first:end] = True
        self._total = end
        tags: tuple[list[int], list[str]] = ([], [])
        fields: defaultdict[tuple[str, Kind], tuple[list[int], list[Any]]] = defaultdict(lambda: ([], []))
        repeated: set[str] = set()
        for row, item in enumerate(items, first):
            self._row_of[item.key] = row
            tags[0].extend([row] * len(item.tags))
            tags[1].extend(item.tags)
            for name, value in item.fields.items():
                several = value if isinstance(value, list) else [value]
                rows, values = fields[name, find_kind(several[0])]
                rows.extend([row] * len(several))
                values.extend(several)
                if len(several) > 1:
                    repeated.add(name)
        self._states.extend(range(first, end), [item.state for item in items])
        self._tags.extend(*tags)
        for (name, kind), (rows, values) in fields.items():
            column = self._fields.setdefault(name, {}).setdefault(kind, _Column(kind))
            column.extend(rows, values)
            column.repeats = column.repeats or name in repeated

    def remove(self, keys: Iterable[int]) -> None:
        """Remove items; keys that are not there are ignored."""
        rows = [row for key in keys if (row := self._row_of.pop(key, None)) is not None]
        self._alive[rows] = False
        self._dead += len(rows)
        if self._dead > max(MIN_DEAD, len(self._row_of)):
            self._compact()

    def select(self, filter: Any) -> Keys:
        """(n,) keys of the items that pass a filter, in the order in which they were last changed."""
        self._check_types(filter)
        passed = self._find_passing(filter)
        if self._dead:
            passed = passed & self._alive[: self._total]
        return self._keys[np.flatnonzero(passed)]

    def field_types(self, name: str) -> list[Kind]:
        """The types that a field has in items that are there."""
        columns = self._fields.get(name, {}).items()
        return [kind for kind, column in columns if column.any_living(self._alive)]

    def _find_passing(self, filter: Any) -> Mask:
        """(total,) bool: the rows, dead ones among them, that pass; those that were looked at before are known."""
        name = dump_filter(filter)
        with self._kept_lock:
            known = self._kept.pop(name, None)
        start = 0 if known is None else len(known)
        if known is None or start < self._total:
            new = self._evaluate(filter, (start, self._total))
            known = new if known is None else np.concatenate([known, new])
        with self._kept_lock:
            self._kept[name] = known  # as the latest
            if len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return known

    def _evaluate(self, filter: Any, span: Span) -> Mask:
        match filter:
            case AndFilter():
                return _fold(np.logical_and, [self._evaluate(part, span) for part in filter.parts])
            case OrFilter():
                return _fold(np.logical_or, [self._evaluate(part, span) for part in filter.parts])
            case NotFilter():
                return ~self._evaluate(filter.part, span)
            case TagCondition():
                return self._tags.equal(filter.wanted, span)
            case StateCondition():
                return self._states.equal(filter.wanted, span)
            case FieldCondition():
                tests = [self._compare(filter, operator, span) for operator in _operators(filter)]
                return _fold(np.logical_and, tests)
        raise AssertionError(f"{type(filter).__name__} is no filter")

    def _compare(self, condition: FieldCondition, operator: str, span: Span) -> Mask:
        """(span,) bool: the rows of a span whose field passes one operator of a condition."""
        columns, operand = self._fields.get(condition.field, {}), getattr(condition, operator)
        nothing = np.zeros(span[1] - span[0], np.bool_)
        if operator == "exists":
            present = [
                column.match(lambda values: np.ones(len(values), np.bool_), span)
                for column in columns.values()
            ]
            found = _fold(np.logical_or, [nothing, *present])
            return found if operand else ~found
        if operator in COMPARE:
            numbers = columns.get("number")
            compare = COMPARE[operator]
            masks = [] if numbers is None else [numbers.match(lambda values: compare(values, operand), span)]
        else:
            wanted = _by_kind([operand] if operator == "eq" else operand)
            masks = [columns[kind].equal(own, span) for kind, own in wanted.items() if kind in columns]
        return _fold(np.logical_or, masks) if masks else nothing

    def _check_types(self, filter: Any) -> None:
        """Raise where a filter compares a field with types that it has in no item, though it has others: a mistake that
        would otherwise look like an empty catalog."""
        for part in parts_of(filter):
            self._check_types(part)
        if not isinstance(filter, FieldCondition):
            return
        for operator in _operators(filter):
            operand = getattr(filter, operator)
            if operator == "exists":
                continue
            wanted = _by_kind(operand if operator == "values" else [operand])
            columns = self._fields.get(filter.field, {})
            if any(kind in columns and columns[kind].any_living(self._alive) for kind in wanted):
                continue
            types = self.field_types(filter.field)
            if types:
                kind, values = next(iter(wanted.items()))
                raise DataError(
                    "The filter compares a field with a value of another type",
                    got=f"field {filter.field!r}, {'in' if operator == 'values' else operator}: "
                    f"the {kind} {values[0]!r}",
                    expected=f"the type that the field has: {' or '.join(sorted(types))}",
                    fix="correct the filter, or give the items values of that type; ranges compare numbers, so that "
                    "times are best given in seconds since 1970",
                )

    def _compact(self) -> None:
        """Write all columns anew without dead rows."""
        alive = self._alive[: self._total]
        places = np.where(alive, np.cumsum(alive) - 1, -1)
        living = np.flatnonzero(alive)
        self._keys, self._alive = self._keys[living], np.ones(len(living), np.bool_)
        self._total, self._dead = len(living), 0
        self._row_of = dict(zip(self._keys.tolist(), range(len(living)), strict=True))
        self._kept.clear()
        for column in (self._tags, self._states):
            column.renumber(places)
        for columns in self._fields.values():
            for column in columns.values():
                column.renumber(places)
        kept = {
            name: {kind: column for kind, column in columns.items() if column.count}
            for name, columns in self._fields.items()
        }
        self._fields = {name: columns for name, columns in kept.items() if columns}


def find_kind(value: object) -> Kind:
    """The type of a value of a field, or of an element of a list."""
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def _by_kind(values: Sequence[Any]) -> dict[Kind, list[Any]]:
    found: dict[Kind, list[Any]] = {}
    for value in values:
        found.setdefault(find_kind(value), []).append(value)
    return found


def _operators(condition: FieldCondition) -> list[str]:
    return sorted(condition.model_fields_set - {"field"})


def _grow(array: Any, needed: int) -> Any:
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


def _mask(rows: Rows, total: int) -> Mask:
    mask = np.zeros(total, np.bool_)
    mask[rows] = True
    return mask


def _fold(join: np.ufunc, masks: Sequence[Mask]) -> Mask:
    mask = masks[0]
    for other in masks[1:]:
        mask = join(mask, other)
    return mask
