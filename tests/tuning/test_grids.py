from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration, QueryExpansion
from metaxc.tuning import (
    FittedFold,
    TuningFold,
    ValidationQueries,
    fitted_folds,
    grids,
    ranking_quality,
    tune_calibration,
    tune_combine,
    tune_query_expansion,
)


def test_a_fold_hides_its_items_and_queries_from_training():
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


def test_folds_share_no_item_and_no_query():
    clicks = csr_array((np.random.default_rng(0).random((900, 200)) < 0.1).astype(np.float32))
    folds = Fold.partition(clicks, seed=1, count=3)
    assert [(fold.pseudo_novel.sum(), fold.held.sum()) for fold in folds] == [(30, 135)] * 3
    assert np.sum([fold.pseudo_novel for fold in folds], axis=0).max() == 1
    assert np.sum([fold.held for fold in folds], axis=0).max() == 1
    many = Fold.partition(clicks, seed=1, count=10)  # 15 % each would be more than all
    assert np.sum([fold.pseudo_novel for fold in many], axis=0).tolist() == [1] * 200


def test_too_few_data_give_no_fold():
    assert Fold.partition(csr_array(np.ones((30, 20), np.float32)), seed=0, count=3) == []
    assert Fold.draw(csr_array(np.ones((30, 20), np.float32)), seed=0) is None


def test_quality_by_hand():
    scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    clicks = csr_array(np.array([[1, 1, 0], [1, 0, 0]], np.float32))
    found = ranking_quality(scores, clicks)
    assert (found.precision, found.recall, found.mean) == (50.0, 100.0, 75.0)


def test_validation_queries_have_a_click_and_are_not_too_many(monkeypatch):
    clicks = csr_array(np.array([[1, 0], [0, 0], [0, 1]], np.float32))
    validation = ValidationQueries.sample(np.array([[1.0], [2.0], [3.0]], np.float32), clicks, 0)
    assert validation.queries.ravel().tolist() == [1, 3]
    assert validation.clicks.toarray().tolist() == [[1, 0], [0, 1]]
    many = csr_array(np.ones((5000, 2), np.float32))
    assert (
        len(ValidationQueries.sample(np.ones((5000, 1), np.float32), many, 0).queries)
        == fitted_folds.MOST_QUERIES
    )
    monkeypatch.setattr(fitted_folds, "MOST_SCORES", 400)
    assert len(ValidationQueries.sample(np.ones((5000, 1), np.float32), many, 0).queries) == 200


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
    return FittedFold(data, classifiers, classifiers, seen, new, queries, clicks, rows, scores)


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


def test_calibration_keeps_loud_observed_items_from_drowning_novel_ones():
    """Meta-classifiers that are right but too quiet are scaled up."""
    novel = np.arange(12) >= 6
    loud = 0.9 * QUERIES[6:]  # the observed items' embeddings also answer the novel items' queries
    fold = fitted(QUERIES[6:], np.arange(6), seen=loud, novel=novel)
    calibration, found = tune_calibration([fold], [0.8 * QUERIES[6:]])
    assert calibration.novel_scale > 1.1
    assert found.precision == 100.0


def with_expansion(clicked):
    """Half of the items are pseudo-novel; texts know nothing; validation query i is also a training query that clicked
    item `clicked[i]`."""
    novel = np.arange(12) >= 6
    fold = fitted(AXES[18:24], np.arange(6), seen=AXES[12:18], novel=novel)
    clicks = csr_array(np.eye(6, dtype=np.float32)[np.asarray(clicked)])
    return replace(fold, expansion=QueryExpansion(QUERIES, clicks, fold.observed_embeddings))


def test_an_expansion_that_knows_is_used_and_one_that_misleads_is_not():
    quiet = Calibration(own=0.0)
    right, wrong = list(range(6)) + [0] * 6, [(row + 1) % 6 for row in range(12)]
    made = [np.zeros((6, 24), np.float32)]
    chosen = tune_query_expansion([with_expansion(right)], made, quiet)
    assert chosen is not None
    assert chosen.strength == min(grids.EXPANSION_STRENGTHS)  # all rank alike: the weakest is taken
    assert tune_query_expansion([with_expansion(wrong)], made, quiet) is None
    assert tune_query_expansion([replace(with_expansion(right), expansion=None)], made, quiet) is None


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
        return tune_query_expansion([moving], [QUERIES[6:]], Calibration(own=0.0))

    one_wrong = QUERIES[6:].copy()
    one_wrong[0] = 10 * QUERIES[7]
    assert chosen(one_wrong) is None
    assert chosen(QUERIES[6:]) is not None
