"""`metaxc train DATA --keep-items MODEL`, as a user types it."""

import json

import numpy as np
import pytest
from commands import run
from shifted_world import QUERIES, build_dataset, build_log, build_old_model, first_topics

from metaxc import Emmett
from metaxc.data import Dataset, write_folder
from metaxc.emmett.model_identity import item_fingerprint
from metaxc.errors import ConfigError


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keep")
    build_old_model(folder).save(folder / "old")
    dataset = build_dataset("new", range(QUERIES - 5), begin=1000.0)
    test = build_log("new", range(QUERIES - 5, QUERIES), len(dataset.items), 9000.0)
    write_folder(Dataset(dataset.items, dataset.train, test, dataset.novel), folder / "data")
    return folder


def test_the_new_model_answers_shifted_queries_with_the_old_items(place):
    result = run(
        "train", place / "data", "--keep-items", place / "old", "--out", place / "new", "--threads", "1",
        "--epochs", "400", "--expansion-queries", "0", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    old, new = Emmett.load(place / "old"), Emmett.load(place / "new")
    facts = json.loads(result.stdout)
    assert facts["keeps_items"]["item_side"] == item_fingerprint(old) == item_fingerprint(new)
    assert (first_topics(old, "new"), facts["keeps_items"]["chosen"]["extent"] > 0) == (0.0, True)
    assert first_topics(new, "new") == 1.0
    np.testing.assert_array_equal(new.vectors[: len(old.items)], old.vectors)
    again = run(
        "train", place / "data", "--keep-items", place / "old", "--out", place / "new", "--threads", "1",
        "--epochs", "400", "--expansion-queries", "0",
    )  # fmt: skip
    assert again.exit_code == 0
    assert "already trained from these inputs" in again.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--generator", "gated"], "--generator"),
        (["--size", "fast"], "--size fast"),
        (["-K", "5"], "--neighbours"),
        (["--paper"], "--paper"),
        (["--encoder", "static"], "--encoder"),
        (["--fine-tuning", "0"], "--fine-tuning"),
    ],
)
def test_what_decides_the_items_is_refused(place, options, named):
    result = run("train", place / "data", "--keep-items", place / "old", "--out", place / "never", *options)
    assert isinstance(result.exception, ConfigError)
    assert "--keep-items keeps the item side" in result.exception.what
    assert named in str(result.exception.got)
    assert not (place / "never").exists()
