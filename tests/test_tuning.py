import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers
from metaxc.tuning import Fold, choose_calibration, choose_combine, judges_of, quality


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


def test_too_few_data_give_no_fold():
    assert Fold.draw(csr_array(np.ones((30, 20), np.float32)), seed=0) is None


def test_quality_by_hand():
    scores = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    clicks = csr_array(np.array([[1, 1, 0], [1, 0, 0]], np.float32))
    found = quality(scores, clicks)
    assert (found.precision, found.recall, found.mean) == (50.0, 100.0, 75.0)


def test_judges_have_a_click():
    clicks = csr_array(np.array([[1, 0], [0, 0], [0, 1]], np.float32))
    rows, theirs = judges_of(clicks, 0)
    assert rows.tolist() == [0, 2]
    assert theirs.toarray().tolist() == [[1, 0], [0, 1]]


def neighbours_know(n=12, dim=24):
    """Queries point along axis i; the item's own embedding is noise, its one neighbour's classifier is right."""
    axes = np.eye(dim, dtype=np.float32)
    return axes[:n], csr_array(np.eye(n, dtype=np.float32)), axes[n : 2 * n]


def test_neighbours_that_know_are_given_strength():
    queries, clicks, embeddings = neighbours_know()
    rows = np.tile(np.arange(12)[:, None], (1, 20))
    classifiers = Classifiers(queries, np.full(12, 100))
    choice = choose_combine(queries, clicks, embeddings, rows, np.ones(rows.shape, np.float32), classifiers)
    assert choice.strength > 0


def test_neighbours_that_mislead_are_left_out():
    queries, clicks, _ = neighbours_know()
    rows = np.tile(((np.arange(12) + 1) % 12)[:, None], (1, 20))
    classifiers = Classifiers(queries, np.full(12, 100))
    choice = choose_combine(queries, clicks, queries, rows, np.ones(rows.shape, np.float32), classifiers, 3)
    assert choice.strength < 1
    assert choice.neighbours == 3


def test_calibration_keeps_loud_observed_items_from_drowning_novel_ones():
    """Meta-classifiers that are right but too quiet are scaled up."""
    queries, clicks, _ = neighbours_know()
    novel = np.zeros(12, dtype=bool)
    novel[6:] = True
    noise = 0.9 * queries[6:]  # the observed items' embeddings also answer the novel items' queries
    classifiers = Classifiers(queries[:6], np.full(6, 50))
    calibration, found = choose_calibration(queries, clicks, noise, classifiers, 0.8 * queries[6:], novel)
    assert calibration.novel_scale > 1.1
    assert found.precision == 100.0
