import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers
from metaxc.emmett.scoring import item_vectors, query_vectors
from metaxc.index.topk import top_k
from metaxc.tuning import ENCODER_ALONE, FoldItems, Relevance, Setting, Shortlist, shortlists
from metaxc.tuning.calibration import BONUSES, LADDERS
from metaxc.tuning.qualities import DEPTH
from metaxc.tuning.shortlists import Calibration

any_setting = st.fixed_dictionaries({name: st.sampled_from(list(LADDERS[name].values())) for name in LADDERS})


def build(items, queries, novel, dim, seed, aged=False):
    """Queries, items and relevance of a random fold: a query clicks items near it; classifiers are noisy queries. Where
    it is `aged`, items were clicked up to 1,000 days ago."""
    random = np.random.default_rng(seed)

    def unit(count):
        made = random.normal(size=(count, dim)).astype(np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    texts, asked = unit(items), unit(queries)
    is_novel = np.arange(items) >= items - novel
    clicks = np.where(is_novel, 0, random.geometric(0.05, items))
    own = np.where(is_novel[:, None], 0, texts + unit(items)).astype(np.float32)
    direction = (texts + unit(items)).astype(np.float32)
    near = np.argsort(-(asked @ texts.T) + 0.2 * random.normal(size=(queries, items)), axis=1)[:, :2]
    relevant = csr_array(
        (np.ones(2 * queries, np.float32), (np.repeat(np.arange(queries), 2), near.ravel())),
        shape=(queries, items),
    )
    relevant.sort_indices()
    ages = np.where(is_novel, 0, 1_000 * random.random(items)).astype(np.float32) if aged else None
    classifiers = Classifiers(own, clicks, ages=ages)
    return asked, FoldItems(texts, direction, classifiers), Relevance(relevant, is_novel, clicks)


def setting_of(values):
    values = dict(values)
    strength = values.pop("strength")
    bonus = tuple(values.pop(name) for name in BONUSES)
    return Setting(Calibration(**values, exposure_bonus=bonus), strength)


def exact(queries, items, relevance, setting, response=1.0):
    """The quality of the ranking of all items, by the vectors that a model would search."""
    calibration = setting.calibration
    vectors = item_vectors(
        items.embeddings, items.generated(setting.strength), items.classifiers, calibration
    )
    return relevance.quality(
        top_k(query_vectors(queries, calibration.exposure * response), vectors, DEPTH)[0]
    )


def test_vectors_are_made_in_blocks_by_the_formula(monkeypatch):
    _, items, _ = build(100, 5, 20, 8, 0)
    setting = Setting(Calibration(own=2.0, novelty_prior=3.0, exposure=0.1), 0.7)
    whole = item_vectors(items.embeddings, items.generated(0.7), items.classifiers, setting.calibration)
    monkeypatch.setattr(shortlists, "ITEM_BLOCK", 7)
    np.testing.assert_array_equal(items.vectors(setting), whole)


def figures(found):
    return [*found.to_dict().values(), *found.by_clicks]


@settings(max_examples=60, deadline=None)
@given(any_setting, st.integers(3, 40), st.integers(0, 5), st.booleans())
def test_where_they_hold_every_item_they_rank_as_the_vectors_do(values, items, seed, aged):
    world = build(items, 12, items // 3, 6, seed, aged)
    setting = setting_of(values)
    found = Shortlist(*world).quality(setting)
    np.testing.assert_allclose(figures(found), figures(exact(*world, setting)), rtol=1e-9)


def test_the_exposure_of_each_query_is_multiplied_with_its_response():
    world = build(40, 12, 13, 6, 2)
    response = np.linspace(0.1, 3, 12, dtype=np.float32)
    setting = Setting(Calibration(exposure=0.5), 1.0)
    found = Shortlist(*world, response=response).quality(setting)
    expected = exact(*world, setting, response)
    np.testing.assert_allclose(figures(found), figures(expected), rtol=1e-9)
    assert expected.novel_share != exact(*world, setting).novel_share
    constant = Shortlist(*world, response=response).with_constant_exposure().quality(setting)
    np.testing.assert_allclose(figures(constant), figures(exact(*world, setting)), rtol=1e-9)


def test_of_many_items_they_hold_those_that_any_setting_ranks_first():
    """Over all values of the ladders; a strongly negative exposure, which no probe has, is where they are off most."""
    world = build(2_000, 300, 200, 24, 0)
    shortlist = Shortlist(*world)
    assert shortlist.rows.shape == (300, 163)  # of 2,000
    random = np.random.default_rng(0)
    off, novel_off = [], []
    for _ in range(150):
        values = {name: float(random.choice(list(ladder.values()))) for name, ladder in LADDERS.items()}
        small = abs(values["exposure"]) < 0.5  # no larger one has a bonus
        values |= {name: float(random.choice([-0.3, 0.0, 0.5])) if small else 0.0 for name in BONUSES}
        setting = setting_of(values)
        found, expected = shortlist.quality(setting), exact(*world, setting)
        if values["exposure"] > -0.5:
            off.append(abs(found.mean - expected.mean))
            novel_off.append(abs(found.novel - expected.novel))
    assert len(off) > 80
    assert max(off) < 0.75
    assert max(novel_off) <= 2  # one of the 52 queries that clicked a novel item
    assert np.median(off) == 0


def test_of_many_items_they_hold_those_that_freshness_ranks_first(monkeypatch):
    queries, items, relevance = build(2_000, 300, 200, 24, 0, aged=True)

    def share_held(shortlist):
        shares = []
        for exposure, days in ((0.4, 100.0), (0.8, 100.0), (0.8, 300.0)):
            setting = Setting(Calibration(own=1.0, exposure=exposure, freshness_days=days), 0.5)
            first, _ = top_k(query_vectors(queries, exposure), items.vectors(setting), DEPTH)
            held = [np.isin(best, listed) for best, listed in zip(first, shortlist.rows, strict=True)]
            shares.append(np.mean(held))
        return min(shares)

    assert share_held(Shortlist(queries, items, relevance)) > 0.9985
    monkeypatch.setattr(shortlists, "_fresh_probes", lambda ages: [])
    assert share_held(Shortlist(queries, items, relevance)) < 0.997


def test_without_ages_the_exposure_follows_clicks_or_is_the_same_for_all():
    world = build(60, 20, 15, 6, 1, aged=True)
    ageless = build(60, 20, 15, 6, 1)
    by_clicks, by_age = (
        Setting(Calibration(exposure=0.3, freshness_days=days), 1.0) for days in (None, 50.0)
    )
    shortlist = Shortlist(*world)
    without = shortlist.without_ages()
    np.testing.assert_array_equal(figures(without.quality(by_clicks)), figures(exact(*ageless, by_clicks)))
    np.testing.assert_array_equal(figures(without.quality(by_age)), figures(exact(*ageless, by_age)))
    assert figures(shortlist.quality(by_age)) != figures(without.quality(by_age))


def test_blocks_of_queries_change_nothing(monkeypatch):
    world = build(60, 20, 15, 6, 1)
    settings_ = [ENCODER_ALONE, Setting(Calibration(exposure=0.3), 2.0)]
    at_once = [figures(Shortlist(*world).quality(one)) for one in settings_]
    monkeypatch.setattr(shortlists, "LEAST_QUERIES", 3)
    monkeypatch.setattr(shortlists, "BLOCK_SCORES", 60 * 3)
    monkeypatch.setattr(shortlists, "DEPTH_OF_PROBE", 5)
    in_blocks = Shortlist(*world)
    assert in_blocks.rows.shape[1] < 60
    monkeypatch.setattr(shortlists, "BLOCK_SCORES", 60 * 100)
    whole = Shortlist(*world)
    np.testing.assert_array_equal(in_blocks.rows, whole.rows)
    for one, expected in zip(settings_, at_once, strict=True):
        np.testing.assert_array_equal(figures(in_blocks.quality(one)), figures(whole.quality(one)))
        assert len(figures(whole.quality(one))) == len(expected)


def test_the_encoder_alone_ranks_by_texts():
    queries, items, relevance = build(30, 10, 10, 6, 2)
    ranked = np.argsort(-(queries @ items.embeddings.T), axis=1, kind="stable")[:, :DEPTH]
    found = Shortlist(queries, items, relevance).quality(ENCODER_ALONE)
    np.testing.assert_allclose(figures(found), figures(relevance.quality(ranked)))


def test_excluded_pairs_are_on_no_shortlist():
    queries, items, relevance = build(30, 10, 10, 6, 2)
    order = np.argsort(-(queries @ items.embeddings.T), axis=1, kind="stable")
    excluded = csr_array((np.ones(10, np.float32), (np.arange(10), order[:, 0])), shape=(10, 30))
    found = Shortlist(queries, items, relevance, excluded=excluded).quality(ENCODER_ALONE)
    np.testing.assert_allclose(figures(found), figures(relevance.quality(order[:, 1 : DEPTH + 1])))


def test_ties_go_to_the_item_that_comes_first():
    """Thirty items with one text: of the ten that are shown, the tenth item is the last."""
    texts = np.tile(np.array([[1.0, 0.0]], np.float32), (30, 1))
    nothing = np.zeros_like(texts)
    clicks = np.zeros(30, np.int64)
    relevant = csr_array(([1.0] * 5, ([0, 0, 1, 1, 2], [9, 10, 0, 29, 1])), shape=(3, 30))
    relevance = Relevance(relevant, np.ones(30, bool), clicks)
    found = Shortlist(texts[:3], FoldItems(texts, nothing, Classifiers(nothing, clicks)), relevance).quality(
        ENCODER_ALONE
    )
    # Only the second query clicked the first item.
    np.testing.assert_allclose([found.precision, found.recall], [100 / 3, 100 * np.mean([1 / 2, 1 / 2, 1])])


def test_few_items_are_scored_for_many_queries_at_once_and_many_for_few():
    assert shortlists.queries_at_once(1) == shortlists.BLOCK_SCORES
    assert shortlists.queries_at_once(shortlists.BLOCK_SCORES // 50) == 50
    assert shortlists.queries_at_once(10 * shortlists.BLOCK_SCORES) == shortlists.LEAST_QUERIES
