"""Every problem of a data set folder at once, line by line.

Errors keep the folder from being read; warnings are leaks and duplicates that would make a number mislead;
notes are things that may well be meant. Reading is that of `read_folder` itself, so the two never disagree.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from metaxc.data.contents import ClickFile, Contents, TextFile, read_contents
from metaxc.data.data_problems import Problem, Severity, shown
from metaxc.data.leaks import novel_twins, query_twins

SHOWN = 20  # problems kept of each kind and file; the rest are only counted
LONG_TEXT = 2_000  # characters; about the 512 tokens past which common encoders read nothing


@dataclass
class Report:
    """What `check_folder` found.

    Args:
        folder: The folder checked.
        problems: The first `SHOWN` of each kind and file, in the order found.
        totals: How many there are of each kind, by "file: kind".
        counts: How many there are of each severity.
        sizes: How many items, queries and clicks could be read.
    """

    folder: str
    problems: list[Problem] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    counts: Counter[Severity] = field(default_factory=Counter)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def errors(self) -> list[Problem]:
        """The problems kept that are errors."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """The problems kept that are warnings."""
        return [problem for problem in self.problems if problem.severity == "warning"]

    @property
    def notes(self) -> list[Problem]:
        """The problems kept that are notes."""
        return [problem for problem in self.problems if problem.severity == "note"]

    @property
    def ok(self) -> bool:
        """Whether the folder can be read."""
        return self.counts["error"] == 0

    def add(self, problem: Problem) -> None:
        """Count a problem, and keep it if it is among the first of its kind and file."""
        self.counts[problem.severity] += 1
        key = f"{problem.file}: {problem.kind}"
        self.totals[key] += 1
        if self.totals[key] <= SHOWN:
            self.problems.append(problem)

    def to_dict(self) -> dict[str, object]:
        """The report as JSON can hold it."""
        return {
            "folder": self.folder,
            "ok": self.ok,
            "counts": {name: self.counts[name] for name in ("error", "warning", "note")},
            "sizes": dict(self.sizes),
            "totals": dict(self.totals),
            "problems": [asdict(problem) for problem in self.problems],
        }

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.counts[name]:,} {name}s" for name in ("error", "warning", "note"))
        return f"Report({self.folder!r}: {counts})"


def check_folder(path: str | Path) -> Report:
    """All problems of a data set folder; nothing the files may hold makes this raise."""
    report = Report(str(path))
    found = read_contents(Path(path), report.add)
    for name, part in (
        ("items", found.items),
        ("train queries", found.train_queries),
        ("test queries", found.test_queries),
    ):
        if part is not None:
            report.sizes[name] = len(part.texts)
            _long_texts(part, report)
    for name, clicks in (("train clicks", found.train_clicks), ("test clicks", found.test_clicks)):
        if clicks is not None:
            report.sizes[name] = len(clicks.lines)
            _duplicate_clicks(clicks, report)
    _without_clicks(found, report)
    _leaks(found, report)
    return report


def _long_texts(part: TextFile, report: Report) -> None:
    for row, text in enumerate(part.texts.texts):
        if len(text) > LONG_TEXT:
            message = "The text is very long; encoders read only its beginning"
            got = f"{len(text):,} characters"
            line = int(part.lines[row])
            report.add(
                Problem("note", "long text", part.path.name, line, message, got, f"up to {LONG_TEXT:,}")
            )


def _duplicate_clicks(clicks: ClickFile, report: Report) -> None:
    order = np.lexsort((clicks.lines, clicks.items, clicks.queries))
    same = (np.diff(clicks.queries[order]) == 0) & (np.diff(clicks.items[order]) == 0)
    for line in np.sort(clicks.lines[order[1:][same]]).tolist():
        message = "The click stands on an earlier line too; it counts once"
        report.add(Problem("warning", "duplicate click", clicks.path.name, line, message))


def _without_clicks(found: Contents, report: Report) -> None:
    """Notes on items and queries that no click speaks of; nothing where a file of clicks is missing."""
    logs = [(found.train_queries, found.train_clicks), (found.test_queries, found.test_clicks)]
    for queries, clicks in logs:
        if queries is not None and clicks is not None:
            _unclicked("query", queries, [clicks.queries], report)
    given = [clicks.items for _, clicks in logs if clicks is not None]
    if found.items is not None and given:
        _unclicked("item", found.items, given, report)


def _unclicked(what: str, part: TextFile, clicked: list[np.ndarray], report: Report) -> None:
    without = np.ones(len(part.texts), dtype=np.bool_)
    for rows in clicked:
        without[rows] = False
    for row in np.flatnonzero(without).tolist():
        message = f"The {what} has no click"
        line, got = int(part.lines[row]), shown(part.texts.ids[row])
        report.add(Problem("note", f"{what} without clicks", part.path.name, line, message, got))


def _leaks(found: Contents, report: Report) -> None:
    items, train, test = found.items, found.train_queries, found.test_queries
    if items is not None and found.novel is not None:
        for row, twin in novel_twins(items.texts, found.novel):
            message = f"The novel item has the text of an observed one, on line {items.lines[twin]}"
            got, line = shown(items.texts.texts[row]), int(items.lines[row])
            report.add(Problem("warning", "novel text observed", items.path.name, line, message, got))
    if train is not None and test is not None:
        for row, twin in query_twins(test.texts, train.texts):
            message = f"The test query stands in {train.path.name} too, on line {train.lines[twin]}"
            got, line = shown(test.texts.texts[row]), int(test.lines[row])
            report.add(Problem("warning", "test query in train", test.path.name, line, message, got))
