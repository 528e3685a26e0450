"""The study on data with a known answer."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.errors import DataError
from metaxc.generators import PostNormTransformer
from metaxc.research.theory import Study
from metaxc.research.theory.study import CartesianPairs, ClickedAndRandomPairs, RandomPairs
from metaxc.research.theory.study_training import (
    balanced_risk,
    build_generator,
    recall_at_10,
    sample_study_data,
    train_and_measure,
)


def test_one_thing_changes_at_a_time(tiny_study):
    base, *others = tiny_study.settings()
    for setting in others:
        fields = vars(base)
        assert sum(vars(setting)[name] != value for name, value in fields.items()) == 1
    assert len(set(tiny_study.settings())) == len(tiny_study.settings())


def test_every_setting_with_every_seed(rows, tiny_study):
    assert [(row.setting, row.seed) for row in rows] == [
        (setting, seed) for seed in (0, 1) for setting in tiny_study.settings()
    ]


def test_held_out_items_and_queries_are_not_trained_on(arrays, tiny_study):
    world = sample_study_data(*arrays, tiny_study, 0)
    shapes = [world.queries, world.new_queries, world.items, world.new_items]
    assert [len(one) for one in shapes] == [500, 200, 120, 60]
    assert world.clicks.shape == (500, 120)
    assert world.new_clicks.shape == (200, 60)
    assert not (world.items @ world.new_items.T > 0.99999).any()
    assert not (world.queries @ world.new_queries.T > 0.99999).any()
    assert np.linalg.norm(world.items, axis=1) == pytest.approx(1.0)


def test_training_succeeds_and_generalizes_to_novel_items(arrays, tiny_study):
    study = replace(tiny_study, steps=40)
    row = train_and_measure(sample_study_data(*arrays, study, 0), study.settings()[0], study, 0)
    assert row.recall > 80, "embeddings alone know nothing: 10 of 60 would be 17"
    assert row.new_risk < log(2) / 2
    assert row.gap == row.new_risk - row.train_risk


def test_the_papers_generator_succeeds_too(arrays, tiny_study):
    study = replace(tiny_study, steps=60, generator="post_norm")
    generator, head = build_generator(study, depth=2)
    assert isinstance(generator, PostNormTransformer)
    assert generator.depth == 2
    assert head.log_scale.exp().item() == pytest.approx(10 / 80**0.5)
    row = train_and_measure(sample_study_data(*arrays, study, 0), study.settings()[0], study, 0)
    assert row.recall > 80, "embeddings alone know nothing: 10 of 60 would be 17"
    assert row.new_risk < log(2) / 2
    assert row.norms["U"] > 5, "a layer norm of 80 dimensions, without a path around it"


def test_frozen_classifiers_stay_and_trainable_ones_change(rows, tiny_study):
    frozen = next(row for row in rows if row.setting == tiny_study.settings()[0])
    trained = next(row for row in rows if not row.setting.frozen)
    assert frozen.norms["W"] == pytest.approx(1.0, rel=1e-5)
    assert trained.norms["W"] != pytest.approx(1.0, rel=1e-5)


def test_training_is_reproducible(arrays, rows, tiny_study):
    again = train_and_measure(
        sample_study_data(*arrays, tiny_study, 1), tiny_study.settings()[0], tiny_study, 1
    )
    assert again == next(row for row in rows if row.seed == 1)


def test_a_study_too_large_for_the_data_is_an_error(arrays):
    with pytest.raises(DataError, match="too small"):
        sample_study_data(*arrays, Study(), 0)


def test_balanced_risk_by_hand():
    logits = torch.tensor([0.0, 0.0, 0.0, 2.0])
    clicked = torch.tensor([True, False, False, False])
    rest = (2 * log(2) + float(np.log1p(np.exp(2)))) / 3
    assert float(balanced_risk(logits, clicked)) == pytest.approx((log(2) + rest) / 2)
    assert float(balanced_risk(logits[1:3], clicked[1:3])) == pytest.approx(log(2))


def test_recall_by_hand():
    made = np.eye(12, dtype=np.float32)
    queries = np.stack([np.arange(12, 0, -1), np.arange(12, 0, -1), np.ones(12)]).astype(np.float32)
    clicks = np.zeros((3, 12), dtype=np.float32)
    clicks[0, [0, 11]] = 1  # the best and the last: half found
    clicks[1, 3] = 1
    assert recall_at_10(queries, made, csr_array(clicks)) == pytest.approx(75.0)


def test_samples_of_pairs():
    dense = np.zeros((50, 20), dtype=np.float32)
    dense[np.arange(40), np.arange(40) % 20] = 1
    clicks = csr_array(dense)
    whole = CartesianPairs(clicks, np.random.default_rng(0)).all_pairs()
    assert (whole.clicked == (dense > 0)).all()
    drawn = RandomPairs(clicks, np.random.default_rng(0)).all_pairs()
    assert (drawn.queries == np.arange(50)).all()
    assert (drawn.clicked == (dense[drawn.queries, drawn.items] > 0)).all()
    both = ClickedAndRandomPairs(clicks, np.random.default_rng(0))
    assert len(both.all_pairs().queries) == 90, "40 clicks and 50 others"
    assert both.all_pairs().clicked[:40].all()
    part = both.draw()
    assert (part.clicked == (dense[part.queries, part.items] > 0)).all()
    x, u = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.allclose(part.scores(x, u), (x @ u.T).diagonal(), atol=1e-6)
