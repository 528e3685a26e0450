"""How far the encoder is adapted to the clicks is chosen on the folds."""

import numpy as np
import pytest

from metaxc.artifacts import Stages
from metaxc.irene import IreneConfig
from metaxc.irene.training_run import TrainingRun
from metaxc.tuning import FittedFold

CONFIG = IreneConfig(encoder="pretrained", expansion_queries=0, folds=2)


class Blending:
    """An encoding whose frozen embeddings are noise, or know everything, and whose training did the other. What
    `learn` returns is the number of the fold; `adapt` notes how far it is applied."""

    extents, word_weights = (1.0, 0.5, 0.0), (0.0,)

    def __init__(self, world, frozen, trained):
        self.world, self.frozen, self.trained = world, frozen, trained
        self.learnt = []

    def learn(self, query_rows, item_rows, clicks, seed):
        self.learnt.append((query_rows, item_rows))
        return len(self.learnt)

    def adapt(self, encoder, extent, words=0.0):
        return extent

    def embed(self, extent, query_rows):
        queries = np.asarray(self.world.encoder.queries)[query_rows]
        blend = extent * self.trained + (1 - extent) * self.frozen
        return queries, (blend / np.linalg.norm(blend, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def worlds(world):
    """Item vectors that know which queries click them, and such that know nothing."""
    groups = np.repeat(np.arange(40), 5)
    queries = np.asarray(world.encoder.queries)[:800].reshape(40, 20, -1).mean(axis=1)
    noise = np.random.default_rng(0).normal(size=(200, queries.shape[1]))
    return queries[groups] + 0.02 * noise, noise


def run(world, encoding, tmp_path, config=CONFIG, report=lambda line: None):
    found = TrainingRun(config, world.dataset, Stages(tmp_path, report), world.encoder, None, None, "")
    found.__dict__["encoding"] = encoding
    return found


@pytest.mark.parametrize(("knows", "extent"), [("trained", 1.0), ("frozen", 0.0)])
def test_the_extent_at_which_items_are_found_best_is_taken(
    world, worlds, knows, extent, tmp_path, monkeypatch
):
    """Where training made of the frozen encoder something that does not carry over to new items, it is left out."""
    monkeypatch.setattr("metaxc.irene.constant_choice.HOPELESS", 100.0)
    good, bad = worlds
    encoding = Blending(world, *((bad, good) if knows == "trained" else (good, bad)))
    constants, trained = run(world, encoding, tmp_path).choose_constants()
    assert constants.adaptation == extent
    assert trained is None
    assert set(constants.adaptations) == {"1", "0.5", "0"}
    means = {
        name: np.mean([*found["zero_shot"].values(), *[found["generalized"][k] for k in ("P@1", "R@10")]])
        for name, found in constants.adaptations.items()
    }
    assert means[f"{extent:g}"] == max(means.values())
    assert means["1"] != pytest.approx(means["0"], abs=5)
    found = constants.pseudo_novel
    assert {name: found[name] for name in constants.adaptations["1"]} == constants.adaptations[f"{extent:g}"]
    assert found["queries"] > 0
    assert 0 <= found["standard_error"] <= 50 / found["queries"] ** 0.5
    assert len(encoding.learnt) == CONFIG.folds  # once per fold, not once per extent


@pytest.mark.parametrize(("knows", "hopeless"), [("trained", "0"), ("frozen", "1")])
def test_an_extent_whose_encoder_knows_nothing_is_not_fitted(world, worlds, knows, hopeless, tmp_path):
    good, bad = worlds
    encoding = Blending(world, *((bad, good) if knows == "trained" else (good, bad)))
    reported = []
    found = run(world, encoding, tmp_path, report=reported.append)
    constants, _ = found.choose_constants()
    assert hopeless not in constants.adaptations
    assert f"{constants.adaptation:g}" in constants.adaptations
    line = next(line for line in reported if line.startswith("adaptation by extent"))
    alone = {
        float(part.split(": ")[0]): float(part.split(": ")[1]) for part in line.split(": ", 1)[1].split(", ")
    }
    kept = {f"{extent:g}" for extent, quality in alone.items() if quality >= max(alone.values()) - 5}
    assert set(constants.adaptations) == kept


def test_where_all_are_alike_the_trained_one_is_taken(world, worlds, tmp_path):
    encoding = Blending(world, worlds[0], worlds[0])
    assert run(world, encoding, tmp_path).choose_constants()[0].adaptation == 1.0


@pytest.mark.parametrize(("given", "expected"), [(None, 1.0), (0.5, 0.5)])
def test_without_folds_it_is_what_was_given_or_as_trained(world, worlds, given, expected, tmp_path):
    config = CONFIG.model_copy(
        update={"folds": 0, "adapter": CONFIG.adapter.model_copy(update={"extent": given})}
    )
    constants, _ = run(world, Blending(world, *worlds), tmp_path, config).choose_constants()
    assert constants.adaptation == expected
    assert constants.pseudo_novel == {"skipped": "not asked for"}


def test_folds_on_disk_choose_the_same_constants_and_leave_nothing(world, worlds, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.irene.constant_choice.HOPELESS", 100.0)
    encoding = Blending(world, *worlds)
    config = CONFIG.model_copy(update={"expansion_queries": 1_000, "generator": "auto"})
    in_memory, _ = run(world, encoding, tmp_path / "memory", config).choose_constants()
    moved = []
    on_disk = FittedFold.on_disk

    def spy(self, folder):
        moved.append(on_disk(self, folder))
        assert all(isinstance(part, np.memmap) for part in (moved[-1].embeddings, moved[-1].queries))
        return moved[-1]

    monkeypatch.setattr(FittedFold, "on_disk", spy)
    monkeypatch.setattr("metaxc.irene.constant_choice.LARGE_FOLD", 0)
    chosen, _ = run(world, encoding, tmp_path / "disk", config).choose_constants()
    assert len(moved) == 6  # two folds, three extents
    assert chosen == in_memory
    assert sorted(file.name for file in (tmp_path / "disk" / "tune").iterdir()) == sorted(
        file.name for file in (tmp_path / "memory" / "tune").iterdir()
    )
    informing = moved[0].neighbour_classifiers.weights
    assert np.shares_memory(informing, moved[0].own_classifiers.weights)
