import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers, centroid, ridge
from metaxc.errors import DataError, ModelError

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


class TestAges:
    made = Classifiers(np.eye(3, dtype=np.float32), np.array([1, 2, 3]), ages=np.float32([5, 0, 2.5]))

    def test_they_are_saved(self, tmp_path):
        self.made.save(tmp_path / "file.safetensors")
        np.testing.assert_array_equal(Classifiers.load(tmp_path / "file.safetensors").ages, [5, 0, 2.5])

    def test_classifiers_of_before_have_none(self, tmp_path):
        Classifiers(self.made.weights, self.made.clicks).save(tmp_path / "file.safetensors")
        assert Classifiers.load(tmp_path / "file.safetensors").ages is None

    def test_they_go_with_their_classifiers(self):
        np.testing.assert_array_equal(self.made.take([2, 0]).ages, [2.5, 5])
        np.testing.assert_array_equal(self.made.padded(2).ages, [5, 0, 2.5, 0, 0])

    def test_an_age_below_zero_is_refused(self, tmp_path):
        wrong = Classifiers(self.made.weights, self.made.clicks, ages=np.float32([0, -1, 0]))
        wrong.save(tmp_path / "file.safetensors")
        with pytest.raises(ModelError, match="age"):
            Classifiers.load(tmp_path / "file.safetensors")
