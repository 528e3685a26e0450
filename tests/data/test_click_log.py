"""Click events: counts add up, times are sorted, and parts of a log keep their own events."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaxc.data.click_log import ClickLog, Texts, click_matrix
from metaxc.errors import DataError

QUERIES = Texts(["q", "r", "s"], ["u", "v", "w"])


def log() -> ClickLog:
    """q clicks a twice (at 1 and 5) and c three times at 2; r clicks b at 4; s clicks nothing."""
    events = [(0, 0, 5, 1), (0, 2, 2, 2), (1, 1, 4, 1), (0, 0, 1, 1), (0, 2, 2, 1)]
    rows, items, times, counts = np.array(events).T
    return ClickLog.of_events(QUERIES, 3, rows, items, times, counts)


def test_repeated_events_add_up_and_are_sorted_by_time():
    one = log()
    assert one.clicks.toarray().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert one.clicks.dtype == np.float32
    assert one.pair_counts.tolist() == [2, 3, 1]
    assert one.times.tolist() == [1, 5, 2, 4]
    assert one.time_counts.tolist() == [1, 1, 3, 1]
    assert one.groups.pairs.tolist() == [0, 0, 1, 2]
    assert one.event_count == 6
    assert repr(one) == "ClickLog(3 queries, 3 clicks, 6 events)"


def test_first_and_last_times():
    one = log()
    assert one.first_times.tolist() == [1, 2, 4]
    assert one.last_times.tolist() == [5, 2, 4]
    assert one.query_times.tolist() == [5, 4, -np.inf]
    assert one.item_times.tolist() == [1, 4, 2]


def test_a_log_without_counts_and_times():
    one = ClickLog.of_events(QUERIES, 3, [0, 1], [2, 1])
    assert one.counts is None
    assert one.pair_counts.tolist() == [1, 1]
    assert one.groups.times is None
    assert [one.times, one.first_times, one.last_times, one.query_times, one.item_times] == [None] * 5
    assert repr(one) == "ClickLog(3 queries, 2 clicks)"
    empty = ClickLog.of_events(QUERIES, 3, [], [], [], [])
    assert empty.event_count == 0
    assert empty.query_times.tolist() == [-np.inf] * 3


def test_one_event_each_needs_neither_counts():
    one = ClickLog.of_events(QUERIES, 3, [1, 0], [1, 2], times=[4, 2], counts=[1, 1])
    assert one.counts is None
    assert one.time_counts is None
    assert one.times.tolist() == [2, 4]


def test_large_counts_take_no_memory():
    one = ClickLog.of_events(QUERIES, 3, [0, 0], [1, 1], times=[2, 1], counts=[10**9, 10**9])
    assert one.event_count == 2 * 10**9
    assert len(one.times) == 2


def test_taken_queries_and_items_keep_their_events():
    taken = log().take(np.array([1, 0]))
    assert taken.queries.ids == ["r", "q"]
    assert taken.pair_counts.tolist() == [1, 2, 3]
    assert taken.times.tolist() == [4, 1, 5, 2]
    assert taken.time_counts.tolist() == [1, 1, 1, 3]
    columns = log().take_items(np.array([2, 1]))
    assert columns.clicks.toarray().tolist() == [[1, 0], [0, 1], [0, 0]]
    assert columns.pair_counts.tolist() == [3, 1]
    assert columns.times.tolist() == [2, 4]
    assert log().take(np.array([1])).counts is None
    assert log().take(np.array([2])).event_count == 0


def test_counts_without_times_are_taken_too():
    one = ClickLog.of_events(QUERIES, 3, [0, 0, 1], [0, 0, 1])
    assert one.take(np.array([1, 0])).pair_counts.tolist() == [1, 2]


def test_taken_events():
    one = log()
    early = one.take_events(one.groups.times < 4)
    assert early.clicks.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert early.pair_counts.tolist() == [1, 3]
    assert early.times.tolist() == [1, 2]


CLICKS = click_matrix(np.array([0, 0]), np.array([0, 1]), (3, 2))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"counts": [1]}, "2 clicks, 1 counts"),
        ({"counts": [1, 0]}, "A count is too small\n  got: 0"),
        ({"times": [1.0]}, "1 events with a time, 2 events of 2 clicks"),
        ({"times": [1.0, 2.0, 3.0], "counts": [2, 2]}, "3 events with a time, 4 events"),
        ({"times": [1.0, 2.0], "counts": [1, 2], "time_counts": [2, 1]}, "The times do not match the clicks"),
        ({"times": [1.0, 2.0], "time_counts": [1]}, "2 times, 1 counts"),
        ({"time_counts": [1, 1]}, "counts per time without times"),
        ({"times": [1.0, np.nan]}, "not ascending numbers"),
        ({"times": [1.0, 3.0, 2.0], "counts": [1, 2]}, "not ascending numbers"),
    ],
)
def test_arrays_that_contradict_each_other_are_an_error(arrays, message):
    given_arrays = {name: np.asarray(values) for name, values in arrays.items()}
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        ClickLog(QUERIES, CLICKS, **given_arrays)


def test_times_fall_from_one_click_to_the_next():
    assert ClickLog(QUERIES, CLICKS, np.array([9.0, 1.0])).last_times.tolist() == [9, 1]


events = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 5), st.integers(1, 4)),
    min_size=1,
    max_size=30,
)


@given(events=events, rows=st.permutations(range(3)))
def test_events_are_what_was_given_however_the_log_is_cut(events, rows):
    query_rows, items, times, counts = np.array(events).T
    whole = ClickLog.of_events(QUERIES, 4, query_rows, items, times, counts)
    expected = {}
    for query, item, time, count in events:
        expected[query, item, time] = expected.get((query, item, time), 0) + count
    assert _events(whole) == expected
    taken = whole.take(np.array(rows))
    assert _events(taken) == {(rows.index(q), i, t): n for (q, i, t), n in expected.items()}
    kept = whole.groups.times > 2
    assert _events(whole.take_events(kept)) == {key: n for key, n in expected.items() if key[2] > 2}
    assert whole.query_times.tolist() == [
        max((t for q, _, t in expected if q == row), default=-np.inf) for row in range(3)
    ]


def _events(one: ClickLog) -> dict[tuple[int, int, float], int]:
    rows, columns = one.clicks.nonzero()
    groups = one.groups
    return {
        (int(rows[pair]), int(columns[pair]), time): count
        for pair, time, count in zip(groups.pairs, groups.times.tolist(), groups.counts.tolist(), strict=True)
    }


def test_texts_are_extended_with_their_tags_and_fields():
    old, new = Texts(["a"], ["x"], tags=[("t",)]), Texts(["b", "c"], ["y", "z"], fields=[{"p": 1}, {}])
    both = old.extended(new)
    assert (both.ids, both.texts) == (["a", "b", "c"], ["x", "y", "z"])
    assert (both.tags, both.fields) == ([("t",), (), ()], [{}, {"p": 1}, {}])
    plain = Texts(["a"], ["x"]).extended(Texts(["b"], ["y"]))
    assert (plain.tags, plain.fields) == (None, None)
