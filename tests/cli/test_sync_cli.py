"""`metaxc sync` and `metaxc search --via` on the command line."""

import json

import pytest
from commands import run
from world_model import build_model

from metaxc.emmett import Calibration


@pytest.fixture(scope="module")
def model(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    build_model(world, calibration=Calibration(novelty_prior=3.0, exposure=0.1)).save(folder)
    return folder


@pytest.fixture
def catalog(model, tmp_path):
    created = run("catalog", "create", tmp_path / "catalog", model)
    assert created.exit_code == 0, created.output
    return tmp_path / "catalog"


def test_a_catalog_is_synchronised_searched_switched_and_rolled_back(catalog, model, tmp_path):
    url = f"parquet://{tmp_path}/vectors"
    first = run("sync", catalog, "--to", url, "--json")
    assert json.loads(first.stdout)["upserted"] == 200
    # With the text of an item that has clicks: the vector of another novel item would be equal, and the order a tie.
    assert "1 added" in run("catalog", "add", catalog, model, "i1", "--id", "new").output
    assert "1 written, 0 deleted; metaxc_items_1 is equal" in run("sync", catalog, "--to", url).output

    rankings = []
    for exposure in ("-0.6", "0.9"):
        options = ("t0", "-k", "5", "--exposure", exposure, "--json")
        found = run("search", model, *options, "--via", url)
        wanted = run("catalog", "search", catalog, model, *options)
        ids = [[hit["id"] for hit in json.loads(one.stdout)["answers"][0]["hits"]] for one in (found, wanted)]
        assert ids[0] == ids[1]
        rankings.append(ids[0])
    assert rankings[0] != rankings[1]
    assert "new" in rankings[1]

    switched = run("sync", catalog, "--to", url, "--cutover", "--sample", "20", "--model", model)
    assert "metaxc_items_2 is equal to the catalog as of write 2; recall@10 1.000" in switched.output
    assert "rolled back to metaxc_items_1" in run("sync", catalog, "--to", url, "--rollback").output


def test_slips_are_refused(catalog, model, tmp_path):
    url = f"parquet://{tmp_path}/vectors"
    assert "Invalid value for --min-recall" in str(
        run("sync", catalog, "--to", url, "--min-recall", "2").exception
    )
    assert "stands alone" in str(run("sync", catalog, "--to", url, "--rollback", "--cutover").exception)
    assert "--novel with --via" in str(run("search", model, "t0", "--novel", "--via", url).exception)
    assert "Not a URL of a vector store" in str(run("sync", catalog, "--to", "vectors").exception)
