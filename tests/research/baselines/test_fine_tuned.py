"""Fine-tuning with sentence-transformers, on a tiny encoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.artifacts import json_digest
from metaxc.data import ClickLog, Dataset, split
from metaxc.encoders import Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.training.transformer_training import TransformerDualEncoder
from metaxc.errors import ConfigError, DataError
from metaxc.irene import IreneConfig
from metaxc.research.baselines.fine_tuned import (
    FineTuningConfig,
    batches_without_duplicates,
    click_pairs,
    embed_rows,
    fine_tune,
    mine_negatives,
)
from metaxc.research.bench import Context, Results, get_table, run_table, select_rows


def unit(*degrees):
    angles = np.radians(np.array(degrees, dtype=np.float32))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


class TestNegatives:
    CLICKS = csr_array(np.array([[1, 0, 0, 0, 1], [0, 1, 0, 0, 0]], np.float32))

    def mined(self, **settings):
        """Similarities of query 0 to its items: 0.940 (clicked), 0.985, 0.906, 0.766, 0.5 (clicked)."""
        queries, items = unit(0, 90), unit(20, 10, 25, 40, 60)
        config = FineTuningConfig(**{"negatives": 2, "margin": 0.0, **settings})
        return mine_negatives(queries, items, self.CLICKS, click_pairs(self.CLICKS), config).tolist()

    def test_pairs_are_the_clicks(self):
        assert click_pairs(self.CLICKS).tolist() == [[0, 0], [0, 4], [1, 1]]

    def test_negatives_are_the_nearest_items_below_the_clicked_one(self):
        assert self.mined()[0] == [
            2,
            3,
        ]  # not 1, which is nearer than the clicked item, and not 4, which was clicked
        assert self.mined()[1] == [-1, -1]  # all others are nearer than item 4

    def test_the_margin_is_relative_to_the_clicked_items_similarity(self):
        assert self.mined(margin=0.05)[0] == [3, -1]  # 0.906 > 0.95 × 0.940 = 0.893
        assert self.mined(margin=0.03)[0] == [2, 3]  # 0.906 < 0.97 × 0.940 = 0.911

    def test_candidates_are_limited(self):
        assert self.mined(candidates=2)[0] == [2, -1]


def test_no_text_is_twice_in_a_batch_and_a_pass_uses_every_pair_once():
    queries, items = ["a", "b", "c", "d"], ["x", "y", "z", "x"]
    rows = np.array([[0, 0], [0, 1], [1, 3], [2, 2], [3, 1]])
    batches = batches_without_duplicates([queries, items], rows, 3, np.random.default_rng(0))
    seen = []
    while len(seen) < 50:
        batch = next(batches)
        texts = [text for row in rows[batch] for text in (queries[row[0]], items[row[1]])]
        assert len(set(texts)) == len(texts)
        seen += batch
        assert len(seen) % 5 or np.bincount(seen).tolist() == [len(seen) // 5] * 5


def test_texts_in_chunks_have_the_embeddings_that_they_have_in_one_batch_in_the_order_asked_for(tiny):
    base = Pretrained(tiny)
    texts = [
        "bread",
        "a long text about the bread of the north and its salt",
        "salt",
        "fresh bread with salt",
    ]
    encoder = TransformerDualEncoder(
        base.sentence_transformer(),
        BagTokenizer(base.tokenizer_file, special_tokens=True),
        ["unused"],
        texts,
        chunk_tokens=10,
    )
    rows = np.array([1, 3, 0, 2, 1])
    encoder.eval()
    assert len(encoder.chunks("item", rows)) > 2
    found = embed_rows(encoder, "item", rows)
    assert found.requires_grad
    expected = base.encode([texts[row] for row in rows])
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)


@pytest.fixture(scope="module")
def data(shop) -> Dataset:
    return split(shop, novel=0.15, test=0.2)[0]


class TestTraining:
    CONFIG = FineTuningConfig(steps=2, batch=8, learning_rate=1e-3)

    def test_the_same_seed_gives_the_same_encoder_and_the_base_stays(self, data, tiny, tmp_path):
        base = Pretrained(tiny)
        before = base.encode_queries(["fresh bread"])
        for name, seed in (("one", 0), ("other", 0), ("third", 1)):
            fine_tune(base, data, self.CONFIG, tmp_path / name, seed)
        one, other, third = (Pretrained(tmp_path / name).fingerprint for name in ("one", "other", "third"))
        assert one == other
        assert one not in (third, base.fingerprint)
        np.testing.assert_array_equal(base.encode_queries(["fresh bread"]), before)

    def test_clicks_on_novel_items_are_not_used(self, data, tiny, tmp_path):
        novel = data.novel_mask
        clicks = data.train.clicks.toarray()
        clicks[:, novel] = np.roll(clicks[:, novel], 17, axis=0)
        moved = replace(data, train=ClickLog(data.train.queries, csr_array(clicks)))
        assert (moved.train.clicks != data.train.clicks).nnz > 50
        for name, given in (("one", data), ("other", moved)):
            fine_tune(Pretrained(tiny), given, self.CONFIG, tmp_path / name)
        assert Pretrained(tmp_path / "one").fingerprint == Pretrained(tmp_path / "other").fingerprint

    def test_too_little_to_learn_from_is_explained(self, tiny, tmp_path):
        data = Dataset.of({"a": "red apple", "b": "pear"}, {"q": "apple"}, [("q", "a")]).with_novel(["b"])
        with pytest.raises(DataError, match="too little to fine-tune"):
            fine_tune(Pretrained(tiny), data, self.CONFIG, tmp_path / "x")


def test_the_rows_learn_which_food_means_which_animal(data, tmp_path):
    def context(steps):
        return Context(
            data,
            IreneConfig(encoder="pretrained", backend="torch", folds=0),
            folder=tmp_path / "work",
            fine_tuning=FineTuningConfig(steps=steps, batch=16, learning_rate=3e-4),
        )

    table = get_table("main")
    rows = select_rows(table, "bare encoder", "*BM25 (RRF)", "fine-tuned*")
    found = {r["row"]: r for r in run_table(context(20), table, rows, Results(tmp_path / "r.jsonl"))}
    tuned, fused = "fine-tuned sentence-transformers", "fine-tuned sentence-transformers + BM25 (RRF)"
    assert list(found) == ["bare encoder", "bare encoder + BM25 (RRF)", tuned, fused]
    for setting in ("zero_shot", "generalized"):
        assert found["bare encoder"]["metrics"][setting]["P@1"] < 30
        assert found[tuned]["metrics"][setting]["P@1"] > 80
    assert found[tuned]["config"]["settings"]["fine_tuning"]["steps"] == 20
    assert found[tuned]["note"] == "fine-tuned for 20 steps of 16 pairs"
    assert found[fused]["config"]["settings"]["rrf"] == 60
    # No item has a word of a query: BM25 finds nothing, and the fused ranking is the encoder's.
    assert found["bare encoder + BM25 (RRF)"]["metrics"] == found["bare encoder"]["metrics"]
    assert found[fused]["metrics"] == found[tuned]["metrics"]
    # Trained once for both rows; its time counts for both.
    assert len(list((tmp_path / "work" / "fine-tuned").glob("[!.]*"))) == 1
    assert found[fused]["seconds"]["fit"] >= found[tuned]["seconds"]["fit"] > 0
    assert json_digest(rows[2].settings(context(20))) != json_digest(rows[2].settings(context(21)))


def test_an_encoder_that_cannot_be_fine_tuned_is_explained(world, tmp_path):
    context = Context(world.dataset, IreneConfig(), folder=tmp_path, encoder=world.encoder)
    with pytest.raises(ConfigError, match="Only a pretrained encoder"):
        _ = context.fine_tuned
