"""Constants are chosen on windows of time where times are known: there the past predicts the future."""

from dataclasses import replace

import numpy as np
import pytest

from metaxc.data import ClickLog, Dataset, Texts
from metaxc.encoders import Vectors
from metaxc.irene import Irene, IreneConfig
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
        model = Irene(CONFIG, encoder=encoder).fit(data, report=reported.append)
        return model.calibration.exposure, future.quality(model.search_rows(dataset.test.queries.texts)[0])

    by_time, then = fit(dataset)
    assert any("2 windows of time" in line for line in reported)
    at_random, chance = fit(without_times(dataset))
    assert sum("windows" in line for line in reported) == 1
    assert by_time > max(0.6, at_random + 0.2)
    assert then.precision > 3 > 1 > chance.precision  # what ranks first is new
    assert then.mean > chance.mean + 1


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
