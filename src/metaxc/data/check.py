"""All problems of a data set folder, line by line.

An error prevents the folder from being read. A warning is a leak that would make metrics misleading. A note is
something that may be intended. The files are read by the same code as in `read_folder`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from metaxc.arrays import Rows
from metaxc.data.click_events import group_events
from metaxc.data.data_problems import Problem, Severity, shorten
from metaxc.data.folder_contents import ClickFile, FolderContents, TextFile, read_contents
from metaxc.data.split import find_novel_leaks, find_query_leaks, is_cut_by_time
from metaxc.data.text_files import format_time

MAX_LISTED = 20
"""Problems listed per kind and file; further ones are only counted."""

LONG_TEXT = 2_000
"""Characters; roughly the 512 tokens after which common encoders truncate a text."""


@dataclass
class CheckReport:
    """The result of `check_folder`.

    Args:
        folder: The folder.
        problems: The first `MAX_LISTED` problems of each kind and file, in the order in which they were found.
        totals: Number of problems by "file: kind".
        counts: Number of problems by severity.
        sizes: Number of items, queries, clicks (distinct pairs) and click events that could be read.
        time_ranges: First and last event of each part that has times, ISO 8601, by "train" and "test".
    """

    folder: str
    problems: list[Problem] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    counts: Counter[Severity] = field(default_factory=Counter)
    sizes: dict[str, int] = field(default_factory=dict)
    time_ranges: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the folder can be read."""
        return self.counts["error"] == 0

    def add(self, problem: Problem) -> None:
        """Count a problem, and list it if it is among the first of its kind and file."""
        self.counts[problem.severity] += 1
        key = f"{problem.file}: {problem.kind}"
        self.totals[key] += 1
        if self.totals[key] <= MAX_LISTED:
            self.problems.append(problem)

    def to_dict(self) -> dict[str, object]:
        """The report as a dictionary that can be written as JSON."""
        return {
            "folder": self.folder,
            "ok": self.ok,
            "counts": {name: self.counts[name] for name in ("error", "warning", "note")},
            "sizes": dict(self.sizes),
            "time_ranges": {part: list(ends) for part, ends in self.time_ranges.items()},
            "totals": dict(self.totals),
            "problems": [asdict(problem) for problem in self.problems],
        }

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.counts[name]:,} {name}s" for name in ("error", "warning", "note"))
        return f"CheckReport({self.folder!r}: {counts})"


def check_folder(path: str | Path) -> CheckReport:
    """Find all problems of a data set folder; no file content makes this function raise."""
    report = CheckReport(str(path))
    report_contents(read_contents(Path(path), report.add), report)
    return report


def report_contents(found: FolderContents, report: CheckReport) -> None:
    """Add sizes, times, leaks and notes of what could be read to the report."""
    for name, part in (
        ("items", found.items),
        ("train queries", found.train_queries),
        ("test queries", found.test_queries),
    ):
        if part is not None:
            report.sizes[name] = len(part.texts)
            _report_long_texts(part, report)
    for part_name, clicks in (("train", found.train_clicks), ("test", found.test_clicks)):
        if clicks is not None:
            # Each pair as one number.
            pairs = clicks.queries * (clicks.items.max(initial=0) + 1) + clicks.items
            groups = group_events(pairs, clicks.times)
            report.sizes[f"{part_name} clicks"] = len(groups.starts)
            report.sizes[f"{part_name} events"] = int(clicks.counts.sum())
            if clicks.times is not None and len(clicks.times):
                ends = format_time(clicks.times.min()), format_time(clicks.times.max())
                report.time_ranges[part_name] = ends
            _report_repeated_lines(clicks, len(clicks.lines) - len(groups.pairs), report)
    _report_texts_without_clicks(found, report)
    _report_leaks(found, report)


def _report_long_texts(part: TextFile, report: CheckReport) -> None:
    message, expected = "The text is very long; encoders truncate it", f"up to {LONG_TEXT:,}"
    for row, text in enumerate(part.texts.texts):
        if len(text) > LONG_TEXT:
            got, line = f"{len(text):,} characters", int(part.lines[row])
            report.add(Problem("note", "long text", part.path.name, line, message, got, expected))


def _report_repeated_lines(clicks: ClickFile, repeated: int, report: CheckReport) -> None:
    """One note on all lines that are the same as an earlier one: events, or a log that was exported twice."""
    if repeated:
        same = "query and item" if clicks.times is None else "query, item and time"
        message = f"{repeated:,} lines have the same {same} as an earlier line; each is counted"
        expected = "events that took place; remove lines that were exported twice"
        name = clicks.path.name
        report.add(Problem("note", "repeated lines", name, None, message, None, expected))


def _report_texts_without_clicks(found: FolderContents, report: CheckReport) -> None:
    """Notes on items and queries without clicks; none if the click file itself is missing."""
    logs = [(found.train_queries, found.train_clicks), (found.test_queries, found.test_clicks)]
    for queries, clicks in logs:
        if queries is not None and clicks is not None:
            _report_unclicked("query", queries, [clicks.queries], report)
    clicked = [clicks.items for _, clicks in logs if clicks is not None]
    if found.items is not None and clicked:
        _report_unclicked("item", found.items, clicked, report)


def _report_unclicked(what: str, part: TextFile, clicked: list[Rows], report: CheckReport) -> None:
    unclicked = np.ones(len(part.texts), dtype=np.bool_)
    for rows in clicked:
        unclicked[rows] = False
    for row in np.flatnonzero(unclicked).tolist():
        line, got = int(part.lines[row]), shorten(part.texts.ids[row])
        message = f"The {what} has no click"
        report.add(Problem("note", f"{what} without clicks", part.path.name, line, message, got))


def _report_leaks(found: FolderContents, report: CheckReport) -> None:
    def add(part: TextFile, row: int, kind: str, message: str) -> None:
        got, line = shorten(part.texts.texts[row]), int(part.lines[row])
        report.add(Problem("warning", kind, part.path.name, line, message, got))

    items, train, test = found.items, found.train_queries, found.test_queries
    if items is not None and found.novel is not None:
        for row, other in find_novel_leaks(items.texts, found.novel):
            place = f"line {items.lines[other]}"
            add(
                items,
                row,
                "novel text observed",
                f"The novel item has the same text as the observed item on {place}",
            )
    if train is None or test is None:
        return
    leaks = find_query_leaks(test.texts, train.texts)
    times = [None if part is None else part.times for part in (found.train_clicks, found.test_clicks)]
    if leaks and is_cut_by_time(*times):
        message = f"{len(leaks):,} of {len(test.texts):,} test queries were asked before the cut too"
        got = "all test events are later than all training events, so this is no leak"
        report.add(Problem("note", "query in both parts", test.path.name, None, message, got))
        return
    for row, other in leaks:
        place = f"{train.path.name}, line {train.lines[other]}"
        add(test, row, "test query in train", f"The test query is also a training query: {place}")
