import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.data.clicks import ClickTimes
from metaxc.data.folds import Fold
from metaxc.tuning import TuningFold
from metaxc.tuning.fitted_folds import UNFAMILIAR

QUERIES, ITEMS = 2_000, 100


@pytest.fixture(scope="module")
def log():
    """Each query clicks two items; query n is asked at time n, and item m appears when its first query is asked."""
    first = np.arange(QUERIES) // (QUERIES // ITEMS)
    items = np.stack([first, np.maximum(first - 1, 0)], axis=1)
    clicks = csr_array(
        (np.ones(2 * QUERIES, np.float32), (np.repeat(np.arange(QUERIES), 2), items.ravel())),
        shape=(QUERIES, ITEMS),
    )
    clicks.sum_duplicates()
    clicks.data[:] = 1
    clicks.sort_indices()
    asked = np.repeat(np.arange(QUERIES), np.diff(clicks.indptr)).astype(np.float64)
    times = ClickTimes(items=(QUERIES / ITEMS) * np.arange(ITEMS), first=asked, last=asked)
    embeddings = np.random.default_rng(0).standard_normal((QUERIES, 8)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return embeddings, clicks, times


def test_of_random_folds_the_queries_that_are_least_like_the_training_queries_are_known(log):
    queries, clicks, _ = log
    fold = Fold.draw(clicks, 0)
    found = TuningFold.build(fold, queries, clicks, 0).generalized
    assert found.unfamiliar.mean() == pytest.approx(UNFAMILIAR, abs=0.05)
    nearest = (found.queries @ queries[fold.training(clicks)[0]].T).max(axis=1)
    assert nearest[found.unfamiliar].max() <= nearest[~found.unfamiliar].min()


def test_windows_of_time_show_how_familiar_future_queries_are(log):
    queries, clicks, times = log
    fold = Fold.roll_back(clicks, times, 1)[0]
    assert fold.follows_time
    assert TuningFold.build(fold, queries, clicks, 0).generalized.unfamiliar is None
