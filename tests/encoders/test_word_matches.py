"""Word matches inside embeddings: rare words that two texts share make them similar, frequent ones do not."""

import numpy as np
import pytest
import torch

from metaxc.encoders.adapted import TwoTowers
from metaxc.encoders.tokens import TokenBags
from metaxc.encoders.word_matches import WEIGHTS, with_word_matches, word_directions

VOCABULARY, DIM = 200, 256


def bags(*texts):
    starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    return TokenBags(np.array([token for text in texts for token in text], np.int32), starts)


def directions(*texts):
    return word_directions([bags(*texts)], VOCABULARY, DIM)


def test_a_direction_is_as_long_as_its_word_is_rare():
    found = np.linalg.norm(directions((0, 1), (0, 1), (0, 2), (0, 0, 3)), axis=1)
    rare = [np.log(5 / (1 + count)) / np.log(5) for count in (4, 2, 1, 1, 0)]
    np.testing.assert_allclose(found[:5], rare, atol=1e-6)
    assert found[0] == 0  # it is in every text, however often in one of them
    assert found[4] == pytest.approx(1)  # it is in none: a word of items to come


def test_both_sides_have_the_same_directions_and_runs_agree():
    one, other = (directions((1, 2), (3,)) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    unit = one[4:40] / np.linalg.norm(one[4:40], axis=1, keepdims=True)
    assert np.abs(unit @ unit.T - np.eye(36)).max() < 0.3  # nearly orthogonal


@pytest.fixture
def world():
    """Frozen embeddings that know nothing; 50 queries and 50 items of two rare words, query i and item i share one."""
    random = np.random.default_rng(0)
    frozen = random.standard_normal((100, DIM)).astype(np.float32)
    frozen /= np.linalg.norm(frozen, axis=1, keepdims=True)
    queries = bags(*[(row, 150 + row % 10) for row in range(50)])
    items = bags(*[(row, 100 + row) for row in range(50)])
    return (frozen[:50], queries), (frozen[50:], items)


def first_answers(towers, world):
    queries, items = (
        tower.embed(*side) for tower, side in zip((towers.query, towers.item), world, strict=True)
    )
    return (queries @ items.T).argmax(axis=1)


def test_texts_that_share_a_rare_word_find_each_other(world):
    (_, queries), (_, items) = world
    towers = TwoTowers(VOCABULARY, DIM)
    words = word_directions([queries, items], VOCABULARY, DIM)
    assert (first_answers(towers, world) == np.arange(50)).mean() < 0.2
    matching = with_word_matches(towers, words, 1.0, *world)
    assert (first_answers(matching, world) == np.arange(50)).mean() > 0.9
    assert not towers.query.table.any(), "the towers that were given stay as they are"


def test_the_weight_is_a_share_of_what_is_there(world):
    towers = TwoTowers(VOCABULARY, DIM)
    with torch.no_grad():
        towers.item.out.bias.fill_(1.0)  # items are 16 times as long
    words = directions(*[(token,) for token in range(VOCABULARY)])
    changed = with_word_matches(towers, words, 0.5, *world)
    for tower, (frozen, some), there in ((changed.query, world[0], 1.0), (changed.item, world[1], 16.0)):
        batch = some.batch(np.arange(50))
        x = torch.from_numpy(frozen)
        without = tower.add_up(x, *batch) - tower.add_up(x, torch.empty(0, dtype=torch.int64), batch[1] * 0)
        assert float(without.detach().norm(dim=1).mean()) == pytest.approx(0.5 * there, rel=0.02)


def test_nothing_is_one_of_the_weights():
    assert WEIGHTS[0] == 0


def test_bigrams_have_no_direction_and_do_not_count_as_texts():
    bags = [TokenBags(np.array([0, 1, 5, 2, 3, 6], np.int32), np.array([0, 3, 6]))]  # 5 and 6 are bigrams
    plain = [TokenBags(np.array([0, 1, 2, 3], np.int32), np.array([0, 2, 4]))]
    found = word_directions(bags, 5, DIM, bigrams=2)
    assert found.shape == (7, DIM)
    np.testing.assert_array_equal(found[:5], word_directions(plain, 5, DIM))
    assert not found[5:].any()
    assert found[:5].any(axis=1).all()
