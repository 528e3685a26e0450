"""Training on episodes, in worlds whose right answer is known."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn import functional

from metaxc.encoders.training.batches import clustered_order
from metaxc.errors import ConfigError
from metaxc.generators import (
    Episode,
    Gated,
    GeneratorTraining,
    PostNormTransformer,
    ResidualTransformer,
    WeightedSum,
    gather,
    train_generator,
)
from metaxc.generators.generator_training import (
    NEAREST,
    _match_head,
    _Source,
    _validate,
    ranking_loss,
    weighted_cross_entropy,
)
from metaxc.training_loop import EarlyStopping

K = 3


def test_weighted_cross_entropy_by_hand():
    logits = torch.tensor([[2.0, -1.0]])
    clicked = torch.tensor([[True, False]])
    expected = 3 * functional.softplus(torch.tensor(-2.0)) + functional.softplus(torch.tensor(-1.0))
    torch.testing.assert_close(weighted_cross_entropy(logits, clicked, 3.0), expected)


def test_ranking_loss_by_hand():
    """Query 0 clicked items 0 and 1, and item 0 is to win: against item 2 alone."""
    logits = torch.tensor([[1.0, 9.0, 2.0], [0.0, 3.0, 1.0]])
    clicked = torch.tensor([[True, True, False], [False, True, False]])
    found = ranking_loss(logits, torch.tensor([0, 1]), clicked)
    first = torch.tensor([1.0, 2.0]).logsumexp(0) - 1.0
    second = torch.tensor([0.0, 3.0, 1.0]).logsumexp(0) - 3.0
    torch.testing.assert_close(found, (first + second) / 2)


def test_clustered_order_is_a_permutation_that_keeps_groups_together():
    random = np.random.default_rng(0)
    groups = np.repeat(np.eye(8), 16, axis=0) + 0.01 * random.normal(size=(128, 8))
    order = clustered_order(groups.astype(np.float32), 16, random)
    assert sorted(order) == list(range(128))
    runs = (np.diff(order // 16) != 0).sum()
    assert runs < 40  # a random order has about 112 changes of group
    assert order.tolist() != clustered_order(groups.astype(np.float32), 16, random).tolist()


@pytest.mark.parametrize("loss_kind", ["ranking", "cross_entropy"])
@pytest.mark.parametrize("kind", ["gated", "weighted_sum", "transformer", "post_norm"])
def test_training_learns_to_trust_the_neighbours(kind, loss_kind):
    """Embeddings are noise, classifiers of the same group point at the group's queries."""
    random = np.random.default_rng(0)
    groups, each, dim = 16, 8, 32
    axes = np.linalg.qr(random.normal(size=(dim, dim)))[0].astype(np.float32)
    group = np.repeat(np.arange(groups), each)
    queries = axes[group]
    classifiers = axes[group]
    z = random.normal(size=(groups * each, dim)).astype(np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    clicks = csr_array((group[:, None] == group[None, :]).astype(np.float32))
    near = np.stack(
        [np.flatnonzero((group == g) & (np.arange(len(group)) != i))[:K] for i, g in enumerate(group)]
    )
    scores = np.ones(near.shape, np.float32)
    make = {
        "gated": lambda: Gated(strength=0.1),
        "weighted_sum": lambda: WeightedSum(K),
        "transformer": lambda: ResidualTransformer(dim, strength=0.1),
        "post_norm": lambda: PostNormTransformer(dim),
    }[kind]
    torch.manual_seed(0)
    generator = make()

    config = GeneratorTraining(
        loss=loss_kind, epochs=60, batch=64, candidates=64, learning_rate=1e-2, most_steps=120
    )
    losses = train_generator(
        generator, [Episode(queries, z, clicks, classifiers, near, scores)], config
    ).losses
    assert len(losses) == 120
    assert np.mean(losses[-10:]) <= 0.7 * losses[0]
    made = generator.generate(z, gather(classifiers, near), scores)
    assert (group[(queries[::each] @ made.T).argmax(axis=1)] == np.arange(groups)).all()


GROUPS, EACH, DIM = 24, 8, 64


def groups_of_items(remembered, seed):
    """A world in groups: a query clicks the items of its group, and points along the group's axis.

    An item's neighbours know: their classifiers point along the axis, but for some noise. Its own embedding points
    along the axis where the encoder has `remembered` the item's clicks, and nowhere in particular where it has not.
    """
    random = np.random.default_rng(seed)
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(DIM, DIM)))[0][:GROUPS].astype(np.float32)
    group = np.repeat(np.arange(GROUPS), EACH)

    def unit(rows):
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    noise = unit(random.normal(size=(len(group), DIM)))
    items = axes[group] if remembered else noise
    classifiers = unit(axes[group] + 2.5 * unit(random.normal(size=(len(group), DIM))))
    near = np.stack([random.permutation(np.flatnonzero(group == g))[:5] for g in group])
    clicks = csr_array((np.arange(GROUPS)[:, None] == group[None, :]).astype(np.float32))
    return Episode(axes, items, clicks, classifiers, near, np.ones(near.shape, np.float32))


def right_at_one(generator, episode):
    """Share of the queries whose best item is of their group."""
    made = generator.generate(episode.items, gather(episode.classifiers, episode.neighbours), episode.scores)
    return ((episode.queries @ made.T).argmax(axis=1) // EACH == np.arange(GROUPS)).mean()


@pytest.mark.parametrize("make", [Gated, lambda: ResidualTransformer(DIM)], ids=["gated", "transformer"])
def test_items_that_the_encoder_remembers_teach_to_trust_the_embedding(make):
    """The leak: observed items are found by their embeddings alone, so nothing is learnt about the neighbours, who
    are all there is to know about a novel item. Items that the encoder has not seen teach it."""
    config = GeneratorTraining(epochs=400, batch=24, candidates=96, most_steps=200)
    novel = [groups_of_items(False, seed) for seed in range(3, 13)]
    found = {}
    for name, remembered in (("untrained", None), ("leaky", True), ("leak-free", False)):
        torch.manual_seed(0)
        generator = make()
        if remembered is not None:
            train_generator(generator, [groups_of_items(remembered, seed) for seed in (1, 2)], config)
        found[name] = np.mean([right_at_one(generator, episode) for episode in novel])
    assert found["leaky"] < found["untrained"] < 0.7
    assert found["leak-free"] > 0.9


def test_every_episode_is_learnt_from():
    """Two episodes that contradict each other meet in the middle; one alone is followed."""
    right, wrong = groups_of_items(False, 1), groups_of_items(False, 2)
    turned = Episode(
        right.queries, right.items, right.clicks, -wrong.classifiers, wrong.neighbours, wrong.scores
    )
    config = GeneratorTraining(epochs=100, batch=24, candidates=96, most_steps=200)
    strengths = {}
    for name, episodes in (("right", [right]), ("both", [right, turned])):
        learnt = train_generator(WeightedSum(5), episodes, config).generator
        strengths[name] = learnt.c[1:].sum().item()
    assert strengths["right"] > 1.3
    assert strengths["both"] < strengths["right"] - 0.3


def test_an_episode_without_some_queries_has_lost_their_clicks_only():
    episode = groups_of_items(False, 1)
    left = episode.without(np.arange(GROUPS) < 4).clicks.toarray()
    assert not left[:4].any()
    np.testing.assert_array_equal(left[4:], episode.clicks.toarray()[4:])


@pytest.mark.parametrize("make", [Gated, lambda: ResidualTransformer(DIM)], ids=["gated", "transformer"])
def test_an_item_without_neighbours_does_not_spoil_the_rest(make):
    episode = groups_of_items(False, 1)
    episode.neighbours[::7] = -1
    episode.scores[::7] = -np.inf
    config = GeneratorTraining(epochs=50, batch=24, most_steps=20)
    trained = train_generator(make(), [episode], config)
    assert np.isfinite(trained.losses).all()
    assert all(torch.isfinite(parameter).all() for parameter in trained.generator.parameters())


def test_classifiers_of_several_episodes_are_not_trained():
    config = GeneratorTraining(train_classifiers=True)
    with pytest.raises(ConfigError, match="several episodes"):
        train_generator(WeightedSum(5), [groups_of_items(False, seed) for seed in (1, 2)], config)


def test_batches_of_the_papers_loss_are_clusters_of_near_queries_that_grow():
    """Sixteen groups of eight equal queries: a batch of two clusters has few of them, one of chance nearly all."""
    random = np.random.default_rng(0)
    group = random.permutation(np.repeat(np.arange(16), 8))
    queries = (np.eye(16)[group] + 0.01 * random.normal(size=(128, 16))).astype(np.float32)
    clicks = csr_array(np.eye(128, dtype=np.float32))
    near = np.zeros((128, 1), np.int64)
    episode = Episode(queries, queries, clicks, queries[:1], near, np.ones((128, 1), np.float32))
    source = _Source(episode, GeneratorTraining(loss="cross_entropy", batch=16, cluster=8), seed=0)
    source.steps = 32
    passes = [list(source.epoch(random)) for _ in range(4)]
    for batches in passes:
        assert sorted(np.concatenate(batches)) == list(range(128))
    groups = [np.mean([len(set(group[rows])) for rows in batches]) for batches in passes]
    assert groups[0] > 9  # by chance: 10.6
    assert groups[-1] < 7


@pytest.mark.parametrize("best", [0, 2])
def test_the_weights_that_rank_held_out_items_best_are_kept(monkeypatch, best):
    """The quality is scripted: best at the start, or after the second of four validations."""
    module = sys.modules[train_generator.__module__]
    seen = []

    def measure(generator, held_out, classifiers):
        seen.append(generator.c.detach().clone())
        return 1.0 if len(seen) == best + 1 else 0.0

    monkeypatch.setattr(module, "_validate", measure)
    stopping = EarlyStopping(share=0.2, evaluations=4, least_steps=8)
    config = GeneratorTraining(epochs=1, batch=24, candidates=96, early_stopping=stopping)
    trained = train_generator(WeightedSum(5), [groups_of_items(False, 1)], config)
    assert (len(seen), len(trained.losses)) == (5, 8)
    assert len({tuple(weights.tolist()) for weights in seen}) == 5
    assert trained.generator.c.tolist() == seen[best].tolist()


def test_held_out_items_and_their_queries_teach_nothing():
    random = np.random.default_rng(0)
    dense = random.random((200, 60)) < 0.05
    dense[:, 0] |= ~dense.any(axis=1)
    names = np.arange(60, dtype=np.float32)[:, None]
    near = np.tile(np.arange(60)[:, None], (1, 2))
    episode = Episode(
        np.zeros((200, 1), np.float32),
        names,
        csr_array(dense.astype(np.float32)),
        names,
        near,
        names + np.arange(2, dtype=np.float32),
    )
    training, held = episode.hold_out(EarlyStopping(share=0.25), seed=0)
    assert held is not None
    kept, out = training.items[:, 0].astype(int), held.items[:, 0].astype(int)
    assert sorted([*kept, *out]) == list(range(60))
    assert len(out) == int(0.25 * dense.any(axis=0).sum())
    for part, items in ((training, kept), (held, out)):
        np.testing.assert_array_equal(part.neighbours[:, 0], items)
        np.testing.assert_array_equal(part.scores[:, 1], items + 1)
    validating = held.clicks.toarray().any(axis=1)
    assert 10 <= validating.sum() <= 50
    np.testing.assert_array_equal(held.clicks.toarray()[validating], dense[validating][:, out])
    np.testing.assert_array_equal(training.clicks.toarray(), dense[:, kept] & ~validating[:, None])


def test_too_few_items_to_hold_out_are_all_learnt_from():
    episode = groups_of_items(False, 1)
    assert episode.hold_out(EarlyStopping(share=0.01), seed=0) == (episode, None)
    config = GeneratorTraining(epochs=3, batch=24, early_stopping=EarlyStopping(share=0.01, least_steps=7))
    assert len(train_generator(WeightedSum(5), [episode], config).losses) == 7


def test_how_well_held_out_items_are_found_by_hand():
    """Three items, two queries: the first finds its item first, the second finds one of its two items, both in ten."""
    items = np.eye(3, dtype=np.float32)
    clicks = csr_array(np.float32([[1, 0, 0], [0, 1, 1], [0, 0, 0]]))
    queries = np.float32([[3, 2, 1], [3, 2, 1], [0, 0, 0]])
    nothing = np.full((3, 1), -1)
    episode = Episode(queries, items, clicks, items, nothing, np.full((3, 1), -np.inf, np.float32))
    assert _validate(WeightedSum(1), [episode], None) == pytest.approx((50 + 100) / 2)


def test_nearest_items_are_among_the_candidates():
    """Pairs of equal items: of each clicked item, its double is scored too."""
    random = np.random.default_rng(0)
    items = np.repeat(random.normal(size=(100, 8)), 2, axis=0).astype(np.float32)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    clicks = csr_array(np.eye(200, dtype=np.float32))
    episode = Episode(
        items, items, clicks, items, np.zeros((200, 1), np.int64), np.ones((200, 1), np.float32)
    )
    clicked = np.arange(0, 200, 20)
    alone, near = (
        _Source(episode, GeneratorTraining(candidates=0, near=near), seed=0) for near in (0, NEAREST)
    )
    assert alone.candidates(clicked, random).tolist() == clicked.tolist()
    often = np.concatenate([near.candidates(clicked, random) for _ in range(8)])
    assert set(clicked + 1) <= set(often)
    nearest = {*clicked, *near.nearest[clicked].ravel()} - {-1}
    assert set(often) <= nearest
    assert not (near.nearest == np.arange(200)[:, None]).any()


def test_the_head_matches_the_start():
    """Queries of length 3, meta-classifiers of length 5: cosines count 20 times, and the mean pair has the odds of C
    clicks for every pair without."""
    episode = groups_of_items(True, 1)
    long = replace(
        episode,
        queries=3 * episode.queries,
        items=5 * episode.items,
        neighbours=np.full_like(episode.neighbours, -1),
    )
    config = GeneratorTraining(
        loss="cross_entropy", batch=GROUPS, candidates=GROUPS * EACH, positive_weight=2.0
    )
    generator = WeightedSum(5)
    head = _match_head(generator, _Source(long, config, 0), 0)
    assert head.log_scale.exp().item() == pytest.approx(20 / 15)
    logits = head(torch.from_numpy(long.queries), torch.from_numpy(long.items)).detach()
    odds = 2 * (1 / GROUPS) / (1 - 1 / GROUPS)
    assert logits.mean().item() == pytest.approx(np.log(odds), abs=1e-4)


def test_weights_decay():
    episode = groups_of_items(False, 1)
    norms = []
    for decay in (0.0, 20.0):
        torch.manual_seed(0)
        config = GeneratorTraining(epochs=1000, batch=24, most_steps=30, adamw={"weight_decay": decay})
        trained = train_generator(ResidualTransformer(DIM), [episode], config).generator
        norms.append(trained.layers.layers[0].linear1.weight.norm().item())
    assert norms[1] < 0.9 * norms[0]


def test_the_control_learns_nothing_from_neighbours():
    """Embeddings are noise and neighbours know everything: the groups are found with them, and not without."""
    config = GeneratorTraining(epochs=400, batch=24, candidates=96, most_steps=60, learning_rate=2e-3)
    unseen = groups_of_items(False, 5)
    found = []
    for alone in (0, 1):
        torch.manual_seed(0)
        generator = ResidualTransformer(DIM, alone=alone)
        train_generator(generator, [groups_of_items(False, seed) for seed in (1, 2)], config)
        found.append(right_at_one(generator, unseen))
    assert found[0] > 0.8
    assert found[1] < 0.3


@pytest.mark.parametrize("stopping", [None, EarlyStopping()])
def test_no_passes_leave_the_start_as_it_is(stopping):
    episode = groups_of_items(False, 1)
    start = WeightedSum(5)
    before = start.c.detach().clone()
    config = GeneratorTraining(epochs=0, batch=24, candidates=96, early_stopping=stopping)
    trained = train_generator(start, [episode], config)
    torch.testing.assert_close(trained.generator.c.detach(), before)
    assert trained.losses == []
    assert not trained.generator.training
