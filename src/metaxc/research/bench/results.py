"""The result file: one JSON line per row, on disk before the next row begins.

A row that was done is found again by table, name, data and settings; a later line takes the place of an earlier one. A
line that a kill tore is cut off, and its row done again. Per-query values stand beside the file in a folder of plain
`.npz` arrays, so that any two rows on the same queries can be tested against each other later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaxc.artifacts import json_digest
from metaxc.errors import DataError
from metaxc.evaluation.intervals import bootstrap, paired_bootstrap
from metaxc.research.bench.rows import KEPT

Record = dict[str, Any]
PerQuery = Mapping[str, Mapping[str, NDArray[Any]]]

SIGNIFICANT = 0.05


class Results:
    """A result file.

    Args:
        path: A `.jsonl` file, made when it is not there.
    """

    def __init__(self, path: Path):
        self.path = path
        self.arrays = path.with_suffix(".perquery")

    def records(self) -> list[Record]:
        """The newest record of every row, in the order in which rows first came."""
        newest: dict[str, Record] = {}
        for record in read_records(self.path):
            newest[key_of(record)] = record
        return list(newest.values())

    def find(self, key: str) -> Record | None:
        """The newest record of a row, None where there is none."""
        return next((record for record in self.records() if key_of(record) == key), None)

    def default(self, of: Record) -> Record | None:
        """The newest record of the default model for the same data and recipe as a row's."""
        same = ("fingerprint", "recipe")
        defaults = [record for record in self.records() if record.get("default") and "failed" not in record]
        found = [record for record in defaults if all(record[name] == of[name] for name in same)]
        return found[-1] if found else None

    def append(self, record: Record, per_query: PerQuery) -> Record:
        """Write a row, compared with the default where that is known; returns what was written."""
        if per_query:
            self._save(key_of(record), per_query)
        record = self.compared(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._cut_torn()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return record

    def compared(self, record: Record) -> Record:
        """The record with its comparison with the default, where both have per-query values."""
        default = self.default(record)
        if default is None or record.get("default") or record.get("other_split"):
            return record
        versus = self.versus(record, default)
        return {**record, "versus_default": versus} if versus else record

    def refreshed(self, record: Record, recipe: str) -> Record:
        """A record found in the file, for a run of `recipe`: compared with its default, and written again where that
        changes it (a row that does not depend on the recipe is done once and compared with each)."""
        compared = self.compared({**record, "recipe": recipe})
        return record if compared == record else self.append(compared, {})

    def versus(self, record: Record, default: Record) -> dict[str, dict[str, dict[str, float | bool]]]:
        """Row minus default on the same queries, by setting and metric; empty where the queries differ."""
        own, other = self.load(key_of(record)), self.load(key_of(default))
        found: dict[str, dict[str, dict[str, float | bool]]] = {}
        for setting, values in own.items():
            if setting in other and np.array_equal(values["queries"], other[setting]["queries"]):
                found[setting] = {name: compare(values[name], other[setting][name]) for name in KEPT}
        return found

    def load(self, key: str) -> dict[str, dict[str, NDArray[Any]]]:
        """The per-query values of a row by setting and metric; empty where none are kept."""
        file = self.arrays / f"{key}.npz"
        found: dict[str, dict[str, NDArray[Any]]] = {}
        if file.is_file():
            with np.load(file, allow_pickle=False) as arrays:
                for name in arrays.files:
                    setting, _, metric = name.partition(" ")
                    found.setdefault(setting, {})[metric] = arrays[name]
        return found

    def _save(self, key: str, per_query: PerQuery) -> None:
        self.arrays.mkdir(parents=True, exist_ok=True)
        named = {
            f"{setting} {name}": np.asarray(values, np.int64 if name == "queries" else np.float32)
            for setting, of_setting in per_query.items()
            for name, values in of_setting.items()
        }
        part = self.arrays / f".{key}.{os.getpid()}.npz"
        np.savez_compressed(part, allow_pickle=False, **named)
        part.replace(self.arrays / f"{key}.npz")

    def _cut_torn(self) -> None:
        if not self.path.is_file():
            return
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with self.path.open("r+b") as file:
                file.truncate(whole)


def key_of(record: Record) -> str:
    """Names a row: same table, name, data and settings, same key."""
    parts = [record["table"], record["row"], record["fingerprint"], record["config"]["digest"]]
    return json_digest(parts)[:32]


def read_records(path: Path) -> list[Record]:
    """All lines of a result file but a torn last one; a damaged line elsewhere is an error that names it."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(
        lines[:-1], start=1
    ):  # after the last newline stands nothing, or a torn line
        try:
            record = json.loads(line)
            key_of(record)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                "A line of the result file cannot be read",
                got=f"{path}, line {number}: {error!r}",
                expected="a row that metaxc bench wrote",
                fix="delete the line; its row is then done again",
            ) from error
        records.append(record)
    return records


def compare(own: NDArray[Any], other: NDArray[Any], seed: int = 0) -> dict[str, float | bool]:
    """Mean of own − other over the same queries: the difference with its 95 % interval, the p-value of a paired
    bootstrap, and whether that is under 0.05."""
    a, b = np.asarray(own, np.float64), np.asarray(other, np.float64)
    low, high = bootstrap((a - b)[:, None], seed=seed)
    p = paired_bootstrap(a, b, resamples=1_999, seed=seed)
    return {
        "difference": float((a - b).mean()),
        "low": float(low[0]),
        "high": float(high[0]),
        "p": p,
        "significant": p < SIGNIFICANT,
    }
