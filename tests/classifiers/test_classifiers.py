import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers, centroid, ridge
from metaxc.errors import DataError

QUERIES = np.array([[1, 0], [0.6, 0.8], [0, 1]], dtype=np.float32)
CLICKS = csr_array(np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]], dtype=np.float32))


def test_ridge_solves_the_normal_equations():
    found = ridge(QUERIES, CLICKS, penalty=0.5)
    expected = np.linalg.solve(QUERIES.T @ QUERIES + 0.5 * np.eye(2), QUERIES.T @ CLICKS.toarray()).T
    expected[:2] /= np.linalg.norm(expected[:2], axis=1, keepdims=True)
    np.testing.assert_allclose(found.weights, expected, atol=1e-6)
    assert found.clicks.tolist() == [2, 2, 0]


def test_centroid_is_the_mean_direction_and_zero_without_clicks():
    found = centroid(QUERIES, CLICKS)
    np.testing.assert_allclose(found.weights[0], np.array([1.6, 0.8]) / np.hypot(1.6, 0.8), atol=1e-6)
    assert found.weights[2].tolist() == [0, 0]


WEIGHTED = csr_array(np.array([[3, 0, 0], [1, 2.5, 0], [0, 1, 0]], dtype=np.float32))


def test_weighted_clicks_count_by_their_weights():
    found = centroid(QUERIES, WEIGHTED)
    np.testing.assert_allclose(found.weights[0], np.array([3.6, 0.8]) / np.hypot(3.6, 0.8), atol=1e-6)
    target = np.linalg.solve(QUERIES.T @ QUERIES + np.eye(2), QUERIES.T @ WEIGHTED.toarray()).T[:2]
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    np.testing.assert_allclose(ridge(QUERIES, WEIGHTED).weights[:2], target, atol=1e-6)
    assert found.clicks.tolist() == [4, 3.5, 0]


@pytest.mark.parametrize("clicks", [CLICKS, WEIGHTED], ids=["counted", "weighted"])
def test_clicks_are_saved_as_they_are(tmp_path, clicks):
    made = ridge(QUERIES, clicks)
    made.save(tmp_path / "classifiers.safetensors")
    back = Classifiers.load(tmp_path / "classifiers.safetensors")
    assert back.clicks.dtype == made.clicks.dtype
    assert back.clicks.tolist() == made.clicks.tolist()


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="differ in number"):
        ridge(QUERIES[:2], CLICKS)
    with pytest.raises(DataError, match="NaN"):
        ridge(np.full_like(QUERIES, np.nan), CLICKS)


def test_padding_adds_items_without_clicks():
    found = ridge(QUERIES, CLICKS)
    padded = found.padded(2)
    assert padded.clicks.tolist() == [2, 2, 0, 0, 0]
    assert not padded.weights[3:].any()
    np.testing.assert_array_equal(padded.take(slice(3)).weights, found.weights)
    with pytest.raises(ValueError, match="after the training"):
        Classifiers(found.weights, found.clicks, learnt_clicks=found.clicks).padded(1)
