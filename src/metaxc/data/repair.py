"""Bad data costs a line, not the folder: contents without what cannot be used, and the list of what was left out.

The readers have already skipped the lines that they could not use, and read others as they were probably meant
(`Problem.remedy`). What remains are texts that are empty, the clicks on them, and a first_seen on some lines only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from metaxc.arrays import Mask, Rows
from metaxc.data.check import CheckReport, report_contents
from metaxc.data.data_problems import LEFT_OUT, Problem, Reporter, file_error
from metaxc.data.dataset import Dataset, check_novel
from metaxc.data.folder_contents import ClickFile, FolderContents, TextFile, read_contents
from metaxc.data.text_lines import write_lines
from metaxc.errors import DataError

LIST_FILE = "left_out.tsv"
"""The list of what was left out, in the folder that was written."""

_COLUMNS = ("file", "line", "action", "reason", "value")


class RepairList:
    """The lines that were left out, one by one, and those that were read differently, counted by kind."""

    def __init__(self) -> None:
        self.left_out: list[Problem] = []
        self.repaired: dict[tuple[str, str, str], tuple[Problem, int]] = {}

    def add(self, problem: Problem) -> None:
        """Add a problem, if it has a remedy."""
        if problem.remedy == LEFT_OUT:
            self.left_out.append(problem)
        elif problem.remedy is not None:
            key = (problem.file, problem.kind, problem.remedy)
            first, count = self.repaired.get(key, (problem, 0))
            self.repaired[key] = (first, count + 1)

    def __bool__(self) -> bool:
        return bool(self.left_out or self.repaired)

    def __str__(self) -> str:
        repaired = sum(count for _, count in self.repaired.values())
        return f"{_count_lines(len(self.left_out))} left out, {_count_lines(repaired)} repaired"

    def count_kinds(self) -> list[str]:
        """One line per file and kind of problem, with its number of lines and what was done."""
        counts: dict[tuple[str, str], int] = {}
        for problem in self.left_out:
            key = problem.file, problem.kind
            counts[key] = counts.get(key, 0) + 1
        lines = [
            f"{file}: {kind}: {_count_lines(count)} {LEFT_OUT}" for (file, kind), count in counts.items()
        ]
        repaired = self.repaired.items()
        return lines + [
            f"{file}: {kind}: {_count_lines(count)} {remedy}" for (file, kind, remedy), (_, count) in repaired
        ]

    def write(self, path: Path) -> None:
        """Write the list: a line for each line that was left out, and one for all that were repaired alike."""
        rows = [
            (one.file, str(one.line), LEFT_OUT, f"{one.kind}: {one.message}", one.got or "")
            for one in self.left_out
        ]
        for (file, kind, remedy), (first, count) in self.repaired.items():
            which = "" if first.line is None else f"{first.line}" + (", …" if count > 1 else "")
            rows.append((file, which, remedy, f"{kind}: {_count_lines(count)}", first.got or ""))
        write_lines(path, ("\t".join(row) for row in [_COLUMNS, *rows]))


def _count_lines(count: int) -> str:
    return f"{count:,} {'line' if count == 1 else 'lines'}"


def repair_folder(path: str | Path) -> tuple[Dataset, RepairList, CheckReport]:
    """The data set of a folder without what cannot be used.

    A problem of a whole file, such as one that is missing or cannot be read to its end, is a `DataError`.

    Returns:
        The data set, the list of what was left out and repaired, and the report on the folder as it is.
    """
    folder = Path(path)
    report, listed = CheckReport(str(folder)), RepairList()

    def add(problem: Problem) -> None:
        report.add(problem)
        listed.add(problem)
        if problem.severity == "error" and problem.remedy is None:
            raise DataError(
                f"{folder} cannot be repaired: {problem.file}: {problem.message}",
                got=problem.got,
                expected=problem.expected,
                fix="correct this file first",
            )

    found = read_contents(folder, add)
    report_contents(found, report)
    return clean_contents(found, listed.add).to_dataset(folder.resolve().name), listed, report


def clean_contents(found: FolderContents, report: Reporter) -> FolderContents:
    """The contents without empty texts and the clicks on them, and with a first_seen of every item or of none.

    Args:
        found: Contents of which items, training queries and training clicks exist.
        report: Receives a problem for each click that is left out; the texts were reported when they were read.
    """
    if found.items is None or found.train_queries is None or found.train_clicks is None:
        raise AssertionError("a missing file was not reported")
    items, item_rows = _drop_empty(found.items)
    train, train_rows = _drop_empty(found.train_queries)
    clicks = _drop_clicks(found.train_clicks, train_rows, item_rows, report)
    novel = None if found.novel is None else found.novel[item_rows >= 0]
    if novel is not None:
        try:
            check_novel(novel, len(items.texts))
        except DataError as wrong:
            remedy = "written without novel.txt"
            report(
                Problem("error", "novel items", "novel.txt", None, wrong.what, str(wrong.got), None, remedy)
            )
            novel = None
    test = test_clicks = filters = None
    if found.test_queries is not None and found.test_clicks is not None:
        test, test_rows = _drop_empty(found.test_queries)
        test_clicks = _drop_clicks(found.test_clicks, test_rows, item_rows, report)
        if found.filters is not None:
            filters = _drop_clicks(found.filters, test_rows, item_rows, report)
    cleaned = replace(
        found,
        items=_fill_first_seen(items, clicks),
        train_queries=_without_first_seen(train),
        train_clicks=clicks,
        test_queries=None if test is None else _without_first_seen(test),
        test_clicks=test_clicks,
        novel=novel,
        filters=filters,
    )
    for file, what, count in (
        (items.path, "item", len(items.texts)),
        (clicks.path, "click", len(clicks.lines)),
    ):
        if not count:
            raise DataError(
                f"No {what} is left",
                got=f"every line of {file.name} was left out",
                expected=f"at least one usable {what}",
                fix="look at the problems listed, and check that the files belong together",
            )
    return cleaned


def _drop_empty(part: TextFile) -> tuple[TextFile, Rows]:
    """The texts that are not empty, and for each row before its row now, −1 where it was dropped."""
    kept = np.asarray([bool(text) for text in part.texts.texts], dtype=np.bool_)
    rows = np.where(kept, np.cumsum(kept) - 1, -1)
    if kept.all():
        return part, rows
    places = np.flatnonzero(kept)
    seen = [part.first_seen[row] for row in places.tolist()]
    return TextFile(part.path, part.texts.take(places), part.lines[places], seen), rows


def _drop_clicks(clicks: ClickFile, query_rows: Rows, item_rows: Rows, report: Reporter) -> ClickFile:
    queries, items = query_rows[clicks.queries], item_rows[clicks.items]
    kept: Mask = (queries >= 0) & (items >= 0)
    for place in np.flatnonzero(~kept).tolist():
        what = "item" if items[place] < 0 else "query"
        message = f"The {what} of the click was left out"
        report(file_error(clicks.path, int(clicks.lines[place]), f"{what} left out", message))
    return replace(clicks, queries=queries, items=items).take(kept)


def _without_first_seen(part: TextFile) -> TextFile:
    """A first_seen of queries is not used by anything."""
    return replace(part, texts=replace(part.texts, first_seen=None))


def _fill_first_seen(items: TextFile, clicks: ClickFile) -> TextFile:
    """Items without a first_seen get the time of their first click, or else the earliest first_seen of the file: an
    item that nothing is known about is probably an old one."""
    known = [time for time in items.first_seen if time is not None]
    if not known:
        return items
    first_click = np.full(len(items.texts), np.inf)
    if clicks.times is not None:
        np.minimum.at(first_click, clicks.items, clicks.times)
    filled = [
        time if time is not None else int(click) if np.isfinite(click) else min(known)
        for time, click in zip(items.first_seen, first_click.tolist(), strict=True)
    ]
    return replace(items, texts=replace(items.texts, first_seen=np.asarray(filled, np.int64)))
