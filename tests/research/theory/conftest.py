"""A model whose quantities are known, and a small study that runs once for all tests."""

import pytest

from metaxc.classifiers import ridge
from metaxc.emmett import Calibration, Emmett
from metaxc.generators import Combine
from metaxc.research.theory import Study, run_study


@pytest.fixture(scope="session")
def tiny_study():
    return Study(
        dim=80, items=120, fewer=(60,), neighbours=(6,), depths=(2,), held_out=60, queries=500,
        held_out_queries=200, steps=4, seeds=2,
    )  # fmt: skip


@pytest.fixture(scope="session")
def arrays(world):
    data, encoder = world.dataset, world.encoder
    queries = encoder.encode_queries(data.train.queries.texts)
    return queries, encoder.encode_items(data.items.texts), data.train.clicks


@pytest.fixture(scope="session")
def rows(arrays, tiny_study):
    return run_study(*arrays, tiny_study)


@pytest.fixture(scope="session")
def model(world):
    data, encoder = world.dataset, world.encoder
    log = data.observed_log()
    observed = encoder.encode_items([data.items.texts[row] for row in data.observed_rows])
    classifiers = ridge(encoder.encode_queries(log.queries.texts), log.clicks)
    return Emmett(
        encoder,
        classifiers,
        observed,
        Combine(0.5, 0.1),
        data.items,
        data.observed_rows,
        neighbours=3,
        neighbour_prior=0.0,
        calibration=Calibration(novel_scale=2.0),
    )
