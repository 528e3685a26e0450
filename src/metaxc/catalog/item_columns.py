"""Tags, states and fields of all items in memory, in columns, so that a filter is a few passes over arrays.

Every version of an item is a row, numbered in the order in which they came; a change makes a new row and marks the old
one as dead. A column has the rows that have a value, and the values: appended, never changed. When half of the rows are
dead, the columns are written anew without them. So an update costs a few appends, and memory grows with the values that
there are, not with names × items.

SQLite would have to parse the JSON of every item, 60 times as long as a search takes (`benchmarks/filters.py`).
"""

from __future__ import annotations

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
)
from metaxc.data.item_fields import FieldValue
from metaxc.errors import DataError

Kind = Literal["number", "boolean", "string"]
DTYPES: dict[Kind, Any] = {"number": np.float64, "boolean": np.bool_, "string": np.int32}
MIN_DEAD = 1024
"""Dead rows below which columns are not written anew."""

Test = Callable[[NDArray[Any]], Mask]


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

    def match(self, test: Test, total: int) -> Mask:
        """(total,) bool: the rows of which a value passes the test."""
        passed = test(self._values[: self.count])
        if self.repeats:
            return _mask(self.rows[np.flatnonzero(passed)], total)
        if self.count == total:  # every row has one value, so that the rows are 0, 1, 2, …
            return passed
        mask = np.zeros(total, np.bool_)
        mask[self.rows] = passed
        return mask

    def equal(self, wanted: Sequence[Any], total: int) -> Mask:
        """(total,) bool: the rows of which a value is one of those wanted."""
        if self.kind == "string":
            wanted = [self.codes[value] for value in wanted if value in self.codes]
        if len(wanted) == 1:
            return self.match(lambda values: values == wanted[0], total)
        return self.match(lambda values: np.isin(values, np.array(wanted, DTYPES[self.kind])), total)

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
        passed = self._evaluate(filter)
        if self._dead:
            passed = passed & self._alive[: self._total]
        return self._keys[np.flatnonzero(passed)]

    def field_types(self, name: str) -> dict[Kind, int]:
        """The number of items that have this field, by the type of its value."""
        counts = {kind: self._count_living(column) for kind, column in self._fields.get(name, {}).items()}
        return {kind: count for kind, count in counts.items() if count}

    def _evaluate(self, filter: Any) -> Mask:
        match filter:
            case AndFilter():
                return _fold(np.logical_and, [self._evaluate(part) for part in filter.parts])
            case OrFilter():
                return _fold(np.logical_or, [self._evaluate(part) for part in filter.parts])
            case NotFilter():
                return ~self._evaluate(filter.part)
            case TagCondition():
                return self._tags.equal(filter.wanted, self._total)
            case StateCondition():
                return self._states.equal(filter.wanted, self._total)
            case FieldCondition():
                given = sorted(filter.model_fields_set - {"field"})
                return _fold(np.logical_and, [self._compare(filter, operator) for operator in given])
        raise AssertionError(f"{type(filter).__name__} is no filter")

    def _compare(self, condition: FieldCondition, operator: str) -> Mask:
        """(total,) bool: the rows whose field passes one operator of a condition."""
        columns, total = self._fields.get(condition.field, {}), self._total
        operand = getattr(condition, operator)
        if operator == "exists":
            present = np.zeros(total, np.bool_)
            for column in columns.values():
                present |= _mask(column.rows, total)
            return present if operand else ~present
        if operator in ("eq", "values"):
            values = [operand] if operator == "eq" else operand
            kinds = {
                kind: [one for one in values if find_kind(one) == kind] for kind in map(find_kind, values)
            }
            masks = [columns[kind].equal(own, total) for kind, own in kinds.items() if kind in columns]
        else:
            compare = {"lt": np.less, "lte": np.less_equal, "gt": np.greater, "gte": np.greater_equal}[
                operator
            ]
            kinds, values = {"number": [operand]}, [operand]
            numbers = columns.get("number")
            masks = [] if numbers is None else [numbers.match(lambda found: compare(found, operand), total)]
        passed = _fold(np.logical_or, [np.zeros(total, np.bool_), *masks])
        if columns and not (passed & self._alive[:total]).any():
            self._check_types(condition.field, operator, kinds)
        return passed

    def _check_types(self, name: str, operator: str, kinds: Mapping[Kind, list[Any]]) -> None:
        """Raise where a filter compares a field with a type that it has in no item: a mistake that would otherwise look
        like an empty catalog."""
        types = self.field_types(name)
        if types and not set(kinds) & set(types):
            kind, values = next(iter(kinds.items()))
            found = ", ".join(f"a {kind} in {count:,} items" for kind, count in types.items())
            raise DataError(
                "The filter compares a field with a value of another type",
                got=f"field {name!r}, {'in' if operator == 'values' else operator}: the {kind} {values[0]!r}",
                expected=f"the type that the field has: {found}",
                fix="correct the filter, or give the items values of that type; ranges compare numbers, so that times "
                "are best given in seconds since 1970",
            )

    def _count_living(self, column: _Column) -> int:
        rows = np.unique(column.rows) if column.repeats else column.rows
        return int(np.count_nonzero(self._alive[rows]))

    def _compact(self) -> None:
        """Write all columns anew without dead rows."""
        alive = self._alive[: self._total]
        places = np.where(alive, np.cumsum(alive) - 1, -1)
        living = np.flatnonzero(alive)
        self._keys, self._alive = self._keys[living], np.ones(len(living), np.bool_)
        self._total, self._dead = len(living), 0
        self._row_of = dict(zip(self._keys.tolist(), range(len(living)), strict=True))
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
