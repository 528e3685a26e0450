"""Which items count as novel and which queries are held out, chosen by ratio, by time or by a list.

Items are novel as a whole: a learner sees none of their clicks. A split is named by a hash over its ids, so
that two numbers can be told to come from the same split; `save_split` and `load_split` carry it between runs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Mask, Rows
from metaxc.data.dataset import Dataset, Texts, check_novel
from metaxc.data.leaks import novel_twins, query_twins
from metaxc.errors import DataError

EXAMPLES = 5
_NOVEL_STREAM, _TEST_STREAM = 0, 1  # so that another novel ratio leaves the test queries as they were


@dataclass(frozen=True)
class SplitReport:
    """What a split holds, and where it leaks.

    Args:
        method: How novel items and test queries were chosen, in words.
        seed: Of the random choices.
        novel_ids, test_ids: Sorted ids of the novel items and of the test queries.
        items_observed, items_novel, queries_train, queries_test: Counts.
        queries_test_novel: Test queries with a click on a novel item; zero-shot numbers are means over these.
        novel_leaks: Novel items whose text is also that of an observed item.
        novel_leak_examples: The first of those texts.
        query_leaks: Test queries whose text also stands in train.
        query_leak_examples: The first of those texts.
    """

    method: str
    seed: int
    novel_ids: tuple[str, ...]
    test_ids: tuple[str, ...]
    items_observed: int
    items_novel: int
    queries_train: int
    queries_test: int
    queries_test_novel: int
    novel_leaks: int
    novel_leak_examples: tuple[str, ...]
    query_leaks: int
    query_leak_examples: tuple[str, ...]

    @property
    def hash(self) -> str:
        """SHA-256 over method, sorted novel ids and sorted test query ids."""
        return _hash(self.method, self.novel_ids, self.test_ids)

    def to_dict(self) -> dict[str, object]:
        """Counts, leaks and hash as JSON can hold them; the ids themselves are in `save_split`'s file."""
        ids = ("novel_ids", "test_ids")
        values = {name: value for name, value in asdict(self).items() if name not in ids}
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
        } | {"hash": self.hash}


def split(
    dataset: Dataset,
    *,
    novel: float = 0.1,
    test: float = 0.15,
    by: Literal["random", "time"] = "random",
    seed: int = 0,
    novel_ids: Iterable[str] | None = None,
) -> tuple[Dataset, SplitReport]:
    """Choose novel items anew and, where the data set has no test log, hold out test queries.

    Args:
        dataset: What to split; its test log stays, its novel items (if any) are replaced.
        novel: Share of the items with at least one click, 0.1 as in the paper.
        test: Share of the queries with at least one click.
        by: "random", or "time": the newest items by `first_seen`, else by their earliest click, and the
            queries with the latest clicks. Where only `first_seen` is known, test queries are random.
        seed: Of the random choices.
        novel_ids: The novel items by name, in place of `novel`.

    Example:
        >>> data = Dataset.of({"a": "x", "b": "y"}, {"q": "x", "r": "y"}, [("q", "a"), ("r", "b")])
        >>> _, report = split(data, novel_ids=["b"], test=0.5)
        >>> report.items_novel, report.queries_test
        (1, 1)
    """
    if by not in ("random", "time"):
        raise DataError("Unknown way to split", got=repr(by), expected="'random' or 'time'")
    if novel_ids is not None:
        names = list(novel_ids)
        mask = _mask(dataset.items.rows(names, "novel item id"), len(dataset.items))
        how_novel = f"a list of {int(mask.sum())} items"
    else:
        mask, how_novel = _choose_novel(dataset, novel, by, seed)
    check_novel(mask, len(dataset.items))
    if dataset.test is not None:
        how_test = "the data set's own"
        parted = dataset
    else:
        held_out, how_test = _choose_test(dataset, test, by, seed)
        parted = _hold_out(dataset, held_out)
    parted = parted.with_novel(mask)
    return parted, _report(parted, f"novel items: {how_novel}; test queries: {how_test}", seed)


def save_split(report: SplitReport, path: str | Path) -> None:
    """Write ids, method, seed and hash as JSON; a folder gets a `split.json`."""
    target = _file(path)
    content = {
        "method": report.method,
        "seed": report.seed,
        "hash": report.hash,
        "novel_ids": list(report.novel_ids),
        "test_query_ids": list(report.test_ids),
    }
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, target)


def load_split(path: str | Path, dataset: Dataset) -> Dataset:
    """The data set split as the file says; a file whose ids do not fit its hash is an error."""
    file = _file(path)
    method, novel_ids, test_ids = _parse(file)
    mask = _mask(dataset.items.rows(novel_ids, f"novel item id in {file}"), len(dataset.items))
    if dataset.test is None:
        held_out = np.unique(dataset.train.queries.rows(test_ids, f"test query id in {file}"))
        return _hold_out(dataset, held_out).with_novel(mask)
    if sorted(dataset.test.queries.ids) != sorted(test_ids):
        raise DataError(
            f"{file} was made for another test log",
            got=f"{len(dataset.test)} test queries in the data set, {len(test_ids)} in the file ({method})",
            expected="the same test queries",
            fix="use the data set the split was made from, or split again",
        )
    return dataset.with_novel(mask)


def _choose_novel(dataset: Dataset, ratio: float, by: str, seed: int) -> tuple[Mask, str]:
    logs = [log for log in (dataset.train, dataset.test) if log is not None]
    clicked = np.zeros(len(dataset.items), dtype=np.bool_)
    for log in logs:
        clicked[log.clicks.indices] = True
    if by == "random":
        rows = np.flatnonzero(clicked)
        count = _count(ratio, len(rows), "novel", "items")
        chosen = np.random.default_rng([seed, _NOVEL_STREAM]).choice(rows, count, replace=False)
        return _mask(chosen, len(clicked)), f"random, {ratio} of the clicked items"
    if dataset.items.first_seen is not None:
        born = dataset.items.first_seen.astype(np.float64)
        how = f"newest by first_seen, {ratio} of the clicked items"
    else:
        born = np.full(len(clicked), np.inf)
        for log in logs:
            if log.times is not None:
                np.minimum.at(born, log.clicks.indices, log.times)
        clicked &= np.isfinite(born)  # a log without times says nothing about its items' age
        how = f"newest by first click, {ratio} of the clicked items"
        if not clicked.any():
            raise DataError(
                "A split by time needs times",
                got="items without first_seen, clicks without times",
                expected="first_seen in the items file, or a third column in the clicks file",
                fix='add one of them, or split with by="random"',
            )
    rows = np.flatnonzero(clicked)
    count = _count(ratio, len(rows), "novel", "items")
    return _mask(_latest(rows, born[rows], count), len(clicked)), how


def _choose_test(dataset: Dataset, ratio: float, by: str, seed: int) -> tuple[Rows, str]:
    log = dataset.train
    rows = np.flatnonzero(np.diff(log.clicks.indptr) > 0)
    count = _count(ratio, len(rows), "test", "queries")
    if by == "time" and log.times is not None:
        last = np.maximum.reduceat(log.times, log.clicks.indptr[rows])
        return np.sort(
            _latest(rows, last, count)
        ), f"latest by last click, {ratio} of the queries with clicks"
    chosen = np.random.default_rng([seed, _TEST_STREAM]).choice(rows, count, replace=False)
    return np.sort(chosen), f"random, {ratio} of the queries with clicks"


def _latest(rows: Rows, times: NDArray[np.float64], count: int) -> Rows:
    """The `count` rows of the greatest times; of equal times, those that stand first."""
    return rows[np.argsort(-times, kind="stable")[:count]]


def _count(ratio: float, available: int, name: str, what: str) -> int:
    count = round(ratio * available) if 0 < ratio < 1 else 0
    if not 0 < count < available:
        raise DataError(
            f"The {name} share leaves no {what} on one side",
            got=f"{name}={ratio} of {available:,} {what} with clicks",
            expected=f"a share between 0 and 1 that picks at least one of the {what} and not all",
            fix=f"give another {name} share" + (", such as 0.1" if available >= 10 else ", or more data"),
        )
    return count


def _hold_out(dataset: Dataset, held_out: Rows) -> Dataset:
    rest = np.setdiff1d(np.arange(len(dataset.train)), held_out)
    if not len(held_out) or not len(rest):
        raise DataError(
            "The test queries are " + ("all of the queries" if len(held_out) else "none of the queries"),
            got=f"{len(held_out):,} of {len(dataset.train):,}",
            expected="at least one query to train on and one to test on",
        )
    return replace(dataset, train=dataset.train.take(rest), test=dataset.train.take(held_out), filters=None)


def _mask(rows: Rows, size: int) -> Mask:
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return mask


def _report(parted: Dataset, method: str, seed: int) -> SplitReport:
    items, train, test = parted.items, parted.train, parted.test
    assert test is not None  # `split` just made it
    novel = parted.novel_mask
    novel_leaks = novel_twins(items, novel)
    query_leaks = query_twins(test.queries, train.queries)
    with_novel = np.diff(test.clicks[:, parted.novel_rows].indptr) > 0
    return SplitReport(
        method=method,
        seed=seed,
        novel_ids=tuple(sorted(items.ids[row] for row in parted.novel_rows)),
        test_ids=tuple(sorted(test.queries.ids)),
        items_observed=int((~novel).sum()),
        items_novel=int(novel.sum()),
        queries_train=len(train),
        queries_test=len(test),
        queries_test_novel=int(with_novel.sum()),
        novel_leaks=len(novel_leaks),
        novel_leak_examples=_examples(items, novel_leaks),
        query_leaks=len(query_leaks),
        query_leak_examples=_examples(test.queries, query_leaks),
    )


def _examples(texts: Texts, twins: list[tuple[int, int]]) -> tuple[str, ...]:
    return tuple(texts.texts[row] for row, _ in twins[:EXAMPLES])


def _hash(method: str, novel_ids: Iterable[str], test_ids: Iterable[str]) -> str:
    content = json.dumps([method, sorted(novel_ids), sorted(test_ids)])
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def _file(path: str | Path) -> Path:
    path = Path(path)
    return path / "split.json" if path.is_dir() else path


def _parse(file: Path) -> tuple[str, list[str], list[str]]:
    """Method, novel ids and test query ids of a split file, checked against its hash."""
    fix = "write it again with save_split"
    try:
        content = json.loads(file.read_bytes())
    except OSError as wrong:
        raise DataError(f"{file} cannot be read", got=wrong.strerror, expected="a split file") from wrong
    except (ValueError, RecursionError) as wrong:
        raise DataError(f"{file} is not JSON", got=wrong, expected="a split file", fix=fix) from wrong
    expected = "method and hash (strings), novel_ids and test_query_ids (lists of strings)"
    if not isinstance(content, dict):
        raise DataError(f"{file} is not a split file", got=type(content).__name__, expected=expected, fix=fix)
    method, stated = content.get("method"), content.get("hash")
    novel_ids, test_ids = _strings(content.get("novel_ids")), _strings(content.get("test_query_ids"))
    if novel_ids is None or test_ids is None or not isinstance(method, str):
        raise DataError(f"{file} is not a split file", got=sorted(content), expected=expected, fix=fix)
    actual = _hash(method, novel_ids, test_ids)
    if actual != stated:
        raise DataError(
            f"{file} was changed after it was written: its ids do not fit its hash",
            got=f"hash {stated}",
            expected=f"hash {actual}",
            fix="restore the file, or split again",
        )
    return method, novel_ids, test_ids


def _strings(value: object) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(name, str) for name in value) else None
