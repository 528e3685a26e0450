from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc import tuning
from metaxc.classifiers import Classifiers
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration
from metaxc.memory import QueryMemory
from metaxc.tuning import Judges, Trial, choose_calibration, choose_combine, choose_recall, quality


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
    found = quality(scores, clicks)
    assert (found.precision, found.recall, found.mean) == (50.0, 100.0, 75.0)


def test_judges_have_a_click_and_are_not_too_many(monkeypatch):
    clicks = csr_array(np.array([[1, 0], [0, 0], [0, 1]], np.float32))
    judges = Judges.draw(np.array([[1.0], [2.0], [3.0]], np.float32), clicks, 0)
    assert judges.queries.ravel().tolist() == [1, 3]
    assert judges.clicks.toarray().tolist() == [[1, 0], [0, 1]]
    many = csr_array(np.ones((5000, 2), np.float32))
    assert len(Judges.draw(np.ones((5000, 1), np.float32), many, 0).queries) == tuning.MOST_QUERIES
    monkeypatch.setattr(tuning, "MOST_SCORES", 400)
    assert len(Judges.draw(np.ones((5000, 1), np.float32), many, 0).queries) == 200


AXES = np.eye(24, dtype=np.float32)
QUERIES = AXES[:12]


def trial(new, near, seen=AXES[12:24], novel=None, queries=QUERIES):
    """Query i clicks item i; observed item i's classifier is query i's axis."""
    clicks = csr_array(np.eye(12, dtype=np.float32))
    judges = Judges(queries, clicks)
    rows = np.tile(np.asarray(near)[:, None], (1, 20))
    classifiers = Classifiers(QUERIES[: len(seen)], np.full(len(seen), 100))
    return Trial(classifiers, seen, new, rows, np.ones(rows.shape, np.float32), judges, judges, novel)


def test_neighbours_that_know_are_given_strength():
    """The item's own embedding is noise, its neighbour's classifier is right."""
    assert choose_combine([trial(AXES[12:24], np.arange(12))]).strength > 0


def test_neighbours_that_mislead_are_left_out():
    misled = trial(QUERIES, (np.arange(12) + 1) % 12)
    choice = choose_combine([misled], neighbours=3)
    assert choice.strength < 1
    assert choice.neighbours == 3


def test_the_mean_over_folds_decides():
    """In one fold the neighbours mislead, in two they are all there is to know: they stay in."""
    misled = trial(QUERIES, (np.arange(12) + 1) % 12)
    helped = trial(AXES[12:24], np.arange(12))
    assert choose_combine([misled, helped, helped]).strength > 0


def test_calibration_keeps_loud_observed_items_from_drowning_novel_ones():
    """Meta-classifiers that are right but too quiet are scaled up."""
    novel = np.arange(12) >= 6
    loud = 0.9 * QUERIES[6:]  # the observed items' embeddings also answer the novel items' queries
    fold = trial(QUERIES[6:], np.arange(6), seen=loud, novel=novel)
    calibration, found = choose_calibration([fold], [0.8 * QUERIES[6:]])
    assert calibration.novel_scale > 1.1
    assert found.precision == 100.0


def remembering(clicked):
    """Half of the items are pseudo-novel; texts know nothing; training query i is judge i, and clicked `clicked`."""
    novel = np.arange(12) >= 6
    fold = trial(AXES[18:24], np.arange(6), seen=AXES[12:18], novel=novel)
    clicks = csr_array(np.eye(6, dtype=np.float32)[np.asarray(clicked)])
    return replace(fold, memory=QueryMemory(QUERIES, clicks, fold.seen))


def test_a_memory_that_knows_is_used_and_one_that_misleads_is_not():
    quiet = Calibration(own=0.0)
    right, wrong = list(range(6)) + [0] * 6, [(row + 1) % 6 for row in range(12)]
    made = [np.zeros((6, 24), np.float32)]
    chosen = choose_recall([remembering(right)], made, quiet)
    assert chosen is not None
    assert chosen.strength == min(tuning.RECALL_STRENGTHS)  # all rank alike: the weakest is taken
    assert choose_recall([remembering(wrong)], made, quiet) is None
    assert choose_recall([replace(remembering(right), memory=None)], made, quiet) is None


def test_a_memory_that_novel_items_would_pay_for_is_not_used():
    """It knows all observed items, and moves one novel item's query to another novel item: in sum it helps."""
    clicks = csr_array(np.eye(12, dtype=np.float32))
    fold = replace(
        trial(QUERIES[6:], np.arange(6), seen=AXES[12:18], novel=np.arange(12) >= 6),
        zero_shot=Judges(QUERIES[6:], csr_array(np.eye(6, dtype=np.float32))),
        generalized=Judges(QUERIES[:6], csr_array(clicks[:6])),
    )

    def chosen(novel_move):
        moves = np.concatenate([AXES[12:18], novel_move])
        remembering = replace(fold, memory=QueryMemory(QUERIES, clicks, moves))
        return choose_recall([remembering], [QUERIES[6:]], Calibration(own=0.0))

    one_wrong = QUERIES[6:].copy()
    one_wrong[0] = 10 * QUERIES[7]
    assert chosen(one_wrong) is None
    assert chosen(QUERIES[6:]) is not None
