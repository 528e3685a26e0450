"""Training on episodes, in worlds whose right answer is known."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn import functional

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
    _Clustered,
    clustered_order,
    ranking_loss,
    weighted_cross_entropy,
)

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


def test_batches_of_the_papers_loss_are_clusters_of_near_items():
    """Sixteen groups of eight equal items: a batch of two clusters has few of them, one of chance nearly all."""
    random = np.random.default_rng(0)
    group = random.permutation(np.repeat(np.arange(16), 8))
    items = (np.eye(16)[group] + 0.01 * random.normal(size=(128, 16))).astype(np.float32)
    clicks = csr_array(np.eye(128, dtype=np.float32))
    near = np.zeros((128, 1), np.int64)
    episode = Episode(items, items, clicks, items[:1], near, np.ones((128, 1), np.float32))
    source = _Clustered(episode, GeneratorTraining(loss="cross_entropy", batch=16, cluster=8))
    batches = source.epoch(random)
    assert sorted(np.concatenate(batches)) == list(range(128))
    assert np.mean([len(set(group[rows])) for rows in batches]) < 8  # by chance: 10.6
