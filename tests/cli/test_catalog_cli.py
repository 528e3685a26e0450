import json
from dataclasses import replace

import pytest
from commands import run
from world_model import build_model

from metaxc.data import read_folder, write_folder
from metaxc.emmett import Calibration


@pytest.fixture(scope="module")
def model(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    build_model(world, calibration=Calibration(novelty_prior=3.0, exposure=0.1)).save(folder)
    return folder


@pytest.fixture
def catalog(model, tmp_path):
    created = run("catalog", "create", tmp_path / "catalog", model, "--observe-after", "2")
    assert created.exit_code == 0, created.output
    return tmp_path / "catalog"


def found(catalog, model, *options):
    answer = run("catalog", "search", catalog, model, "t0", "-k", "300", "--json", *options)
    return {hit["id"]: hit["state"] for hit in json.loads(answer.stdout)["answers"][0]["hits"]}


def test_an_item_is_added_clicked_undone_and_deleted(catalog, model):
    assert "1 added" in run("catalog", "add", catalog, model, "i4", "--id", "new", "--tag", "red").output
    assert found(catalog, model)["new"] == "novel"
    assert list(found(catalog, model, "--tag", "red")) == ["new"]
    clicked = json.loads(run("catalog", "click", catalog, model, "new", "q0", "--json").stdout)
    assert clicked["state"] == "clicked"
    assert "observed" in run("catalog", "click", catalog, model, "new", "q1").output
    assert found(catalog, model)["new"] == "observed"
    assert "is clicked and has 1 clicks" in run("catalog", "undo", catalog, model, clicked["number"]).output
    facts = json.loads(run("catalog", "about", catalog, "--json").stdout)
    assert facts["items"] == {"novel": 40, "clicked": 1, "observed": 160}
    assert facts["clicks"] == 1
    assert "1 deleted" in run("catalog", "delete", catalog, model, "new").output
    assert "new" not in found(catalog, model)


def test_the_exposure_of_a_search_raises_new_items(catalog, model):
    run("catalog", "add", catalog, model, "i4", "--id", "new")

    def scores(*options):
        answer = run("catalog", "search", catalog, model, "t0", "-k", "300", "--json", *options)
        return {hit["id"]: hit["score"] for hit in json.loads(answer.stdout)["answers"][0]["hits"]}

    default, raised = scores(), scores("--exposure", "0.6")
    assert raised["new"] - default["new"] == pytest.approx(0.6 - 0.1, abs=1e-5)
    assert json.loads(run("catalog", "about", catalog, "--json").stdout)["exposure"] == 0.1
    refused = run("catalog", "search", catalog, model, "t0", "--exposure", "1e9")
    assert "from -100 to 100" in str(refused.exception)


def test_a_file_of_items_is_added_completely_or_not_at_all(catalog, model, tmp_path):
    lines = [{"id": "a", "text": "i4", "tags": ["x"]}, {"id": "b", "text": "i9"}]
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert "2 added" in run("catalog", "add", catalog, model, "--file", tmp_path / "items.jsonl").output
    again = run("catalog", "add", catalog, model, "--file", tmp_path / "items.jsonl", "--json")
    assert json.loads(again.stdout) == {"added": 0, "unchanged": 0, "done_before": 2, "problems": 0}
    again = run("catalog", "add", catalog, model, "--file", tmp_path / "items.jsonl", "--again")
    assert "0 added, 2 unchanged" in again.output
    (tmp_path / "bad.jsonl").write_text('{"id": "c", "text": "i4"}\n{"id": "d"}\n')
    failed = run("catalog", "add", catalog, model, "--file", tmp_path / "bad.jsonl")
    assert failed.exit_code
    assert "line 2" in str(failed.exception)
    assert "c" not in found(catalog, model)


def test_snapshot_restore_export_and_check(catalog, model, tmp_path):
    run("catalog", "add", catalog, model, "i4", "--id", "new")
    run("catalog", "snapshot", catalog, tmp_path / "snapshot")
    run("catalog", "delete", catalog, model, "new")
    run("catalog", "restore", tmp_path / "snapshot", catalog, "--overwrite")
    assert "new" in found(catalog, model)
    assert "intact" in run("catalog", "check", catalog).output
    exported = run("catalog", "export", catalog, tmp_path / "out", "--format", "npy")
    assert "201 items" in exported.output
    assert "new" in json.loads((tmp_path / "out" / "ids.json").read_text())


def test_a_damaged_catalog_is_refused_until_its_loss_is_accepted(catalog, model):
    mark = next(catalog.glob("gen-*")) / "mark"
    mark.write_bytes(bytes(len(mark.read_bytes())))
    for command in (("check", catalog), ("search", catalog, model, "t0")):
        failed = run("catalog", *command)
        assert "damaged" in str(failed.exception)
        assert "--accept" in str(failed.exception)
    assert "accepted" in run("catalog", "check", catalog, "--accept").output
    assert found(catalog, model)


def test_migrate_moves_a_catalog_once(catalog, model, world, tmp_path):
    build_model(world, neighbours=2).save(tmp_path / "other")
    refused = run("catalog", "search", catalog, tmp_path / "other", "t0")
    assert "catalog migrate" in str(refused.exception)
    assert "migrated" in run("catalog", "migrate", catalog, tmp_path / "other").output
    assert "already" in run("catalog", "migrate", catalog, tmp_path / "other").output
    assert found(catalog, tmp_path / "other")


def test_an_item_without_an_id_is_refused(catalog, model):
    assert "--id" in str(run("catalog", "add", catalog, model, "a text").exception)


def test_items_and_clicks_are_exported_for_the_next_training(catalog, model, world, tmp_path):
    write_folder(replace(world.dataset, test=None, novel=None), tmp_path / "data")
    run("catalog", "add", catalog, model, "i4", "--id", "new", "--tag", "red")
    run("catalog", "click", catalog, model, "new", "q0")
    alone = run("catalog", "export", catalog, tmp_path / "alone", "--format", "dataset")
    assert "1 clicks of the catalog, 0 of the training data" in alone.stderr
    assert (
        "160 items that the model was trained on have no clicks here; --with-training-data DATA"
        in alone.stderr
    )
    options = ("--format", "dataset", "--with-training-data", tmp_path / "data")
    both = run("catalog", "export", catalog, tmp_path / "both", *options)
    assert f"1 clicks of the catalog, {world.dataset.train.clicks.nnz:,} of the training data" in both.stderr
    assert "warning: the training data have no times" in both.stderr
    assert "no clicks here" not in both.stderr
    found = read_folder(tmp_path / "both")
    assert found.items.tags[found.items.row_of["new"]] == ("red",)
    assert found.train.clicks.nnz == world.dataset.train.clicks.nnz + 1
    vectors = run(
        "catalog", "export", catalog, tmp_path / "vectors", "--with-training-data", tmp_path / "data"
    )
    assert "--format dataset" in str(vectors.exception)


def test_a_file_of_clicks_is_recorded_once(catalog, model, tmp_path):
    run("catalog", "add", catalog, model, "i4", "--id", "new")
    (tmp_path / "clicks.tsv").write_text("q0\tnew\t2024-05-01\nq1\tnew\t2024-05-02\nq1\tnobody\t2024-05-02\n")
    refused = run("catalog", "clicks", catalog, model, tmp_path / "clicks.tsv")
    assert "line 3" in str(refused.exception)
    first = run("catalog", "clicks", catalog, model, tmp_path / "clicks.tsv", "--skip-bad")
    assert "2 clicks recorded, 0 were recorded before, 1 lines with problems" in first.stdout
    assert "left out: clicks.tsv, line 3: The catalog has no item with this id" in first.stderr
    again = run("catalog", "clicks", catalog, model, tmp_path / "clicks.tsv", "--skip-bad", "--json")
    assert json.loads(again.stdout) == {"recorded": 0, "recorded_before": 2, "problems": 1}
    assert found(catalog, model)["new"] == "observed"


def test_fields_are_set_filtered_by_and_removed(catalog, model):
    for name, price in (("a", "19.9"), ("b", "5")):
        options = ("--field", f"price={price}", "--field", "brand=x", "--field", "in_stock=true")
        run("catalog", "add", catalog, model, "i4", "--id", name, *options)
    shown = run(
        "catalog", "search", catalog, model, "t0", "--filter", '{"field": "price", "lt": 10}', "--json"
    )
    [hit] = json.loads(shown.stdout)["answers"][0]["hits"]
    assert (hit["id"], hit["fields"]) == ("b", {"brand": "x", "in_stock": True, "price": 5})
    both = '{"and": [{"field": "in_stock", "eq": true}, {"field": "brand", "in": ["x", "y"]}]}'
    first, second = (
        list(found(catalog, model, "--filter", both, "-k", "1", "--offset", n)) for n in ("0", "1")
    )
    assert sorted(first + second) == ["a", "b"]
    run("catalog", "update", catalog, model, "a", "--field", "price=1", "--remove-field", "brand")
    assert sorted(found(catalog, model, "--filter", '{"field": "price", "lt": 10}')) == ["a", "b"]
    assert list(found(catalog, model, "--filter", both)) == ["b"]
    failed = run("catalog", "search", catalog, model, "t0", "--filter", '{"field": "price", "below": 1}')
    assert "unknown operator 'below'" in str(failed.exception)
    assert "NAME=VALUE" in str(run("catalog", "update", catalog, model, "a", "--field", "price").exception)


def test_items_are_updated_and_deleted_by_file(catalog, model, tmp_path):
    for name in ("a", "b"):
        run("catalog", "add", catalog, model, "i4", "--id", name, "--tag", "red")
    run("catalog", "update", catalog, model, "a", "--text", "i9", "--add-tag", "blue", "--remove-tag", "red")
    assert list(found(catalog, model, "--tag", "blue")) == ["a"]
    assert list(found(catalog, model, "--tag", "red")) == ["b"]
    (tmp_path / "ids.txt").write_text("a\nb\nnobody\n")
    assert run("catalog", "delete", catalog, model, "--file", tmp_path / "ids.txt").exception is not None
    done = run("catalog", "delete", catalog, model, "--file", tmp_path / "ids.txt", "--ignore-missing")
    assert "2 deleted" in done.stdout
    assert not {"a", "b"} & set(found(catalog, model))


def test_items_are_listed_page_by_page_without_a_model(catalog, model):
    for name, price in (("a", "19.9"), ("b", "5"), ("c", "7")):
        run("catalog", "add", catalog, model, "i4", "--id", name, "--tag", "red", "--field", f"price={price}")
    cheap = ("--filter", '{"field": "price", "lt": 10}')
    first = json.loads(run("catalog", "list", catalog, *cheap, "--limit", "1", "--json").stdout)
    assert [item["id"] for item in first["items"]] == ["b"]
    last = run("catalog", "list", catalog, *cheap, "--limit", "1", "--after", first["next"])
    assert '{"price":7}' in last.stdout
    assert "--after" not in last.stdout
    page = run("catalog", "list", catalog, "--tag", "red", "--state", "novel", "--limit", "2")
    assert f"There are more: --after {first['next']}" in page.stdout
    assert '{"price":19.9}' in page.stdout
    assert "Unknown state" in str(run("catalog", "list", catalog, "--state", "old").exception)
