"""Constants are chosen on windows of time where times are known: there the past predicts the future."""

from dataclasses import replace

import numpy as np
import pytest

from metaxc.data import ClickLog, Dataset, Texts, folds
from metaxc.encoders import Vectors
from metaxc.irene import Irene, IreneConfig, training_run
from metaxc.tuning import Relevance

DAY = 86_400.0
TOPICS, GENERATIONS, NOVEL, DIM = 5, 60, 12, 24
CONFIG = IreneConfig(
    encoder="pretrained",
    folds=2,
    expansion_queries=0,
    meta_training={
        "neighbour_input": "embeddings"
    },  # no neighbour's clicks lift a novel item: only exposure does
)


def build_recency(seed):
    """A topic gets an item a day; nine of ten queries click one of the twelve newest items of their topic. Texts tell
    which items do not belong to a topic (they score below 0), and nothing of those that do (they score about 0). The
    items of the last twelve days are novel; the test queries are asked on the last day."""
    random = np.random.default_rng(seed)
    axes = np.linalg.qr(random.normal(size=(DIM, DIM)))[0].astype(np.float32)

    def noisy(vectors):
        return vectors + 0.05 * random.normal(size=vectors.shape).astype(np.float32)

    def ask(prefix, count, begin, end):
        days = np.sort(random.uniform(begin, end, count))
        topic = random.integers(0, TOPICS, count)
        newest = random.random(count) < 0.9
        back = np.where(newest, random.integers(0, NOVEL, count), random.integers(0, GENERATIONS, count))
        clicked = np.maximum(days.astype(np.int64) - back, 0) * TOPICS + topic
        names = [f"{prefix}{row}" for row in range(count)]
        log = ClickLog.of_events(
            Texts(names, names), TOPICS * GENERATIONS, np.arange(count), clicked, times=days * DAY
        )
        return log, noisy((axes[topic] - axes[:TOPICS].sum(axis=0)) / np.sqrt(TOPICS - 1))

    train, train_vectors = ask("q", 2_000, 3, GENERATIONS - NOVEL)
    test, test_vectors = ask("t", 400, GENERATIONS - 1, GENERATIONS)
    rows = np.arange(TOPICS * GENERATIONS)
    names = [f"i{row}" for row in rows]
    items = Texts(names, names, (rows // TOPICS * DAY + rows).astype(np.int64))
    dataset = Dataset(items, train, test, rows >= TOPICS * (GENERATIONS - NOVEL), name="recency")
    encoder = Vectors(
        [*train.queries.ids, *test.queries.ids],
        np.concatenate([train_vectors, test_vectors]),
        names,
        noisy(axes[rows % TOPICS]),
    )
    return dataset, encoder


def without_times(dataset):
    return replace(
        dataset,
        items=Texts(dataset.items.ids, dataset.items.texts),
        train=replace(dataset.train, times=None),
    )


@pytest.mark.parametrize("seed", [0, 2])
def test_windows_of_time_see_that_new_items_are_wanted_and_random_folds_do_not(seed):
    dataset, encoder = build_recency(seed)
    future = Relevance(dataset.test.clicks, dataset.novel, np.zeros(len(dataset.items)))
    reported = []

    def fit(data):
        # Nothing is given up for novel items: what is chosen is what the folds take for accurate.
        model = Irene(CONFIG, encoder=encoder, exposure_cost=0.0).fit(data, report=reported.append)
        return model.calibration.exposure, future.quality(model.search_rows(dataset.test.queries.texts)[0])

    by_time, then = fit(dataset)
    assert any("2 windows of time" in line for line in reported)
    at_random, chance = fit(without_times(dataset))
    assert sum("windows" in line for line in reported) == 1
    assert by_time > at_random + 0.1
    assert then.precision > 2 > 1 > chance.precision  # what ranks first is new
    assert then.mean > chance.mean + 15


def build_revival(seed):
    """Old items become wanted again: all items are equally old and have equally many clicks, and a topic's queries
    click whichever of its items was clicked in the weeks before; each item has its season. Texts tell nothing but the
    topic, and the novel items are new ones that a fifth of the queries want."""
    random = np.random.default_rng(seed)
    axes = np.linalg.qr(random.normal(size=(DIM, DIM)))[0].astype(np.float32)
    seasons, days = 30, 300
    rows = np.arange(TOPICS * (seasons + 6))
    season_of, topic_of = rows // TOPICS, rows % TOPICS

    def ask(prefix, count, begin, end):
        when = np.sort(random.uniform(begin, end, count))
        topic = random.integers(0, TOPICS, count)
        season = np.clip(
            (when / days * seasons).astype(np.int64) - random.integers(0, 2, count), 0, seasons - 1
        )
        newest = random.random(count) < 0.2
        season = np.where(newest, seasons + np.minimum(6 * when // days, 5).astype(np.int64), season)
        names = [f"{prefix}{row}" for row in range(count)]
        log = ClickLog.of_events(
            Texts(names, names), len(rows), np.arange(count), season * TOPICS + topic, times=when * DAY
        )
        return log, axes[topic] + 0.05 * random.normal(size=(count, DIM)).astype(np.float32)

    train, train_vectors = ask("q", 6_000, 0, 0.9 * days)
    test, test_vectors = ask("t", 400, 0.9 * days, 0.93 * days)
    names = [f"i{row}" for row in rows]
    born = np.where(season_of < seasons, 0, (season_of - seasons) / 6 * days) * DAY
    items = Texts(names, names, (born + rows).astype(np.int64))
    dataset = Dataset(items, train, test, season_of == seasons + 5, name="revival")
    encoder = Vectors(
        [*train.queries.ids, *test.queries.ids],
        np.concatenate([train_vectors, test_vectors]),
        names,
        axes[topic_of] + 0.05 * random.normal(size=(len(rows), DIM)).astype(np.float32),
    )
    return dataset, encoder


def test_what_was_clicked_lately_is_ranked_before_what_was_clicked_long_ago(monkeypatch):
    dataset, encoder = build_revival(0)
    future = Relevance(dataset.test.clicks, dataset.novel, np.zeros(len(dataset.items)))

    def fit():
        model = Irene(CONFIG, encoder=encoder).fit(dataset)
        return model, future.quality(model.search_rows(dataset.test.queries.texts)[0])

    fresh, by_age = fit()
    assert fresh.calibration.freshness_days is not None
    lately = fresh.classifiers.ages < 20
    assert 0 < lately.sum() < len(lately) / 2
    share = fresh.vectors[fresh.observed, -1]
    assert share[lately].min() > share[~lately].max()
    monkeypatch.setattr(training_run, "days_since_last_click", lambda clicks, times: None)
    monkeypatch.setattr(folds, "days_since_last_click", lambda *given: None)
    ageless, by_clicks = fit()
    assert ageless.calibration.freshness_days is None
    assert by_age.mean > by_clicks.mean + 4


def test_other_times_are_other_inputs():
    """A kept run is not continued with constants that were chosen on other windows."""
    dataset, encoder = build_recency(0)
    irene = Irene(CONFIG, encoder=encoder)
    later = replace(dataset, train=replace(dataset.train, times=dataset.train.times + DAY))
    seen = dataset.items.first_seen
    older = replace(
        dataset, items=Texts(dataset.items.ids, dataset.items.texts, np.roll(seen, 1).astype(np.int64))
    )
    inputs = {irene.inputs(data) for data in (dataset, later, older, without_times(dataset))}
    assert len(inputs) == 4
    assert irene.inputs(dataset) in inputs
