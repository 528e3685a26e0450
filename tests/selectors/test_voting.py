import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaxc.classifiers.classifiers import normalize_rows
from metaxc.selectors import NearestSelector, Voters, max_votes
from metaxc.selectors.voting import OWN_TEXT, on_scale

GROUPS, SIZE, DIM = 6, 4, 24


@pytest.fixture(scope="module")
def groups():
    """Observed items in groups: keys along a group's text direction, classifiers along its query direction."""
    random = np.random.default_rng(0)
    axes = np.linalg.qr(random.normal(size=(DIM, DIM)))[0].astype(np.float32)

    def around(some):
        return normalize_rows(np.repeat(some, SIZE, axis=0) + 0.02 * random.normal(size=(GROUPS * SIZE, DIM)))

    text_axes, query_axes = axes[:GROUPS], axes[GROUPS : 2 * GROUPS]
    return around(text_axes), around(query_axes), text_axes, query_axes


def elected(groups, item, queries, k=4):
    keys, bank, text_axes, query_axes = groups
    items = text_axes[[item]]
    rows, scores = NearestSelector(keys).select(items, k)
    owner = np.zeros(len(queries), dtype=np.int64)
    return Voters.over(keys, bank).elect(items, rows, scores, query_axes[queries], owner), (rows, scores)


def test_one_revealed_query_pulls_in_its_group_though_the_text_says_another(groups):
    (rows, scores, voter), (own, _) = elected(groups, item=0, queries=[3], k=8)
    assert set(own[0, :4] // SIZE) == {0}
    assert sorted((rows[0] // SIZE).tolist()) == [0] * 4 + [3] * 4
    assert ((voter[0] == OWN_TEXT) == (rows[0] // SIZE == 0)).all()
    assert (np.diff(scores[0]) <= 0).all()


def test_every_voter_has_its_first_choice(groups):
    (rows, scores, voter), (_, own) = elected(groups, item=0, queries=[3, 5], k=3)
    assert sorted((rows[0] // SIZE).tolist()) == [0, 3, 5]
    np.testing.assert_allclose(scores[0], own[0, 0], rtol=1e-5)  # each counts as the text's best
    assert voter[0].tolist() == [OWN_TEXT, 0, 1]  # ties go to the text, then to the first query


def test_a_query_that_agrees_changes_nothing_but_order(groups):
    (rows, _, _), (own, _) = elected(groups, item=2, queries=[2], k=4)
    assert set(rows[0]) == set(own[0])


def test_no_revealed_query_is_the_nearest_selector_to_the_last_bit(groups):
    (rows, scores, voter), (own, own_scores) = elected(groups, item=1, queries=[])
    np.testing.assert_array_equal(rows, own)
    np.testing.assert_array_equal(scores, own_scores)
    assert (voter == OWN_TEXT).all()


def test_only_the_owner_is_touched(groups):
    keys, bank, text_axes, query_axes = groups
    rows, scores = NearestSelector(keys).select(text_axes[:3], 4)
    made, made_scores, _ = Voters.over(keys, bank).elect(
        text_axes[:3], rows, scores, query_axes[[4]], np.array([1])
    )
    for item in (0, 2):
        np.testing.assert_array_equal(made[item], rows[item])
        np.testing.assert_array_equal(made_scores[item], scores[item])
    assert 4 in made[1] // SIZE


def test_an_item_never_votes_for_itself(groups):
    keys, bank, _, query_axes = groups
    own = np.array([12])
    rows, scores = NearestSelector(keys).select(keys[own], 4, exclude_self=own)
    made, _, _ = Voters.over(keys, bank).elect(
        keys[own], rows, scores, query_axes[[3]], np.array([0]), exclude_self=own
    )
    assert 12 not in made[0]
    assert {13, 14, 15} <= set(made[0])


def test_fewer_observed_items_than_places():
    keys = np.eye(2, dtype=np.float32)
    rows, scores = NearestSelector(keys).select(keys[:1], 4)
    made, made_scores, voter = Voters.over(keys, keys).elect(keys[:1], rows, scores, keys[1:], np.array([0]))
    assert made.tolist() == [[0, 1, -1, -1]]
    np.testing.assert_allclose(made_scores[0, :2], [1, 1])
    assert np.isneginf(made_scores[0, 2:]).all()
    assert voter.tolist() == [[OWN_TEXT, 0, OWN_TEXT, OWN_TEXT]]


def test_a_known_election():
    rows, scores, voter = max_votes(
        np.array([[7, 8, 9]]),
        np.array([[0.9, 0.5, 0.1]], np.float32),
        np.array([0, 0]),
        np.array([[8, 4, 7], [5, 9, -1]]),
        np.array([[0.8, 0.3, 0.2], [0.6, 0.05, -np.inf]], np.float32),
    )
    assert rows.tolist() == [[7, 8, 5]]
    np.testing.assert_allclose(scores, [[0.9, 0.8, 0.6]], rtol=1e-6)
    assert voter.tolist() == [[OWN_TEXT, 0, 1]]


def test_mean_goes_to_mean_and_best_to_best():
    votes = np.array([[3.0, 2.0, 1.0, -np.inf]], np.float32)
    moved = on_scale(votes, np.array([1.0]), np.array([0.2]), np.array([0.8]))
    np.testing.assert_allclose(moved, [[0.8, 0.5, 0.2, -np.inf]], rtol=1e-6)


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(0, 4))
def test_looking_at_k_of_each_voter_is_exact(seed, k, voters):
    random = np.random.default_rng(seed)
    keys, bank = (random.normal(size=(15, 4)).astype(np.float32) for _ in range(2))
    items = random.normal(size=(1, 4)).astype(np.float32)
    queries = random.normal(size=(voters, 4)).astype(np.float32)
    rows, scores = NearestSelector(keys).select(items, k)
    found, given_scores, _ = Voters.over(keys, bank).elect(
        items, rows, scores, queries, np.zeros(voters, np.int64)
    )

    text = (items @ keys.T)[0].astype(np.float64)
    best = [text]
    for one in (queries @ bank.T).astype(np.float64):
        part = (one - one.mean()) / max(one.max() - one.mean(), 1e-6)
        best.append(text.mean() + (text.max() - text.mean()) * part)
    everyone = np.max(best, axis=0)
    np.testing.assert_allclose(given_scores[0], np.sort(everyone)[::-1][:k], atol=1e-4)
    np.testing.assert_allclose(everyone[found[0]], given_scores[0], atol=1e-4)
