import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.encoders import Pretrained
from metaxc.errors import DataError, ModelError
from metaxc.selectors import NearestSelector, RerankSelector
from metaxc.selectors.cross_encoder import CrossEncoderReranker, neighbour_usefulness, train_cross_encoder

QUERIES = np.eye(3, dtype=np.float32)


class TestUsefulness:
    clicks = csr_array(np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], dtype=np.float32))
    classifiers = np.array([[1, 0, 0], [0, 0, 1], [1, 0, 0], [0.6, 0.8, 0]], dtype=np.float32)

    def test_is_the_standardised_mean_score_on_the_items_queries(self):
        # Item 0 was clicked by queries 0 and 1: candidates 1, 2, 3 score 0, 1/2, 7/10 in the mean.
        found = neighbour_usefulness(
            QUERIES, self.clicks, self.classifiers, np.array([[1, 2, 3]] + [[-1] * 3] * 3)
        )
        raw = np.array([0, 0.5, 0.7])
        np.testing.assert_allclose(found[0], (raw - raw.mean()) / raw.std(), atol=1e-6)
        assert not found[1:].any()

    def test_the_mean_is_by_the_weights_of_the_clicks(self):
        clicks = self.clicks.copy()
        clicks.data[:] = [3, 1, 1]  # item 0: query 0 three times as much as query 1
        shortlists = np.array([[1, 2, 3]] + [[-1] * 3] * 3)
        raw = np.array([0, 0.75, 0.65])
        found = neighbour_usefulness(QUERIES, clicks, self.classifiers, shortlists)
        np.testing.assert_allclose(found[0], (raw - raw.mean()) / raw.std(), atol=1e-6)

    def test_padding_is_left_out_of_mean_and_deviation(self):
        shortlists = np.array([[1, -1, 2], [0, 2, -1], [-1, -1, -1], [0, 1, 2]])
        found = neighbour_usefulness(QUERIES, self.clicks, self.classifiers, shortlists)
        np.testing.assert_allclose(found[0], [-1, 0, 1], atol=1e-6)
        assert not found[1].any()  # both candidates score query 2 with 0
        assert not found[3].any()  # item 3 has no click


KINDS = ["apple", "hammer", "violin", "dog"]
TEXTS = [f"{kind} {size}" for kind in KINDS for size in ("small", "large", "old", "new")]


def pairs_of_one_kind():
    """A candidate is useful when it is named the same; shortlists hold all other items."""
    everyone = np.arange(len(TEXTS))
    shortlists = np.stack([np.delete(everyone, row) for row in everyone])
    useful = np.where(shortlists // 4 == everyone[:, None] // 4, 2.0, -0.5).astype(np.float32)
    return shortlists, useful


def test_a_reranker_is_trained_saved_and_loaded(tmp_path):
    shortlists, useful = pairs_of_one_kind()
    folder = Pretrained().folder
    rerank = train_cross_encoder(TEXTS, shortlists, useful, folder, pairs=64, freeze_layers=5)
    again = train_cross_encoder(TEXTS, shortlists, useful, folder, pairs=64, freeze_layers=5)
    other = train_cross_encoder(TEXTS, shortlists, useful, folder, pairs=64, freeze_layers=5, seed=1)
    assert rerank.fingerprint == again.fingerprint != other.fingerprint
    scores = rerank(TEXTS[:2], [TEXTS[3:7], TEXTS[5:9]])
    assert scores.shape == (2, 4)
    single = rerank([TEXTS[1]], [[TEXTS[8]]])
    np.testing.assert_allclose(
        single[0, 0], scores[1, 3], atol=1e-5
    )  # each score is at the place of its pair

    rerank.save(tmp_path / "c")
    loaded = CrossEncoderReranker.load(tmp_path / "c")
    np.testing.assert_array_equal(loaded(TEXTS[:2], [TEXTS[3:7], TEXTS[5:9]]), scores)
    assert repr(loaded) == repr(rerank)
    weights = tmp_path / "c" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelError, match="another length"):
        CrossEncoderReranker.load(tmp_path / "c")


def test_frozen_layers_do_not_change():
    from safetensors.numpy import load_file

    shortlists, useful = pairs_of_one_kind()
    folder = Pretrained().folder
    trained = train_cross_encoder(TEXTS, shortlists, useful, folder, pairs=32, freeze_layers=5)
    before = load_file(folder / "model.safetensors")
    changed = {
        name
        for name, tensor in trained.model.base_model.state_dict().items()
        if name in before and not np.array_equal(tensor.numpy(), before[name])
    }
    assert any(".layer.5." in name for name in changed)
    assert all(".layer.5." in name or name.startswith("pooler") for name in changed)


def test_shapes_that_do_not_match_are_errors():
    with pytest.raises(DataError, match="do not match"):
        train_cross_encoder(TEXTS, np.zeros((3, 2), np.int64), np.zeros((3, 2), np.float32), "x")
    nothing = np.full((len(TEXTS), 2), -1)
    with pytest.raises(DataError, match="no pairs"):
        train_cross_encoder(TEXTS, nothing, np.zeros(nothing.shape, np.float32), "x")


@pytest.mark.slow
def test_it_learns_which_candidates_are_useful():
    shortlists, useful = pairs_of_one_kind()
    rerank = train_cross_encoder(TEXTS, shortlists, useful, Pretrained().folder, pairs=240, epochs=6)
    vectors = np.eye(len(TEXTS), dtype=np.float32)  # the first selector knows nothing
    selector = RerankSelector(NearestSelector(vectors), rerank, TEXTS, shortlist=len(TEXTS) - 1)
    rows, _ = selector.select(vectors, 3, exclude_self=np.arange(len(TEXTS)), texts=TEXTS)
    assert (rows // 4 == np.arange(len(TEXTS))[:, None] // 4).mean() > 0.9
