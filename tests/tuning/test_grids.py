from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration, QueryExpansion
from metaxc.emmett.scoring import ClassifierResponse
from metaxc.tuning import (
    FittedFold,
    FoldItems,
    Setting,
    TuningFold,
    ValidationQueries,
    fitted_folds,
    grids,
    tune_combine,
    tune_own_classifiers,
    tune_query_expansion,
)


def test_validation_queries_have_a_click_and_are_not_too_many():
    clicks = csr_array(np.array([[1, 0], [0, 0], [0, 1]], np.float32))
    validation = ValidationQueries.sample(np.array([[1.0], [2.0], [3.0]], np.float32), clicks, 0)
    assert validation.queries.ravel().tolist() == [1, 3]
    assert validation.clicks.toarray().tolist() == [[1, 0], [0, 1]]
    many = csr_array(np.ones((5000, 2), np.float32))
    assert (
        len(ValidationQueries.sample(np.ones((5000, 1), np.float32), many, 0).queries)
        == fitted_folds.MOST_QUERIES
    )


def test_the_queries_least_like_the_training_queries_are_unfamiliar():
    training = np.float32([[1, 0], [0, 1]])
    queries = np.float32([[1, 0], [-1, 0], [0, 0.9], [0.1, 0.2], [0.5, 0], [0, 0.6]])
    validation = ValidationQueries(queries, csr_array(np.eye(6, dtype=np.float32))).compared_with(training)
    assert validation.unfamiliar.tolist() == [False, True, False, True, False, False]
    assert validation.with_columns(np.arange(6)[::-1]).unfamiliar.tolist() == validation.unfamiliar.tolist()


def test_the_quality_is_computed_in_blocks_without_changing_it(monkeypatch):
    random = np.random.default_rng(0)
    queries, vectors = (random.standard_normal((n, 4)).astype(np.float32) for n in (30, 50))
    clicks = csr_array((random.random((30, 50)) < 0.1).astype(np.float32) + np.eye(30, 50, dtype=np.float32))
    hidden = csr_array((random.random((30, 50)) < 0.1).astype(np.float32))
    validation = ValidationQueries(queries, clicks, hidden)
    whole = validation.quality(vectors)
    assert 0 < whole.recall < 100
    monkeypatch.setattr(fitted_folds, "queries_at_once", lambda items: 350 // items)  # seven queries
    assert validation.quality(vectors) == whole


AXES = np.eye(24, dtype=np.float32)
QUERIES = AXES[:12]


def fitted(new, near, seen=AXES[12:24], novel=None, queries=QUERIES):
    """Query i clicks item i; observed item i's classifier is query i's axis."""
    clicks = csr_array(np.eye(12, dtype=np.float32))
    validation = ValidationQueries(queries, clicks)
    rows = np.tile(np.asarray(near)[:, None], (1, 20))
    classifiers = Classifiers(QUERIES[: len(seen)], np.full(len(seen), 100))
    fold = Fold(np.zeros(12, dtype=bool) if novel is None else novel, np.zeros(12, dtype=bool))
    data = TuningFold(fold, np.arange(12), clicks, validation, validation)
    scores = np.ones(rows.shape, np.float32)
    near = (rows, scores, rows[: len(seen)], scores)
    response = ClassifierResponse.of(classifiers, None)
    own = classifiers.padded(len(new))
    return FittedFold(data, own, classifiers, np.concatenate([seen, new]), queries, clicks, *near, response)


def items_of(fold, made):
    """The fold's items with these meta-classifiers; observed items are their texts alone."""
    seen, new = fold.observed_embeddings, fold.novel_embeddings
    weights = np.zeros((len(seen) + len(new), seen.shape[1]), np.float32)
    clicks = np.concatenate([fold.classifiers.clicks, np.zeros(len(new), np.int64)])
    return FoldItems(
        np.concatenate([seen, new]),
        np.concatenate([np.zeros_like(seen), made - new]),
        Classifiers(weights, clicks),
    )


def test_neighbours_that_know_are_given_strength():
    """The item's own embedding is noise, its neighbour's classifier is right."""
    assert tune_combine([fitted(AXES[12:24], np.arange(12))]).strength > 0


def test_neighbours_that_mislead_are_left_out():
    misled = fitted(QUERIES, (np.arange(12) + 1) % 12)
    choice = tune_combine([misled], neighbours=3)
    assert choice.strength < 1
    assert choice.neighbours == 3


def test_the_mean_over_folds_decides():
    """In one fold the neighbours mislead, in two they are all there is to know: they stay in."""
    misled = fitted(QUERIES, (np.arange(12) + 1) % 12)
    helped = fitted(AXES[12:24], np.arange(12))
    assert tune_combine([misled, helped, helped]).strength > 0


def test_combines_are_compared_among_a_sample_with_all_items_that_were_clicked(monkeypatch):
    """Half of the queries click items 0 to 5 of the twelve that play novel."""
    whole = fitted(AXES[12:24], np.arange(12))
    asked = whole.data.zero_shot.part(0, 6)
    fold = replace(whole, data=replace(whole.data, zero_shot=asked))
    monkeypatch.setattr(grids, "MOST_NOVEL", 8)
    rows = grids._sample_novel(fold)
    assert len(rows) == 8
    assert set(range(6)) <= set(rows.tolist())
    assert tune_combine([fold]).strength > 0
    monkeypatch.setattr(grids, "MOST_NOVEL", 3)
    assert grids._sample_novel(fold).tolist() == list(range(6))
    monkeypatch.setattr(grids, "MOST_NOVEL", 12)
    assert grids._sample_novel(fold).tolist() == list(range(12))


class TestOwnClassifiers:
    """Query i clicks item i; items 6 to 11 play novel, and their texts are their queries."""

    def tune(self, seen, weights):
        novel = np.arange(12) >= 6
        fold = fitted(QUERIES[6:], np.arange(6), seen=seen, novel=novel).data
        classifiers = Classifiers(weights, np.full(6, 100))
        chosen = tune_own_classifiers(fold, np.concatenate([seen, QUERIES[6:]]), classifiers)
        assert chosen.novelty_prior == 0
        assert (chosen.novel_scale, chosen.exposure) == (1, 0)
        return chosen

    def test_the_default_stays_where_nothing_is_better(self):
        assert self.tune(AXES[12:18], QUERIES[:6]) == Calibration(novelty_prior=0.0)

    def test_classifiers_that_drown_novel_items_are_turned_down(self):
        """They shout at the novel items' queries three times as loud as the novel items' texts."""
        chosen = self.tune(QUERIES[:6], 3 * QUERIES[6:])
        assert chosen.own * 100 / (100 + chosen.prior_clicks) * 3 < 1

    def test_classifiers_that_know_but_are_quiet_are_turned_up(self):
        """The texts are another item's query; what the clicks say is a fifth of that."""
        chosen = self.tune(np.roll(QUERIES[:6], 1, axis=0), 0.2 * QUERIES[:6])
        assert chosen.own * 100 / (100 + chosen.prior_clicks) * 0.2 > 1


def with_expansion(clicked):
    """Half of the items are pseudo-novel; texts know nothing; validation query i is also a training query that clicked
    item `clicked[i]`."""
    novel = np.arange(12) >= 6
    fold = fitted(AXES[18:24], np.arange(6), seen=AXES[12:18], novel=novel)
    clicks = csr_array(np.eye(6, dtype=np.float32)[np.asarray(clicked)])
    return replace(fold, expansion=QueryExpansion(QUERIES, clicks, fold.observed_embeddings))


QUIET = Setting(Calibration(own=0.0), 1.0)


def test_an_expansion_that_knows_is_used_and_one_that_misleads_is_not():
    right, wrong = list(range(6)) + [0] * 6, [(row + 1) % 6 for row in range(12)]

    def chosen(fold):
        return tune_query_expansion([fold], [items_of(fold, np.zeros((6, 24), np.float32))], QUIET)

    found = chosen(with_expansion(right))
    assert found is not None
    assert found.strength == min(grids.EXPANSION_STRENGTHS)  # all rank alike: the weakest is taken
    assert chosen(with_expansion(wrong)) is None
    assert chosen(replace(with_expansion(right), expansion=None)) is None


def test_an_expansion_that_novel_items_would_pay_for_is_not_used():
    """It knows all observed items, and moves one novel item's query to another novel item: in sum it helps."""
    clicks = csr_array(np.eye(12, dtype=np.float32))
    fold = fitted(QUERIES[6:], np.arange(6), seen=AXES[12:18], novel=np.arange(12) >= 6)
    validation = {
        "zero_shot": ValidationQueries(QUERIES[6:], csr_array(np.eye(6, dtype=np.float32))),
        "generalized": ValidationQueries(QUERIES[:6], csr_array(clicks[:6])),
    }
    fold = replace(fold, data=replace(fold.data, **validation))

    def chosen(novel_move):
        moves = np.concatenate([AXES[12:18], novel_move])
        moving = replace(fold, expansion=QueryExpansion(QUERIES, clicks, moves))
        return tune_query_expansion([moving], [items_of(moving, QUERIES[6:])], QUIET)

    one_wrong = QUERIES[6:].copy()
    one_wrong[0] = 10 * QUERIES[7]
    assert chosen(one_wrong) is None
    assert chosen(QUERIES[6:]) is not None


def test_excluded_pairs_rank_nowhere():
    excluded = csr_array((np.ones(2, np.float32), ([0, 1], [1, 0])), shape=(2, 3))
    items = np.array([[1, 0], [0, 1], [0.7, 0.7]], np.float32)
    one = ValidationQueries(items[[1, 0]], csr_array(np.array([[0, 0, 1], [0, 0, 1]], np.float32)), excluded)
    assert one.quality(items).precision == 100
    assert replace(one, excluded=None).quality(items).precision == 0
    turned = one.with_columns(np.array([2, 1, 0]))
    assert turned.quality(items[::-1]).precision == 100
    fold = TuningFold.build(
        Fold(np.array([False, False, True]), np.array([True, True])), one.queries, one.clicks, 0, excluded
    )
    assert fold.generalized.excluded.toarray().tolist() == [[0, 1, 0], [1, 0, 0]]
    assert fold.zero_shot.excluded.toarray().tolist() == [[0], [0]]
