import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.data import Dataset
from metaxc.data.clicks import (
    FEWEST_DISTINCT,
    ClickTimes,
    days_since_last_click,
    training_clicks,
    training_times,
)
from metaxc.data.folds import Fold


class TestRandom:
    def test_a_fold_hides_its_items_and_queries_from_training(self):
        random = np.random.default_rng(0)
        clicks = csr_array((random.random((600, 100)) < 0.1).astype(np.float32))
        fold = Fold.draw(clicks, seed=1)
        assert fold.pseudo_novel.sum() == 15
        assert fold.held.sum() == 90
        rows, left = fold.training(clicks)
        assert not fold.held[rows].any()
        assert (np.diff(left.indptr) > 0).all()
        np.testing.assert_array_equal(left.toarray(), clicks.toarray()[rows][:, ~fold.pseudo_novel])
        assert (Fold.draw(clicks, seed=1).held == fold.held).all()
        assert (Fold.draw(clicks, seed=2).held != fold.held).any()

    def test_held_out_queries_validate_with_all_their_clicks(self):
        clicks = csr_array((np.random.default_rng(0).random((600, 100)) < 0.1).astype(np.float32))
        fold = Fold.draw(clicks, seed=1)
        rows, judged = fold.validation(clicks)
        assert rows.tolist() == np.flatnonzero(fold.held).tolist()
        np.testing.assert_array_equal(judged.toarray(), clicks.toarray()[rows])

    def test_folds_share_no_item_and_no_query(self):
        clicks = csr_array((np.random.default_rng(0).random((900, 200)) < 0.1).astype(np.float32))
        folds = Fold.partition(clicks, seed=1, count=3)
        assert [(fold.pseudo_novel.sum(), fold.held.sum()) for fold in folds] == [(30, 135)] * 3
        assert np.sum([fold.pseudo_novel for fold in folds], axis=0).max() == 1
        assert np.sum([fold.held for fold in folds], axis=0).max() == 1
        many = Fold.partition(clicks, seed=1, count=10)  # 15 % each would be more than all
        assert np.sum([fold.pseudo_novel for fold in many], axis=0).tolist() == [1] * 200

    def test_what_is_left_beside_all_folds_knows_nothing_of_any(self):
        clicks = csr_array((np.random.default_rng(0).random((900, 200)) < 0.1).astype(np.float32))
        folds = Fold.partition(clicks, seed=1, count=3)
        covering = Fold.covering(folds)
        assert (covering.pseudo_novel.sum(), covering.held.sum()) == (90, 405)
        for fold in folds:
            assert not np.isin(fold.novel, covering.observed).any()
            assert not fold.held[covering.training(clicks)[0]].any()

    def test_half_of_the_queries_are_held_out_with_all_that_click_the_same_items(self):
        # Four queries for each thing, which is two items; every item belongs to two things.
        things, words = 300, 4
        pairs = np.eye(things) + np.roll(np.eye(things), 1, axis=1)
        clicks = csr_array(np.repeat(pairs, words, axis=0).astype(np.float32))
        thing = np.repeat(np.arange(things), words)
        for fold in Fold.partition(clicks, seed=1, count=3):
            assert fold.held.sum() == 180
            held = np.bincount(thing[fold.held], minlength=things)
            whole = held[held == words].sum()
            assert 80 <= whole <= 100  # one thing at either end of a part may be cut in two
            assert (held > 0).sum() > 70  # the other half one by one: of many more things

    def test_no_item_loses_all_its_clicks_with_an_intent(self):
        clicks = csr_array(np.repeat(np.eye(200), 6, axis=0).astype(np.float32))  # six words for each item
        (fold,) = Fold.partition(clicks, seed=1, count=1, share=0.3)
        assert fold.held.sum() == 360
        _, left = fold.training(clicks)
        assert (
            left.sum(axis=0) == 0
        ).sum() < 5  # all six were drawn one by one: 0.3 to the sixth, of 140 items

    def test_an_intent_that_is_larger_than_a_fold_is_cut(self):
        clicks = csr_array(np.random.default_rng(0).random((900, 200)) < 0.1).tolil()
        clicks[:700] = clicks[0].toarray()  # most queries click the same items
        (fold,) = Fold.partition(csr_array(clicks, dtype=np.float32), seed=0, count=1)
        assert fold.held.sum() == 135
        assert fold.held[:700].any()
        assert not fold.held[:700].all()

    def test_the_share_of_items_may_differ_from_that_of_queries(self):
        clicks = csr_array((np.random.default_rng(0).random((900, 200)) < 0.1).astype(np.float32))
        (fold,) = Fold.partition(clicks, seed=1, count=1, item_share=0.05)
        assert (fold.pseudo_novel.sum(), fold.held.sum()) == (10, 135)

    def test_too_few_data_give_no_fold(self):
        assert Fold.partition(csr_array(np.ones((30, 20), np.float32)), seed=0, count=3) == []
        assert Fold.draw(csr_array(np.ones((30, 20), np.float32)), seed=0) is None


ITEMS, QUERIES = 120, 3_000


@pytest.fixture(scope="module")
def shop():
    """Item i appears on day i. Queries are asked one after the other from day 20 to day 120, every third of them again
    40 days later; each time a query clicks two of the 30 newest items. Times as of `training_times`."""
    random = np.random.default_rng(0)
    events = []
    for query, day in enumerate(np.linspace(20, ITEMS, QUERIES, endpoint=False)):
        for when in [day, day + 40] if query % 3 == 0 and day + 40 < ITEMS else [day]:
            newest = np.arange(max(0, int(when) - 30), int(when))
            events += [(query, int(item), when) for item in random.choice(newest, 2, replace=False)]
    rows, columns, days = (np.array(part) for part in zip(*events, strict=True))
    keys, place = np.unique(rows * ITEMS + columns, return_inverse=True)
    first, last = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
    np.minimum.at(first, place, days)
    np.maximum.at(last, place, days)
    clicks = csr_array((np.ones(len(keys), np.float32), (keys // ITEMS, keys % ITEMS)), (QUERIES, ITEMS))
    clicks.sort_indices()
    return clicks, ClickTimes(np.arange(ITEMS, dtype=np.float64), first, last)


class TestWindowsOfTime:
    @pytest.fixture(scope="class")
    def folds(self, shop):
        return Fold.roll_back(*shop, 3, item_share=0.1)

    def test_the_newest_of_the_items_that_existed_play_novel(self, folds):
        assert (
            [fold.novel.tolist() for fold in folds]
            == [
                list(range(108, 120)),
                list(range(98, 108)),  # a tenth of the 108 that are left
                list(range(89, 98)),
            ][: len(folds)]
        )
        assert len(folds) == 2  # nine items are too few

    def test_the_share_of_novel_items(self, shop):
        (fold,) = Fold.roll_back(*shop, 1, item_share=0.2)
        assert fold.pseudo_novel.sum() == 24
        (fold,) = Fold.roll_back(*shop, 1)
        assert fold.pseudo_novel.sum() == 18  # as of queries

    def test_items_are_ordered_by_when_they_appeared_not_by_row(self, shop):
        clicks, times = shop
        places = csr_array((np.arange(1, clicks.nnz + 1), clicks.indices, clicks.indptr), clicks.shape)
        places = csr_array(places[:, ::-1])
        places.sort_indices()
        order = places.data - 1
        backwards = csr_array((clicks.data[order], places.indices, places.indptr), clicks.shape)
        moved = ClickTimes(times.items[::-1], times.first[order], times.last[order])
        assert Fold.roll_back(backwards, moved, 1, item_share=0.1)[0].novel.tolist() == list(range(12))

    def test_nothing_is_learnt_from_after_a_window_begins(self, shop, folds):
        clicks, times = shop
        for fold in folds:
            begin = times.last[fold.future].min()
            assert times.first[fold.past].max() < begin
            assert (times.last[fold.future] >= begin).all()
            rows, learnt = fold.training(clicks)
            kept = csr_array((fold.past.astype(np.float32), clicks.indices, clicks.indptr), clicks.shape)
            np.testing.assert_array_equal(learnt.toarray(), kept.toarray()[rows][:, fold.observed])
            assert (np.diff(learnt.indptr) > 0).all()
            assert kept.toarray()[:, fold.observed].sum() == learnt.nnz  # no other query has such a click

    def test_a_window_validates_on_its_share_of_the_clicks_until_it_ends(self, shop, folds):
        _, times = shop
        before_end = np.ones(len(times.first), dtype=bool)
        for fold in folds:
            assert fold.future.sum() / before_end.sum() == pytest.approx(0.15, abs=0.03)
            assert not (fold.future & ~before_end).any()
            before_end = fold.past

    def test_windows_share_no_item_and_go_back_in_time(self, shop, folds):
        _, times = shop
        assert np.sum([fold.pseudo_novel for fold in folds], axis=0).max() == 1
        begins = [times.last[fold.future].min() for fold in folds]
        assert begins == sorted(begins, reverse=True)
        assert begins[0] > begins[1]

    def test_what_is_left_beside_all_windows_knows_nothing_of_any(self, shop, folds):
        _, times = shop
        covering = Fold.covering(folds)
        for fold in folds:
            assert times.first[covering.past].max() <= times.last[fold.future].min()
            assert not np.isin(fold.novel, covering.observed).any()

    def test_later_items_are_neither_learnt_from_nor_ranked(self, shop, folds):
        clicks, _ = shop
        assert not folds[0].later_items.any()
        later = np.flatnonzero(folds[1].later_items)
        assert later.tolist() == list(range(108, 120))
        assert not np.isin(later, folds[1].observed).any()
        assert not np.isin(later, folds[1].novel).any()
        assert folds[1].training(clicks)[1].shape[1] == len(folds[1].observed) == 98
        assert folds[1].validation(clicks)[1][:, folds[1].novel].nnz > 0

    def test_clicks_on_later_items_do_not_validate(self, shop):
        """With a fifth of the items in each window, some later items are clicked before the second window ends."""
        clicks, _ = shop
        fold = Fold.roll_back(*shop, 2, item_share=0.2)[1]
        later = np.flatnonzero(fold.later_items)
        assert later.tolist() == list(range(96, 120))
        asked = csr_array((fold.future.astype(np.float32), clicks.indices, clicks.indptr), clicks.shape)
        assert asked[:, later].sum() > 20
        _, judged = fold.validation(clicks)
        assert judged[:, later].nnz == 0
        assert judged.nnz == asked.sum() - asked[:, later].sum()

    def test_a_query_asked_again_learns_by_its_earlier_clicks_and_validates_by_its_later_ones(
        self, shop, folds
    ):
        clicks, times = shop
        fold = folds[0]
        held, judged = fold.validation(clicks)
        rows, learnt = fold.training(clicks)
        again = np.intersect1d(held, rows)
        assert len(again) > 20
        assert (again % 3 == 0).all()
        begin = times.last[fold.future].min()
        for row in again[:20]:
            part = slice(clicks.indptr[row], clicks.indptr[row + 1])
            items, early = clicks.indices[part], times.first[part] < begin
            late = times.last[part] >= begin
            found = learnt[np.searchsorted(rows, row)].nonzero()[-1]
            assert fold.observed[found].tolist() == [i for i in items[early] if i in fold.observed]
            assert judged[np.searchsorted(held, row)].nonzero()[-1].tolist() == items[late].tolist()

    def test_weights_of_clicks_are_kept(self, shop, folds):
        clicks, _ = shop
        weighted = csr_array((np.arange(1, clicks.nnz + 1.0), clicks.indices, clicks.indptr), clicks.shape)
        rows, learnt = folds[0].training(weighted)
        expected = weighted.toarray()[rows][:, folds[0].observed]
        np.testing.assert_array_equal(learnt.toarray()[learnt.toarray() > 0], expected[learnt.toarray() > 0])

    def test_ages_are_counted_from_the_last_click_that_may_be_learnt_from(self, shop):
        clicks, days = shop
        times = ClickTimes(*(86_400 * part for part in (days.items, days.first, days.last)))
        for fold in Fold.roll_back(clicks, times, 3, item_share=0.1):
            begin, compared = days.first[fold.past].max(), 0
            for item in fold.observed:
                learnt = np.minimum(days.last[fold.past & (clicks.indices == item)], begin)
                if len(learnt):
                    assert fold.ages[item] == pytest.approx(begin - learnt.max(), abs=0.5)
                    compared += fold.ages[item] > 2
            assert compared > 20

    def test_a_click_on_an_item_that_plays_novel_is_not_learnt_from(self, shop):
        """Item 20 counts as the newest, although it was clicked long before the window."""
        clicks, days = shop
        born = np.where(np.arange(ITEMS) == 20, ITEMS, days.items)
        times = ClickTimes(*(86_400 * part for part in (born, days.first, days.last)))
        (fold,) = Fold.roll_back(clicks, times, 1, item_share=0.1)
        assert fold.pseudo_novel[20]
        assert times.last[clicks.indices == 20].max() < times.first[fold.past].max()
        assert not fold.ages[fold.novel].any()

    def test_too_few_data_give_no_window(self, shop):
        clicks, times = shop
        few = csr_array(clicks[:100])
        part = ClickTimes(times.items, times.first[: few.nnz], times.last[: few.nnz])
        assert Fold.roll_back(few, part, 3) == []
        assert Fold.roll_back(clicks, times, 0) == []
        assert Fold.roll_back(clicks, times, 3, item_share=0.05) == []  # six items


def test_days_since_the_last_click_by_hand():
    """Item 0 is clicked on days 1 and 4, item 1 on day 2, item 2 never; the last click is on day 4."""
    clicks = csr_array(np.float32([[1, 1, 0], [1, 0, 0]]))
    days = 86_400 * np.array([1.0, 2.0, 4.0])
    times = ClickTimes(np.zeros(3), days, days)
    np.testing.assert_array_equal(days_since_last_click(clicks, times), [0, 2, 0])
    past = np.array([True, True, False])
    np.testing.assert_array_equal(days_since_last_click(clicks, times, 3 * 86_400, past), [2, 1, 0])


def test_a_wrong_date_years_ahead_does_not_make_all_items_old():
    """2,000 queries click one item each, one a day; one click claims to be of the year 2099."""
    rows = np.arange(2_000)
    clicks = csr_array((np.ones(2_000, np.float32), (rows, rows)))
    days = 86_400 * (20_000.0 + rows)
    days[7] = 86_400 * 47_000.0
    ages = days_since_last_click(clicks, ClickTimes(days, days, days))
    assert ages[[7, 1_999]].tolist() == [0, 0]
    assert ages[1_000] == 999  # counted from the last of the right dates


def test_a_random_fold_knows_no_ages():
    clicks = csr_array(np.random.default_rng(0).integers(0, 2, (400, 100)).astype(np.float32))
    assert Fold.draw(clicks, 0).ages is None


class TestTrainingTimes:
    def build(self, *, times=True, first_seen=True, items=25, distinct=30):
        names = {f"i{n}": f"item {n}" for n in range(items)}
        queries = {f"q{n}": f"query {n}" for n in range(30)}
        clicks = [(f"q{n}", f"i{n % items}") for n in range(30)] + [("q0", "i0"), ("q1", "i4")]
        days = [float(n % distinct) for n in range(30)] + [50.0, 60.0]
        seen = {name: 1000 - number for number, name in enumerate(names)}
        data = Dataset.of(
            names,
            queries,
            clicks,
            times=days if times else None,
            first_seen=seen if first_seen else None,
        )
        return data.with_novel(["i2"])

    def of(self, **kwargs):
        data = self.build(**kwargs)
        observed, query_rows, clicks = training_clicks(data)
        return data, observed, query_rows, clicks, training_times(data, observed, query_rows)

    def test_they_belong_to_the_clicks_in_their_order(self):
        _, observed, query_rows, clicks, times = self.of()
        pairs = [
            (int(query_rows[row]), int(observed[column]))
            for row, column in zip(*csr_array(clicks).nonzero(), strict=True)
        ]
        assert len(pairs) == len(times.first) == clicks.nnz
        first = dict(zip(pairs, times.first.tolist(), strict=True))
        last = dict(zip(pairs, times.last.tolist(), strict=True))
        assert (first[0, 0], last[0, 0]) == (0.0, 50.0)  # clicked twice, at first in second 0
        assert (first[1, 1], last[1, 1]) == (1.0, 1.0)
        assert first[1, 4] == 60.0
        assert first[26, 1] == 26.0
        assert 2 not in observed
        assert times.items.tolist() == [1000 - row for row in observed]

    def test_an_item_without_a_date_appeared_at_its_first_click(self):
        _, observed, _, _, times = self.of(first_seen=False)
        assert times.items.tolist() == [float(row) for row in observed]

    def test_none_where_the_clicks_have_no_times(self):
        assert self.of(times=False)[-1] is None

    def test_none_where_there_are_too_few_distinct_times(self):
        assert self.of(items=FEWEST_DISTINCT)[-1] is None  # one of them is novel
        assert self.of(items=FEWEST_DISTINCT + 1)[-1] is not None
        assert self.of(distinct=15)[-1] is None
