"""A model, its report and a tiny data set, shared by the tests of the report."""

import numpy as np
import pytest

from metaxc.data import ClickLog, Dataset, Texts, click_matrix
from metaxc.irene import Irene, IreneConfig
from metaxc.research.report import build_report, collect_provenance, render_page


@pytest.fixture(scope="session")
def model(world):
    return Irene(IreneConfig(encoder="pretrained"), encoder=world.encoder).fit(world.dataset)


@pytest.fixture(scope="session")
def report(world, model):
    return build_report(model, world.encoder, world.dataset)


@pytest.fixture(scope="session")
def page(report, model, world):
    return render_page(report, collect_provenance(model, world.dataset, "metaxc report M D --out r.html"))


@pytest.fixture
def tiny():
    """Items 0 to 3 observed with 4, 3, 2 and 1 clicks, 4 and 5 novel. Test: a clicked 0 and 4, b 5, c 1 and 3."""
    names = [f"i{i}" for i in range(6)]
    texts = ["one", "one two", "one two", "one two three", "one", "one two three"]

    def log(queries, pairs):
        rows, items = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
        return ClickLog(Texts(list(queries), list(queries)), click_matrix(rows, items, (len(queries), 6)))

    train = log("stuv", [(q, i) for i, n in enumerate([4, 3, 2, 1, 1]) for q in range(n)])
    test = log("abc", [(0, 0), (0, 4), (1, 5), (2, 1), (2, 3)])
    return Dataset(Texts(names, texts), train, test, np.array([False] * 4 + [True] * 2), name="tiny")
