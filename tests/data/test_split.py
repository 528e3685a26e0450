"""Splits: exact shares, the same for a seed, the newest by time, and leaks."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from metaxc.data.dataset import ClickLog, Dataset, Texts
from metaxc.data.split import save_split, split
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


def test_shares_are_exact_and_of_clicked_items_and_queries() -> None:
    dataset, report = split(world(), novel=0.25, test=0.2)
    assert report.items_novel == 10  # a quarter of the 40 clicked items
    assert report.items_observed == 32
    assert report.queries_test == 12
    assert report.queries_train == 48
    assert not dataset.novel_mask[40:].any()  # never clicked
    assert dataset.test is not None
    assert set(dataset.test.queries.ids) | set(dataset.train.queries.ids) == {f"q{n}" for n in range(60)}
    assert dataset.test.clicks.nnz + dataset.train.clicks.nnz == 60
    assert report.novel_ids == tuple(sorted(dataset.items.ids[row] for row in dataset.novel_rows))
    assert report.test_ids == tuple(sorted(dataset.test.queries.ids))


def test_clicks_go_with_their_queries_and_novel_ones_are_counted() -> None:
    dataset, report = split(world(), novel=0.25, test=0.2)
    assert dataset.test is not None
    clicked = [int(name[1:]) % 40 for name in dataset.test.queries.ids]
    assert dataset.test.clicks.indices.tolist() == clicked
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
    dataset, report = split(timed(), novel=0.05, test=0.1, by="time")
    assert report.novel_ids == ("i57", "i58", "i59")
    assert set(report.test_ids) == {f"q{n}" for n in range(54, 60)}
    assert report.queries_test_novel == 3
    assert dataset.test is not None
    assert dataset.test.times is not None
    assert dataset.test.times.tolist() == [54, 55, 56, 57, 58, 59]
    assert report.method == (
        "novel items: newest by first click, 0.05 of the clicked items; "
        "test events: from 1970-01-01T00:00:54Z on"
    )


def test_by_time_prefers_first_seen() -> None:
    _, report = split(timed(first_seen=True), novel=0.05, by="time")
    assert report.novel_ids == ("i0", "i1", "i2")  # first_seen runs the other way
    assert "newest by first_seen" in report.method


def shop() -> Dataset:
    """Five events of three queries on three items; the example of docs/data.md."""
    return Dataset.of(
        {"kettle": "steel kettle", "teapot": "blue teapot", "mug": "new mug"},
        {"q1": "tea", "q2": "boil water", "none": "never clicked"},
        [("q1", "kettle"), ("q2", "kettle"), ("q1", "teapot"), ("q1", "kettle"), ("q1", "mug")],
        times=["2024-04-01", "2024-04-10", "2024-04-20", "2024-05-02", "2024-05-03"],
    )


def test_by_time_cuts_events_and_not_queries() -> None:
    dataset, report = split(shop(), novel=0.34, test=0.4, by="time")
    train, test = dataset.train, dataset.test
    assert test is not None
    assert list(train.queries.ids) == ["q1", "q2", "none"]
    assert list(test.queries.ids) == ["q1"]
    assert train.clicks.toarray().tolist() == [[1, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert test.clicks.toarray().tolist() == [[1, 0, 1]]
    assert report.novel_ids == ("mug",)
    assert (report.events_train, report.events_test) == (3, 2)
    assert (report.query_leaks, report.queries_in_both) == (0, 1)
    assert report.cut_at == datetime(2024, 5, 2, tzinfo=UTC).timestamp()
    assert report.method.endswith("test events: from 2024-05-02T00:00:00Z on")


def test_the_date_can_be_given() -> None:
    by_share, report = split(shop(), novel=0.34, test=0.4, by="time")
    for cut in ("2024-05-02", report.cut_at):
        by_date, again = split(shop(), novel=0.34, by="time", cut_at=cut)
        assert by_date.fingerprint == by_share.fingerprint
        assert again.hash == report.hash
    earlier, report = split(shop(), novel=0.34, by="time", cut_at="2024-04-15")
    assert report.events_test == 3
    assert earlier.test is not None
    assert earlier.test.clicks.toarray().tolist() == [[1, 1, 1]]


def test_counts_weigh_in_the_share_of_events() -> None:
    data = Dataset.of(
        {"a": "x", "b": "y"},
        {"q": "u"},
        [("q", "a"), ("q", "a"), ("q", "b")],
        times=[1, 2, 3],
        counts=[10, 6, 4],
    )
    for share, cut, events in ((0.2, 3, 4), (0.35, 3, 4), (0.4, 2, 10), (0.9, 2, 10)):
        dataset, report = split(data, novel_ids=["b"], test=share, by="time")
        assert (report.cut_at, report.events_test) == (cut, events)
        assert dataset.test is not None
        assert dataset.test.pair_counts.tolist() == ([4] if cut == 3 else [6, 4])
        assert dataset.train.pair_counts.tolist() == ([16] if cut == 3 else [10])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cut_at": "2024-04-01"}, "a date after 2024-04-01T00:00:00Z and not after 2024-05-03T00:00:00Z"),
        ({"cut_at": "2024-05-04"}, "leaves one side of the split without events"),
        ({"cut_at": "soon"}, "cannot be read\n  got: 'soon'"),
        ({"cut_at": 5, "by": "random"}, "A date to cut at does not apply here"),
        ({"test": 0.01}, "test=0.01 of 5 events\n"),
        ({"test": 1.0}, "test=1.0 of 5 events\n"),
    ],
)
def test_bad_cuts(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split(shop(), **({"by": "time", "novel": 0.34} | options))


def test_a_cut_needs_an_unsplit_log_with_times() -> None:
    done, _ = split(shop(), novel=0.34, by="time")
    for data in (done, world()):
        with pytest.raises(DataError, match="A date to cut at does not apply here"):
            split(data, novel_ids=[data.items.ids[0]], by="time", cut_at="2024-05-02")


def test_other_novel_items_of_a_log_that_was_cut_by_time() -> None:
    done, _ = split(shop(), novel=0.34, by="time", cut_at="2024-05-02")
    _, report = split(done, novel_ids=["teapot"])
    assert (report.query_leaks, report.queries_in_both) == (0, 1)


def test_events_at_one_time_cannot_be_cut() -> None:
    data = Dataset.of({"a": "x", "b": "y"}, {"q": "u"}, [("q", "a"), ("q", "b")], times=[7, 7])
    with pytest.raises(DataError, match="all at 1970-01-01T00:00:07Z"):
        split(data, novel_ids=["b"], test=0.5, by="time")


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 8), st.integers(1, 3)), min_size=2
    ),
    share=st.floats(0.05, 0.95),
)
def test_no_event_is_lost_and_the_past_predicts_the_future(
    events: list[tuple[int, int, int, int]], share: float
) -> None:
    data = Dataset.of(
        {f"i{n}": f"item {n}" for n in range(5)},
        {f"q{n}": f"query {n}" for n in range(4)},
        [(f"q{query}", f"i{item}") for query, item, _, _ in events],
        times=[time for _, _, time, _ in events],
        counts=[count for *_, count in events],
    )
    total = data.train.event_count
    assume(len({time for _, _, time, _ in events}) > 1)
    assume(len({item for _, item, _, _ in events}) > 1)
    assume(0 < round(share * total) < total)
    dataset, report = split(data, novel=0.5, test=share, by="time")
    assert dataset.test is not None
    before, after = _events(dataset.train), _events(dataset.test)
    assert before | after == _events(data.train)
    assert sum(before.values()) + sum(after.values()) == total
    assert before
    assert after
    assert max(time for _, _, time in before) < report.cut_at <= min(time for _, _, time in after)
    observed = dataset.observed_log()
    names = [dataset.items.ids[row] for row in dataset.observed_rows]
    assert _events(observed, names) == {key: n for key, n in before.items() if key[1] not in report.novel_ids}
    assert set(dataset.train.queries.ids) >= {f"q{n}" for n in range(4)} - set(dataset.test.queries.ids)


def _events(log: ClickLog, items: list[str] | None = None) -> dict[tuple[str, str, float], int]:
    """Query id, item id and time of each event, with its count."""
    rows, columns = log.clicks.nonzero()
    groups = log.groups
    assert groups.times is not None
    return {
        (log.queries.ids[rows[pair]], items[columns[pair]] if items else f"i{columns[pair]}", time): count
        for pair, time, count in zip(groups.pairs, groups.times.tolist(), groups.counts.tolist(), strict=True)
    }


def test_equal_times_go_by_item_order() -> None:
    data = timed()
    data = replace(data, items=Texts(data.items.ids, data.items.texts, np.zeros(62, dtype=np.int64)))
    assert split(data, novel=0.05, by="time")[1].novel_ids == ("i0", "i1", "i2")


def test_by_time_without_click_times_holds_out_at_random() -> None:
    data = timed(first_seen=True)
    data = replace(data, train=ClickLog(data.train.queries, data.train.clicks))
    _, report = split(data, by="time")
    assert report.method.endswith("test queries: random, 0.15 of the queries with clicks")


def test_existing_test_log_is_kept() -> None:
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
    data = replace(data, train=data.train.take(np.array([0, 2])), test=data.train.take(np.array([1])))
    _, report = split(data, novel_ids=["b", "c"])
    content = report.to_dict()
    assert (content["novel_leaks"], content["novel_leak_examples"]) == (1, ["red apple"])
    assert (content["query_leaks"], content["query_leak_examples"]) == (1, ["fruit "])
    assert content["hash"] == report.hash
    json.dumps(content)


def test_split_file_has_ids_method_seed_and_hash(tmp_path: Path) -> None:
    _, report = split(world(), seed=3)
    save_split(report, tmp_path / "split.json")
    assert [file.name for file in tmp_path.iterdir()] == ["split.json"]
    assert json.loads((tmp_path / "split.json").read_text()) == {
        "method": report.method,
        "seed": 3,
        "hash": report.hash,
        "novel_ids": list(report.novel_ids),
        "test_query_ids": list(report.test_ids),
    }
    _, report = split(timed(), by="time")
    save_split(report, tmp_path / "split.json")
    assert json.loads((tmp_path / "split.json").read_text())["cut_at"] == 51.0


def test_hash_depends_on_ids_and_method_only() -> None:
    _, report = split(split(world())[0], novel_ids=["i1"])
    # Models store the hash, so it must not change.
    assert report.hash == "5b3ea59d0a209caac0a2accc3384e20375f6e24709fee781077b11414e85cc43"
    assert report.hash == replace(report, items_novel=99).hash
    assert report.hash != replace(report, method="another").hash
    assert report.hash != replace(report, test_ids=report.test_ids[1:]).hash


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, 1.5, 0.001, 0.999, float("nan")])
def test_bad_ratios(ratio: float) -> None:
    with pytest.raises(DataError, match=f"novel={ratio} of 40 items"):
        split(world(), novel=ratio)
    with pytest.raises(DataError, match=f"test={ratio} of 60 queries"):
        split(world(), test=ratio)


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "None of the items is novel"), (42, "All items are novel")]
)
def test_novel_list_of_nothing_or_everything(count: int, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        split(world(), novel_ids=[f"i{n}" for n in range(count)])


def test_unknown_novel_id_and_unknown_method() -> None:
    with pytest.raises(DataError, match="Unknown novel item id"):
        split(world(), novel_ids=["zebra"])
    with pytest.raises(DataError, match="Unknown split method"):
        split(world(), by="colour")  # type: ignore[arg-type]


def test_by_time_without_times() -> None:
    with pytest.raises(DataError, match="A split by time needs times"):
        split(world(), by="time")
