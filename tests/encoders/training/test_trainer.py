"""One trainer for transformers and towers: cached gradients are exact, and a resumed run ends with the same weights."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.data.clicks import training_clicks
from metaxc.encoders import Pretrained
from metaxc.encoders.adapted import TwoTowers
from metaxc.encoders.learning import TowerDualEncoder
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.encoders.training import TrainingConfig
from metaxc.encoders.training.batches import ClusteredBatches, RandomBatches
from metaxc.encoders.training.encoder_record import Checkpoint, copy_weights
from metaxc.encoders.training.negatives import IndexNegatives
from metaxc.encoders.training.trainer import Processes, embed_all, train
from metaxc.encoders.training.transformer_training import TransformerDualEncoder
from metaxc.errors import MetaxcError


@pytest.fixture(scope="module")
def dataset(shop):
    return shop.with_novel([name for name in shop.items.ids if name.endswith("-wild")])


@pytest.fixture
def transformer(tiny, dataset):
    def make(chunk_tokens=40):
        observed, queries, clicks = training_clicks(dataset)
        pretrained = Pretrained(tiny)
        encoder = TransformerDualEncoder(
            pretrained.sentence_transformer(),
            BagTokenizer(pretrained.tokenizer_file, 16, special_tokens=True),
            [dataset.train.queries.texts[row] for row in queries],
            [dataset.items.texts[row] for row in observed],
            chunk_tokens=chunk_tokens,
        )
        torch.manual_seed(0)  # the fixture's large weights can hardly be trained
        for weights in encoder.model.parameters():
            if weights.dim() == 2:
                torch.nn.init.normal_(weights, 0.0, 0.05)
        return encoder, clicks

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
    encoder = TowerDualEncoder(
        towers, None, None, TokenBags(tokens, starts), TokenBags(tokens + groups, starts), 0.1
    )
    return encoder, clicks


def found_in_group(encoder, clicks):
    """Share of the queries whose best item is one they clicked."""
    queries, items = embed_all(encoder, "query", clicks.shape[0]), embed_all(encoder, "item", clicks.shape[1])
    best = (queries @ items.T).argmax(axis=1)
    return float(np.mean(clicks.toarray()[np.arange(len(best)), best]))


def test_a_transformer_learns_from_clicks_what_the_texts_do_not_say(transformer):
    encoder, clicks = transformer(chunk_tokens=400)
    before = found_in_group(encoder, clicks)
    history = train(
        encoder, clicks, RandomBatches(clicks.shape[0], 32), TrainingConfig(steps=60, learning_rate=3e-3)
    )
    assert before < 0.3
    assert found_in_group(encoder, clicks) > 0.9
    assert np.mean(history.losses[-5:]) < np.mean(history.losses[:5]) / 2


def test_cached_gradients_equal_the_gradients(transformer):
    def one_step(**how):
        encoder, clicks = transformer()
        config = TrainingConfig(steps=1, learning_rate=1e-3, **how)
        negatives = IndexNegatives(embed_all(encoder, "item", clicks.shape[1]), clicks)
        train(encoder, clicks, RandomBatches(clicks.shape[0], 24), config, negatives=negatives, seed=1)
        return {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}

    whole, cached = one_step(), one_step(graph_tokens=0)
    assert set(whole) == set(cached)
    assert len(whole) > 30
    for name, gradient in whole.items():
        torch.testing.assert_close(cached[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    assert max(gradient.abs().max() for gradient in whole.values()) > 1e-3


@pytest.mark.parametrize("kind", ["towers", "transformer"])
@pytest.mark.parametrize("recipe", ["plain", "mined and clustered"])
def test_a_resumed_run_ends_with_the_same_weights(kind, recipe, transformer, tmp_path):
    class KilledError(Exception):
        pass

    def run(folder, validate=None):
        encoder, clicks = transformer() if kind == "transformer" else towers_world()
        batches, negatives = RandomBatches(clicks.shape[0], 16), None
        if recipe != "plain":
            start = embed_all(encoder, "query", clicks.shape[0])
            batches = ClusteredBatches(start, 16, 12, cluster=4, refresh=3)
            negatives = IndexNegatives(embed_all(encoder, "item", clicks.shape[1]), clicks, refresh=3)
        config = TrainingConfig(
            steps=12, learning_rate=1e-3, validate_every=2, checkpoint_seconds=0, patience=99
        )
        history = train(
            encoder,
            clicks,
            batches,
            config,
            negatives=negatives,
            validate=validate,
            checkpoint=Checkpoint(folder, "run"),
            seed=2,
        )
        return copy_weights(encoder.module), history

    def validate(encoder):
        return -abs(encoder.log_scale.exp().item() - 7)

    calls = []

    def kill(encoder):
        calls.append(1)
        if len(calls) == 4:
            raise KilledError
        return validate(encoder)

    expected, straight = run(tmp_path / "straight", validate)
    with pytest.raises(KilledError):
        run(tmp_path / "killed", kill)
    found, resumed = run(tmp_path / "killed", validate)
    assert resumed == straight
    assert len(resumed.losses) == 12
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_the_checkpoint_of_another_run_or_a_damaged_one_is_ignored(tmp_path):
    encoder, clicks = towers_world()
    config = TrainingConfig(steps=3, checkpoint_seconds=0)
    train(encoder, clicks, RandomBatches(48, 16), config, checkpoint=Checkpoint(tmp_path / "c", "one"))
    optimizers = encoder.optimizers(1e-3)
    assert Checkpoint(tmp_path / "c", "two").read(encoder.module, optimizers) is None
    assert Checkpoint(tmp_path / "c", "one").read(encoder.module, optimizers)[0]["step"] == 3
    file = tmp_path / "c" / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert Checkpoint(tmp_path / "c", "one").read(encoder.module, optimizers) is None


def train_with_scores(scores, **options):
    """Train the towers with these validation scores; the encoder, its history, and the weights at each validation."""
    encoder, clicks = towers_world()
    seen, values = [], iter(scores)

    def validate(encoder):
        seen.append(copy_weights(encoder.module))
        return next(values)

    config = TrainingConfig(steps=100, learning_rate=1e-2, validate_every=2, patience=3, **options)
    return encoder, train(encoder, clicks, RandomBatches(48, 16), config, validate=validate), seen


def test_early_stopping_keeps_the_weights_of_the_best_validation():
    encoder, history, seen = train_with_scores([1.0, 5.0, 2.0, 2.0, 2.0, 9.0])
    assert history.validation == [(0, 1.0), (2, 5.0), (4, 2.0), (6, 2.0), (8, 2.0)]
    assert len(history.losses) == 8
    for name, array in copy_weights(encoder.module).items():
        np.testing.assert_array_equal(array, seen[1][name])
        assert not np.array_equal(array, seen[4][name])


def test_what_does_not_help_ends_with_the_weights_of_the_start():
    encoder, history, seen = train_with_scores([5.0, 1.0, 1.0, 1.0])
    assert [step for step, _ in history.validation] == [0, 2, 4, 6]
    for name, array in copy_weights(encoder.module).items():
        np.testing.assert_array_equal(array, seen[0][name])


def test_the_start_is_not_kept_where_it_may_not_be():
    encoder, history, seen = train_with_scores([4.0, 5.0, 1.0, 1.0, 1.0], keep_start=False)
    assert history.validation == [(2, 4.0), (4, 5.0), (6, 1.0), (8, 1.0), (10, 1.0)]
    for name, array in copy_weights(encoder.module).items():
        np.testing.assert_array_equal(array, seen[1][name])


def test_it_ends_after_so_many_steps_and_validates_there():
    _, history, _ = train_with_scores([1.0, 2.0, 3.0], stop_after=3)
    assert (len(history.losses), history.validation) == (3, [(0, 1.0), (2, 2.0), (3, 3.0)])
    encoder, clicks = towers_world()
    whole = TrainingConfig(steps=100, learning_rate=1e-2)
    short = whole.model_copy(update={"stop_after": 5})
    losses = train(encoder, clicks, RandomBatches(48, 16), short).losses
    again, _ = towers_world()
    assert losses == train(again, clicks, RandomBatches(48, 16), whole).losses[:5], (
        "with the same learning rates"
    )


def test_rows_keep_their_order_whatever_their_length(transformer):
    encoder, _ = transformer(chunk_tokens=12)
    rows = np.array([7, 0, 3, 55, 12])
    together = embed_all(encoder, "item", rows)
    for row, vector in zip(rows, together, strict=True):
        np.testing.assert_allclose(embed_all(encoder, "item", np.array([row]))[0], vector, atol=1e-5)


def test_processes_that_resume_from_different_steps_do_not_wait_for_each_other(monkeypatch):
    processes = Processes()
    processes.check_same_step(7)  # one process has nobody to differ from
    processes.several = True

    def other_process_at_step_4(ends, operation):
        assert operation == torch.distributed.ReduceOp.MAX
        ends.copy_(torch.maximum(ends, torch.tensor([4, -4])))

    monkeypatch.setattr(torch.distributed, "all_reduce", other_process_at_step_4)
    processes.check_same_step(4)
    for step, steps in ((0, "0 to 4"), (9, "4 to 9")):
        with pytest.raises(MetaxcError, match=f"steps {steps}"):
            processes.check_same_step(step)
