"""The shop as a data set folder, and a model trained on it once for all tests that only read it."""

import pytest
from commands import run

from metaxc.data import split, write_folder


@pytest.fixture(scope="session")
def small(tiny):
    """Options that train a small model of texts: token bags of the few words of `tiny`."""
    return ("--encoder", "static", "--base", tiny, "--epochs", "20", "--threads", "1")


@pytest.fixture(scope="session")
def shop_folder(shop, tmp_path_factory):
    """The split shop; no test writes into it."""
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_folder(split(shop, novel=0.15, test=0.2)[0], folder)
    return folder


@pytest.fixture(scope="session")
def shop_training(shop_folder, small, tmp_path_factory):
    """The folder of a model of `shop_folder`, which no test changes, and what training printed."""
    folder = tmp_path_factory.mktemp("models") / "model"
    result = run("train", shop_folder, "--out", folder, *small, "--json")
    assert result.exit_code == 0
    return folder, result
