"""A part of a real data set, from the package to the table."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.data import ClickLog, Dataset, split, write_folder
from metaxc.data.sources import SOURCES

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

CODE = "from metaxc.cli.main import run; run()"


def smaller(dataset: Dataset, items: int, train: int, test: int) -> Dataset:
    """The most clicked items, and some of the queries that click them."""
    counts = np.bincount(dataset.train.clicks.indices, minlength=len(dataset.items))
    rows = np.sort(np.argsort(-counts, kind="stable")[:items])

    def part(log: ClickLog, most: int) -> ClickLog:
        clicks = csr_array(log.clicks[:, rows])
        kept = np.flatnonzero(np.diff(clicks.indptr) > 0)
        kept = np.sort(np.random.default_rng(0).permutation(kept)[:most])
        return ClickLog(log.queries.take(kept), csr_array(clicks[kept]))

    return Dataset(
        dataset.items.take(rows), part(dataset.train, train), part(dataset.test, test), name="part"
    )


def metaxc(*arguments):
    command = [sys.executable, "-c", CODE, *map(str, arguments), "--threads", "2", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    dataset, _ = split(smaller(SOURCES["icd10cm"].build(), 2000, 8000, 1500), novel=0.1, seed=7)
    folder = tmp_path_factory.mktemp("real") / "data"
    write_folder(dataset, folder)
    return folder


def test_beats_the_bare_encoder(data, tmp_path):
    metaxc("train", data, "--out", tmp_path / "model", "--folds", "1", "--cache", tmp_path / "cache")
    ours = metaxc(
        "evaluate", tmp_path / "model", data, "--baseline", "encoder", "--cache", tmp_path / "cache"
    )
    for setting, metric, gain in (
        ("zero_shot", "P@1", 3),
        ("zero_shot", "R@10", 3),
        ("generalized", "P@1", 15),
        ("generalized", "R@10", 15),
    ):
        assert ours[setting][metric] > ours["baseline"][setting][metric] + gain


def test_repeats_to_the_last_digit(data, tmp_path):
    """With token bags, which take a tenth of the time."""
    found = []
    for name in ("first", "again"):
        metaxc(
            "train", data, "--out", tmp_path / name, "--size", "fast", "--cache", tmp_path / f"{name}.cache"
        )
        result = metaxc("evaluate", tmp_path / name, data)
        for timed in (result, *result["baselines"].values()):
            timed.pop("seconds")
        found.append(result)
    assert found[0] == found[1]
