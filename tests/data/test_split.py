"""Splits: exact shares, the same for a seed, the newest by time, and files that can be trusted."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from metaxc.data.dataset import ClickLog, Dataset, Texts
from metaxc.data.split import load_split, save_split, split
from metaxc.errors import DataError


def world(items: int = 40, queries: int = 60) -> Dataset:
    """Query j clicks item j modulo the items; the last two items are never clicked."""
    return Dataset.of(
        {f"i{n}": f"item {n}" for n in range(items + 2)},
        {f"q{n}": f"query {n}" for n in range(queries)},
        [(f"q{n}", f"i{n % items}") for n in range(queries)],
        name="world",
    )


def timed(first_seen: bool = False) -> Dataset:
    """Query j clicks item j at time j, so that later items and queries are newer."""
    data = world(items=60)
    items = data.items
    if first_seen:
        items = Texts(items.ids, items.texts, np.arange(len(items))[::-1].copy())
    times = np.arange(60, dtype=np.float64)
    return replace(data, items=items, train=ClickLog(data.train.queries, data.train.clicks, times))


def test_shares_are_exact_and_of_what_was_clicked() -> None:
    parted, report = split(world(), novel=0.25, test=0.2)
    assert report.items_novel == 10  # a quarter of the 40 clicked items
    assert report.items_observed == 32
    assert report.queries_test == 12
    assert report.queries_train == 48
    assert not parted.novel_mask[40:].any()  # never clicked
    assert parted.test is not None
    assert set(parted.test.queries.ids) | set(parted.train.queries.ids) == {f"q{n}" for n in range(60)}
    assert parted.test.clicks.nnz + parted.train.clicks.nnz == 60
    assert report.novel_ids == tuple(sorted(parted.items.ids[row] for row in parted.novel_rows))
    assert report.test_ids == tuple(sorted(parted.test.queries.ids))


def test_clicks_go_with_their_queries_and_novel_ones_are_counted() -> None:
    parted, report = split(world(), novel=0.25, test=0.2)
    assert parted.test is not None
    clicked = [int(name[1:]) % 40 for name in parted.test.queries.ids]
    assert parted.test.clicks.indices.tolist() == clicked
    assert report.queries_test_novel == sum(f"i{item}" in report.novel_ids for item in clicked)


def test_a_seed_fixes_the_split() -> None:
    first, again, other = (split(world(), seed=seed) for seed in (0, 0, 1))
    assert first[0].fingerprint == again[0].fingerprint
    assert first[1].hash == again[1].hash
    assert first[1].novel_ids != other[1].novel_ids
    assert first[1].test_ids != other[1].test_ids
    assert first[1].hash != other[1].hash


def test_another_novel_ratio_keeps_the_test_queries() -> None:
    assert split(world(), novel=0.1)[1].test_ids == split(world(), novel=0.5)[1].test_ids


def test_by_time_takes_the_newest_first_clicks() -> None:
    parted, report = split(timed(), novel=0.05, test=0.1, by="time")
    assert report.novel_ids == ("i57", "i58", "i59")
    assert set(report.test_ids) == {f"q{n}" for n in range(54, 60)}
    assert report.queries_test_novel == 3
    assert parted.test is not None
    assert parted.test.times is not None
    assert parted.test.times.tolist() == [54, 55, 56, 57, 58, 59]
    assert report.method == (
        "novel items: newest by first click, 0.05 of the clicked items; "
        "test queries: latest by last click, 0.1 of the queries with clicks"
    )


def test_by_time_prefers_first_seen() -> None:
    _, report = split(timed(first_seen=True), novel=0.05, by="time")
    assert report.novel_ids == ("i0", "i1", "i2")  # first_seen runs the other way
    assert "newest by first_seen" in report.method


def test_by_time_counts_an_items_first_click_and_a_querys_last() -> None:
    data = Dataset.of(
        {"old": "x", "new": "y", "mid": "z"},
        {"p": "1", "q": "2", "none": "3", "r": "4"},
        [("p", "old"), ("q", "old"), ("q", "mid"), ("r", "new")],
    )
    times = np.array([1.0, 9.0, 5.0, 6.0])  # (p, old), (q, old), (q, mid), (r, new)
    data = replace(data, train=ClickLog(data.train.queries, data.train.clicks, times))
    _, report = split(data, novel=0.34, test=0.34, by="time")
    assert report.novel_ids == ("new",)
    assert report.test_ids == ("q",)


def test_equal_times_go_by_item_order() -> None:
    data = timed()
    data = replace(data, items=Texts(data.items.ids, data.items.texts, np.zeros(62, dtype=np.int64)))
    assert split(data, novel=0.05, by="time")[1].novel_ids == ("i0", "i1", "i2")


def test_by_time_without_click_times_holds_out_at_random() -> None:
    data = timed(first_seen=True)
    data = replace(data, train=ClickLog(data.train.queries, data.train.clicks))
    _, report = split(data, by="time")
    assert report.method.endswith("test queries: random, 0.15 of the queries with clicks")


def test_own_test_log_stays() -> None:
    once, _ = split(world())
    twice, report = split(once, novel_ids=["i3", "i1"], seed=5)
    assert once.test is not None
    assert twice.test is once.test
    assert report.novel_ids == ("i1", "i3")
    assert report.method == "novel items: a list of 2 items; test queries: the data set's own"


def test_leaks_are_reported() -> None:
    data = Dataset.of(
        {"a": "Red  Apple", "b": "red apple", "c": "tea"},
        {"p": "Fruit", "q": "fruit ", "r": "x"},
        [("p", "a"), ("q", "b"), ("r", "c")],
    )
    times = np.array([1.0, 3.0, 2.0])
    data = replace(data, train=ClickLog(data.train.queries, data.train.clicks, times))
    _, report = split(data, novel_ids=["b", "c"], test=0.34, by="time")
    content = report.to_dict()
    assert (content["novel_leaks"], content["novel_leak_examples"]) == (1, ["red apple"])
    assert (content["query_leaks"], content["query_leak_examples"]) == (1, ["fruit "])
    assert content["hash"] == report.hash
    json.dumps(content)


def test_saved_split_gives_the_same_data(tmp_path: Path) -> None:
    parted, report = split(world(), seed=3)
    save_split(report, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["split.json"]
    assert load_split(tmp_path, world()).fingerprint == parted.fingerprint
    assert load_split(tmp_path / "split.json", replace(parted, novel=None)).fingerprint == parted.fingerprint


def test_hash_is_of_ids_and_method() -> None:
    _, report = split(split(world())[0], novel_ids=["i1"])
    assert len(report.hash) == 64
    assert report.hash == replace(report, items_novel=99).hash
    assert report.hash != replace(report, method="another").hash
    assert report.hash != replace(report, test_ids=report.test_ids[1:]).hash


def test_changed_split_file_is_refused(tmp_path: Path) -> None:
    save_split(split(world())[1], tmp_path)
    content = json.loads((tmp_path / "split.json").read_text())
    content["novel_ids"][0] = "i39" if content["novel_ids"][0] != "i39" else "i38"
    (tmp_path / "split.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="changed after it was written"):
        load_split(tmp_path, world())


@pytest.mark.parametrize(
    ("content", "expected"),
    [("{", "is not JSON"), ("[]", "is not a split file"), ('{"method": "x"}', "is not a split file")],
)
def test_other_files_are_not_splits(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "split.json").write_text(content)
    with pytest.raises(DataError, match=expected):
        load_split(tmp_path, world())


def test_absent_split_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        load_split(tmp_path, world())


def test_split_of_other_data_is_refused(tmp_path: Path) -> None:
    save_split(split(world(), seed=3)[1], tmp_path)
    with pytest.raises(DataError, match="Unknown novel item id"):
        load_split(tmp_path, Dataset.of({"z": "x"}, {"q0": "y"}, [("q0", "z")]))
    with pytest.raises(DataError, match="made for another test log"):
        load_split(tmp_path, split(world(), seed=4)[0])


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, 1.5, 0.001, 0.999, float("nan")])
def test_bad_ratios(ratio: float) -> None:
    with pytest.raises(DataError, match=f"novel={ratio} of 40 items"):
        split(world(), novel=ratio)
    with pytest.raises(DataError, match=f"test={ratio} of 60 queries"):
        split(world(), test=ratio)


@pytest.mark.parametrize(("count", "expected"), [(0, "none of the items"), (42, "all of the items")])
def test_novel_list_of_nothing_or_everything(count: int, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        split(world(), novel_ids=[f"i{n}" for n in range(count)])


def test_unknown_novel_id_and_unknown_way() -> None:
    with pytest.raises(DataError, match="Unknown novel item id"):
        split(world(), novel_ids=["zebra"])
    with pytest.raises(DataError, match="Unknown way to split"):
        split(world(), by="colour")  # type: ignore[arg-type]


def test_by_time_without_times() -> None:
    with pytest.raises(DataError, match="A split by time needs times"):
        split(world(), by="time")
