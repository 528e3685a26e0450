"""One trainer for transformers and towers: the same gradients by every way, the same weights after a kill."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.data.clicks import training_clicks
from metaxc.encoders import Pretrained
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.encoders.towers import TwoTowers
from metaxc.encoders.training.batches import ClusteredBatches, RandomBatches
from metaxc.encoders.training.checkpoint import Checkpoint, weights_of
from metaxc.encoders.training.losses import contrastive_loss
from metaxc.encoders.training.negatives import IndexNegatives
from metaxc.encoders.training.sides import TowerSides, TransformerSides
from metaxc.encoders.training.trainer import TrainingConfig, embed_all, train


@pytest.fixture(scope="module")
def dataset(shop):
    return shop.with_novel([name for name in shop.items.ids if name.endswith("-wild")])


@pytest.fixture
def transformer(tiny, dataset):
    def make(chunk_tokens=40):
        observed, queries, clicks = training_clicks(dataset)
        pretrained = Pretrained(tiny)
        sides = TransformerSides(
            pretrained.sentence_transformer(),
            BagTokenizer(pretrained.tokenizer_file, 16, special_tokens=True),
            [dataset.train.queries.texts[row] for row in queries],
            [dataset.items.texts[row] for row in observed],
            chunk_tokens=chunk_tokens,
        )
        torch.manual_seed(0)  # the fixture's wide start tells texts apart but can hardly be trained
        for weights in sides.model.parameters():
            if weights.dim() == 2:
                torch.nn.init.normal_(weights, 0.0, 0.05)
        return sides, clicks

    return make


def towers_world(groups=8, each=6):
    """Queries carry token g, items token groups + g; group g clicks group g."""
    tokens = np.repeat(np.arange(groups), each).astype(np.int32)
    starts = np.arange(groups * each + 1)
    clicks = csr_array(np.kron(np.eye(groups), np.ones((each, each))).astype(np.float32))
    towers = TwoTowers(2 * groups, 16, base=False)
    with torch.no_grad():
        towers.query.table.normal_(generator=torch.Generator().manual_seed(0))
        towers.item.table.normal_(generator=torch.Generator().manual_seed(1))
    sides = TowerSides(towers, None, None, TokenBags(tokens, starts), TokenBags(tokens + groups, starts), 0.1)
    return sides, clicks


def found_in_group(sides, clicks):
    """Share of the queries whose best item is one they clicked."""
    queries, items = embed_all(sides, "query", clicks.shape[0]), embed_all(sides, "item", clicks.shape[1])
    best = (queries @ items.T).argmax(axis=1)
    return float(np.mean(clicks.toarray()[np.arange(len(best)), best]))


def test_negatives_beside_the_batch_count_for_queries_only():
    torch.manual_seed(0)
    queries, items = torch.randn(3, 5), torch.randn(5, 5)
    clicked = torch.zeros(3, 5, dtype=torch.bool)
    clicked[torch.arange(3), torch.arange(3)] = True
    clicked[1, 4] = True  # a negative of others that query 1 did click
    scale = torch.tensor(2.0)
    logits = 2.0 * queries @ items.T
    rows = [
        torch.logsumexp(logits[row, [0, 1, 2, 3, 4] if row != 1 else [0, 1, 2, 3]], 0) for row in range(3)
    ]
    forward = torch.stack([rows[row] - logits[row, row] for row in range(3)]).mean()
    back = torch.stack([torch.logsumexp(logits[:, j], 0) - logits[j, j] for j in range(3)]).mean()
    torch.testing.assert_close(contrastive_loss(queries, items, scale, clicked), (forward + back) / 2)


def test_training_teaches_a_transformer_what_the_texts_do_not_say(transformer):
    sides, clicks = transformer(chunk_tokens=400)
    before = found_in_group(sides, clicks)
    trained = train(
        sides, clicks, RandomBatches(clicks.shape[0], 32), TrainingConfig(steps=60, learning_rate=3e-3)
    )
    assert before < 0.3
    assert found_in_group(sides, clicks) > 0.9
    assert np.mean(trained.losses[-5:]) < np.mean(trained.losses[:5]) / 2


def test_cached_gradients_are_the_gradients(transformer):
    def one_step(**how):
        sides, clicks = transformer()
        config = TrainingConfig(steps=1, learning_rate=1e-3, **how)
        negatives = IndexNegatives(embed_all(sides, "item", clicks.shape[1]), clicks)
        train(sides, clicks, RandomBatches(clicks.shape[0], 24), config, negatives=negatives, seed=1)
        return {name: p.grad for name, p in sides.named_parameters() if p.grad is not None}

    whole, cached = one_step(), one_step(graph_tokens=0)
    assert set(whole) == set(cached)
    assert len(whole) > 30
    for name, gradient in whole.items():
        torch.testing.assert_close(cached[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    assert max(gradient.abs().max() for gradient in whole.values()) > 1e-3


@pytest.mark.parametrize("kind", ["towers", "transformer"])
@pytest.mark.parametrize("recipe", ["plain", "mined and clustered"])
def test_killed_and_resumed_ends_with_the_same_weights(kind, recipe, transformer, tmp_path):
    class KilledError(Exception):
        pass

    def run(folder, judge=None):
        sides, clicks = transformer() if kind == "transformer" else towers_world()
        batches, negatives = RandomBatches(clicks.shape[0], 16), None
        if recipe != "plain":
            start = embed_all(sides, "query", clicks.shape[0])
            batches = ClusteredBatches(start, 16, 12, cluster=4, refresh=3)
            negatives = IndexNegatives(embed_all(sides, "item", clicks.shape[1]), clicks, refresh=3)
        config = TrainingConfig(
            steps=12, learning_rate=1e-3, judge_every=2, checkpoint_seconds=0, patience=99
        )
        trained = train(
            sides,
            clicks,
            batches,
            config,
            negatives=negatives,
            judge=judge,
            checkpoint=Checkpoint(folder, "run"),
            seed=2,
        )
        return weights_of(sides.module), trained

    def judge(sides):
        return -abs(sides.log_scale.exp().item() - 7)

    calls = []

    def killer(sides):
        calls.append(1)
        if len(calls) == 4:
            raise KilledError
        return judge(sides)

    expected, straight = run(tmp_path / "straight", judge)
    with pytest.raises(KilledError):
        run(tmp_path / "killed", killer)
    found, resumed = run(tmp_path / "killed", judge)
    assert resumed == straight
    assert len(resumed.losses) == 12
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_not_taken_up(tmp_path):
    sides, clicks = towers_world()
    config = TrainingConfig(steps=3, checkpoint_seconds=0)
    train(sides, clicks, RandomBatches(48, 16), config, checkpoint=Checkpoint(tmp_path / "c", "one"))
    optimizers = sides.optimizers(1e-3)
    assert Checkpoint(tmp_path / "c", "two").read(sides.module, optimizers) is None
    assert Checkpoint(tmp_path / "c", "one").read(sides.module, optimizers)[0]["step"] == 3
    file = tmp_path / "c" / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert Checkpoint(tmp_path / "c", "one").read(sides.module, optimizers) is None


def test_the_best_judged_weights_stay_and_a_tired_run_stops():
    sides, clicks = towers_world()
    seen, values = [], iter([1.0, 5.0, 2.0, 2.0, 2.0, 9.0])

    def judge(sides):
        seen.append(weights_of(sides.module))
        return next(values)

    config = TrainingConfig(steps=100, learning_rate=1e-2, judge_every=2, patience=3)
    trained = train(sides, clicks, RandomBatches(48, 16), config, judge=judge)
    assert trained.judged == [(2, 1.0), (4, 5.0), (6, 2.0), (8, 2.0), (10, 2.0)]
    assert len(trained.losses) == 10
    for name, array in weights_of(sides.module).items():
        np.testing.assert_array_equal(array, seen[1][name])
        assert not np.array_equal(array, seen[4][name])


def test_the_learning_rate_rises_and_falls_to_zero():
    config = TrainingConfig(steps=10, warmup=0.2, learning_rate=1.0)
    rates = [config.rate(step) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[3:] == pytest.approx([7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])


def test_rows_keep_their_order_whatever_their_length(transformer):
    sides, _ = transformer(chunk_tokens=12)
    rows = np.array([7, 0, 3, 55, 12])
    together = embed_all(sides, "item", rows)
    for row, vector in zip(rows, together, strict=True):
        np.testing.assert_allclose(embed_all(sides, "item", np.array([row]))[0], vector, atol=1e-5)
