import numpy as np
import torch
from scipy.sparse import csr_array
from torch.nn import functional

from metaxc.data.clicks import click_mask, draw_clicks
from metaxc.encoders.adapter import AdapterConfig, embed_with, train_towers
from metaxc.encoders.tokens import TokenBags
from metaxc.encoders.towers import Tower, TwoTowers
from metaxc.encoders.training.losses import contrastive_loss


def test_an_untrained_tower_is_the_frozen_encoder():
    x = functional.normalize(torch.randn(3, 8), dim=1)
    tower = Tower(10, 8).eval()
    out = tower(x, torch.tensor([1, 2, 3]), torch.tensor([0, 1, 1]))
    torch.testing.assert_close(out, x)


def test_the_bag_is_the_mean_of_the_tokens_and_empty_bags_add_nothing():
    tower = Tower(3, 2, base=False).eval()
    with torch.no_grad():
        tower.table.copy_(torch.tensor([[1.0, 0], [0, 1], [3, 4]]))
    out = tower(None, torch.tensor([0, 1, 2]), torch.tensor([0, 2, 3]))
    torch.testing.assert_close(out, torch.tensor([[0.5**0.5, 0.5**0.5], [0.6, 0.8], [0.0, 0.0]]))


def test_loss_leaves_true_pairs_out_of_the_negatives():
    queries = functional.normalize(torch.tensor([[1.0, 0.2], [0.9, 0.4]]), dim=1)
    items = functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1]]), dim=1)
    scale = torch.tensor(20.0)
    all_clicked = torch.ones(2, 2, dtype=torch.bool)
    assert contrastive_loss(queries, items, scale, all_clicked).item() == 0.0
    only_own = torch.eye(2, dtype=torch.bool)
    logits = 20 * queries @ items.T
    target = torch.arange(2)
    expected = (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2
    torch.testing.assert_close(contrastive_loss(queries, items, scale, only_own), expected)


def test_popular_items_are_excused_only_where_items_compete():
    queries = functional.normalize(torch.tensor([[1.0, 0.2], [0.1, 1.0]]), dim=1)
    items = functional.normalize(torch.tensor([[1.0, 0.0], [0.5, 1.0]]), dim=1)
    popularity = torch.tensor([0.0, 3.0])
    logits = 5 * queries @ items.T
    target = torch.arange(2)
    expected = functional.cross_entropy(logits - popularity, target) + functional.cross_entropy(
        logits.T, target
    )
    found = contrastive_loss(queries, items, torch.tensor(5.0), torch.eye(2, dtype=torch.bool), popularity)
    torch.testing.assert_close(found, expected / 2)


def test_clicked_pairs_of_a_batch():
    clicks = csr_array(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]], np.float32))
    mask = click_mask(clicks, np.array([2, 0]), np.array([2, 1, 2, 0]))
    assert mask.tolist() == [[True, False, True, False], [True, False, True, True]]


def test_one_click_each_draws_every_click_in_time_and_no_other():
    clicks = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0]], np.float32))
    random = np.random.default_rng(0)
    drawn = np.stack([draw_clicks(clicks, np.array([0, 1]), random) for _ in range(50)])
    assert set(drawn[:, 0]) == {0, 2}
    assert set(drawn[:, 1]) == {1}


def group_world(groups=8, each=6):
    """Queries carry token g, items token groups + g; group g clicks group g."""
    tokens = np.repeat(np.arange(groups), each).astype(np.int32)
    starts = np.arange(groups * each + 1)
    clicks = csr_array(np.kron(np.eye(groups), np.ones((each, each))).astype(np.float32))
    return TokenBags(tokens, starts), TokenBags(tokens + groups, starts), clicks


def test_training_brings_clicked_texts_together():
    queries, items, clicks = group_world()
    towers = TwoTowers(16, 32, base=False)
    with torch.no_grad():
        towers.query.table.normal_(generator=torch.Generator().manual_seed(0))
        towers.item.table.normal_(generator=torch.Generator().manual_seed(1))
    config = AdapterConfig(epochs=60, batch=24, learning_rate=0.02, token_dropout=0.0)
    train_towers(None, None, queries, items, clicks, config, towers=towers)
    scores = embed_with(towers.query, None, queries) @ embed_with(towers.item, None, items).T
    best = scores.argmax(axis=1) // 6
    assert best.tolist() == np.repeat(np.arange(8), 6).tolist()


def test_same_seed_same_towers():
    queries, items, clicks = group_world()
    base = np.random.default_rng(0).normal(size=(48, 16)).astype(np.float32)

    def trained(seed):
        torch.manual_seed(0)
        config = AdapterConfig(epochs=2, batch=16)
        towers = train_towers(base, base, queries, items, clicks, config, towers=TwoTowers(16, 16), seed=seed)
        return embed_with(towers.query, base, queries)

    np.testing.assert_array_equal(trained(3), trained(3))
    assert not np.array_equal(trained(3), trained(4))
