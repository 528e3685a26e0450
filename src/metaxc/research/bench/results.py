"""The result file: one JSON line per row, on disk before the next row begins.

A finished row is found by table, name, data and settings; a later line replaces an earlier one. Every line names the
commit, a digest of the source files that decide the row, the data's fingerprint, the seed, the seconds and the
command. A last line that is incomplete because the process was killed is removed, and its row is run again. Per-query
values are saved beside the file in a folder of plain `.npz` arrays, so that any two rows on the same queries can be
compared later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metaxc.arrays import Doubles
from metaxc.artifacts import atomic_file, json_digest
from metaxc.errors import DataError
from metaxc.evaluation.paired import PairedValues, paired_intervals
from metaxc.research.bench.rows import FINE_TUNED
from metaxc.research.code_version import MODEL_SOURCES, source_digest

Record = dict[str, Any]
BEST = "metaxc --size best"
"""The row that those with a fine-tuned encoder are compared with, besides the default."""
RECORD_START = b'{"table": '
"""How each line of a result file begins."""


class Results:
    """A result file.

    Args:
        path: A `.jsonl` file, created when it does not exist.
    """

    def __init__(self, path: Path):
        self.path = path
        self.arrays = path.with_suffix(".perquery")

    def records(self) -> list[Record]:
        """The latest record of every row, in the order in which rows were first written."""
        latest: dict[str, Record] = {}
        for record in read_records(self.path):
            latest[record_key(record)] = record
        return list(latest.values())

    def find(self, key: str) -> Record | None:
        """The latest record of a row, None if there is none."""
        return next((record for record in self.records() if record_key(record) == key), None)

    def find_default(self, record: Record) -> Record | None:
        """The latest record of the default model, measured with the present code, for the data and configuration of a
        record."""
        return self._find_model(record, lambda other: bool(other.get("default")))

    def find_best(self, record: Record) -> Record | None:
        """The same of `--size best`."""
        return self._find_model(record, lambda other: other["row"] == BEST)

    def _find_model(self, record: Record, is_wanted: Callable[[Record], bool]) -> Record | None:
        present = source_digest(MODEL_SOURCES)
        found = [
            other
            for other in self.records()
            if is_wanted(other)
            and "failed" not in other
            and other.get("source_digest") == present
            and all(other[name] == record[name] for name in ("fingerprint", "recipe"))
        ]
        return found[-1] if found else None

    def append(self, record: Record, per_query: PairedValues) -> Record:
        """Write a row, compared with the default where that is known; returns the written record."""
        if per_query:
            self._save_per_query(record_key(record), per_query)
        record = self.with_comparison(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._remove_partial_line()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return record

    def with_comparison(self, record: Record) -> Record:
        """The record with its comparison with the default, where both have per-query values; a row with a fine-tuned
        encoder also with `--size best`, which spends as much time."""
        if record.get("default") or record.get("other_split"):
            return record
        references = {"versus_default": self.find_default(record)}
        if record["group"] == FINE_TUNED:
            references["versus_best"] = self.find_best(record)
        versus = {
            name: self.compare_records(record, reference)
            for name, reference in references.items()
            if reference is not None
        }
        return {**record, **{name: differences for name, differences in versus.items() if differences}}

    def update_comparison(self, record: Record, recipe: str) -> Record:
        """A record of the file in a run of the configuration `recipe`: compared with the models of that run, and
        written again if that changes it. A row that does not depend on the configuration is run once and compared
        with each default."""
        compared = self.with_comparison({**record, "recipe": recipe})
        return record if compared == record else self.append(compared, {})

    def compare_records(
        self, record: Record, reference: Record
    ) -> dict[str, dict[str, dict[str, float | bool]]]:
        """Row minus reference on the same queries, by setting ("novel" and "observed": kinds of items in the
        generalized ranking) and metric; empty where the queries differ."""
        own, other = self.load_per_query(record_key(record)), self.load_per_query(record_key(reference))
        return {
            setting: {name: one._asdict() for name, one in differences.items()}
            for setting, differences in paired_intervals(own, other).items()
        }

    def load_per_query(self, key: str) -> dict[str, dict[str, Doubles]]:
        """The per-query values of a row by setting and metric; empty where there are none."""
        file = self.arrays / f"{key}.npz"
        found: dict[str, dict[str, Doubles]] = {}
        if file.is_file():
            with np.load(file, allow_pickle=False) as arrays:
                for name in arrays.files:
                    setting, _, metric = name.partition(" ")
                    found.setdefault(setting, {})[metric] = arrays[name]
        return found

    def _save_per_query(self, key: str, per_query: PairedValues) -> None:
        self.arrays.mkdir(parents=True, exist_ok=True)
        named = {
            f"{setting} {name}": np.asarray(values, np.int64 if name == "queries" else np.float32)
            for setting, metrics in per_query.items()
            for name, values in metrics.items()
        }
        with atomic_file(self.arrays / f"{key}.npz") as temporary:
            np.savez_compressed(temporary, allow_pickle=False, **named)

    def _remove_partial_line(self) -> None:
        if not self.path.is_file():
            return
        content = self.path.read_bytes()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):
            if not content[complete:].startswith(RECORD_START[: len(content) - complete]):
                raise DataError(
                    "The result file ends with something else than a row",
                    got=f"{self.path}: {content[complete:][:60]!r}",
                    expected="a row that metaxc bench wrote, or a part of one",
                    fix="choose another --out; nothing was changed",
                )
            with self.path.open("r+b") as file:
                file.truncate(complete)


def find_metric(values: Record, path: Sequence[str]) -> Any:
    """The value at a path of keys, such as ("generalized", "novel", "R@10"); None where a record does not have it."""
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def record_key(record: Record) -> str:
    """Identifies a row: same table, name, data and settings, same key."""
    parts = [record["table"], record["row"], record["fingerprint"], record["config"]["digest"]]
    return json_digest(parts)[:32]


def read_records(path: Path) -> list[Record]:
    """All lines of a result file except an incomplete last one; a damaged line is an error that names it."""
    if not path.is_file():
        return []
    complete_lines = path.read_bytes().split(b"\n")[:-1]
    records = []
    for number, line in enumerate(complete_lines, start=1):
        try:
            record = json.loads(line)
            record_key(record)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                "A line of the result file cannot be read",
                got=f"{path}, line {number}: {error!r}",
                expected="a row that metaxc bench wrote",
                fix="delete the line; its row is then run again",
            ) from error
        records.append(record)
    return records
