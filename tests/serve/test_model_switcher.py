"""A running service switches to another model, on request, and back."""

import json
import threading

import numpy as np
import pytest
from fastapi.testclient import TestClient
from running_service import HOME, add, running
from typer.testing import CliRunner

from metaxc.catalog import Catalog, CatalogError, NewItem
from metaxc.catalog.model_switch import ModelSwitch
from metaxc.catalog.schema import decode_vector
from metaxc.cli.main import app
from metaxc.cli.serve_command import load_catalog_model
from metaxc.emmett import Emmett
from metaxc.serve.api_types import AddRequest, PreviewRequest, RepresentRequest
from metaxc.serve.app import make_app
from metaxc.serve.client import Client
from metaxc.serve.model_switcher import ModelFolders
from metaxc.serve.prometheus_metrics import Metrics
from metaxc.serve.request_queue import QueuedRequest
from metaxc.serve.search_batcher import SearchBatcher
from metaxc.serve.serve_settings import ServeSettings
from metaxc.serve.served_catalog import ServedCatalog
from metaxc.serve.work_slices import EncodedPart, Slice
from metaxc.serve.write_batcher import WriteBatcher


@pytest.fixture
def other(model, trained, tmp_path):
    """The folder of another model, in a folder of models, and its fingerprint."""
    changed = Emmett.load(trained)
    changed.neighbours = model.neighbours + 1
    changed.save(tmp_path / "models" / "other")
    return tmp_path / "models" / "other", Emmett.load(tmp_path / "models" / "other").fingerprint


@pytest.fixture
def models(trained, tmp_path, other):
    return ModelFolders(tmp_path / "models", trained)


@pytest.fixture
def http(catalog, models):
    with TestClient(make_app(catalog, models=models), base_url=HOME) as client:
        yield client


def ask(http, **body):
    return http.post("/v1/model", json=body)


def wait(http):
    """The status when the switch has ended."""
    for _ in range(100_000):
        status = http.get("/v1/model").json()
        if status["state"] in ("switched", "failed"):
            return status
    raise AssertionError("the switch does not end")


def test_a_service_switches_and_returns_with_all_writes(http, model, other, catalog):
    add(http, "before", "grey cat")
    started = ask(http, model="other")
    assert (started.status_code, started.json()["model"]) == (202, model.fingerprint)
    add(http, "during", "grey dog")
    number = http.post("/v1/clicks", json={"item": "before", "query": "cheap lemon"}).json()["number"]
    status = wait(http)
    assert (status["state"], status["model"], status["previous"]) == ("switched", other[1], model.fingerprint)
    assert status["done"] == status["total"] > 0
    assert status["checks"]["recall"] == 1.0
    assert status["thresholds"]["max_changed"] == 0.8
    assert http.get("/v1/about").json()["model"] == other[1]
    assert f'metaxc_model_info{{fingerprint="{other[1]}"}} 1.0' in http.get("/metrics").text
    represented = http.post("/v1/represent", json={"texts": ["cat"]}).json()
    assert represented["model"] == other[1]
    add(http, "after", "grey cow")
    assert http.delete(f"/v1/clicks/{number}").status_code == 200
    assert ask(http, rollback=True).status_code == 202
    status = wait(http)
    assert (status["state"], status["model"], status["previous"]) == ("switched", model.fingerprint, other[1])
    assert status["checks"] is None
    for name in ("before", "during", "after"):
        assert http.get(f"/v1/items/{name}").json()["clicks"] == 0, name
    found = http.post("/v1/search", json={"queries": ["grey cow"], "k": 5}).json()["answers"][0]["hits"]
    assert found


def test_only_models_in_the_folder_of_models_are_loaded(http, trained, tmp_path, model):
    (tmp_path / "models" / "link").symlink_to(trained)
    outside = [str(trained), "../other", "link", "/etc"]
    assert [ask(http, model=name).status_code for name in outside] == [403] * 4
    assert ask(http, model="missing").status_code == 404
    assert ask(http, model="a\0b").status_code == 422
    assert [ask(http).status_code, ask(http, model="other", rollback=True).status_code] == [422, 422]
    refused = ask(http, model=str(trained)).json()
    assert str(tmp_path) not in str(refused)
    assert http.get("/v1/model").json()["state"] == "none"
    assert ask(http, rollback=True).status_code == 404


def test_a_folder_without_a_model_fails_and_changes_nothing(http, tmp_path, model):
    (tmp_path / "models" / "empty").mkdir()
    assert ask(http, model="empty").status_code == 202
    status = wait(http)
    assert (status["state"], status["model"]) == ("failed", model.fingerprint)
    assert status["reason"]
    assert str(tmp_path) not in status["reason"]


def test_a_model_that_fails_the_checks_is_refused_unless_forced(catalog, models, model, trained, tmp_path):
    """Nearly all answers must stay, and this model shows new items first."""
    changed = Emmett.load(trained)
    changed.calibration = model.calibration.model_copy(update={"exposure": 5.0})
    changed.save(tmp_path / "models" / "exposed")
    fingerprint = Emmett.load(tmp_path / "models" / "exposed").fingerprint
    settings = ServeSettings(switch={"max_changed": 0.01})
    with TestClient(make_app(catalog, settings, models=models), base_url=HOME) as http:
        before = http.post("/v1/search", json={"queries": ["cheap lemon"]}).json()["answers"]
        ask(http, model="exposed")
        status = wait(http)
        assert status["state"] == "failed"
        assert "of the answers change, at most 0.01 may" in status["reason"]
        assert status["checks"]["changed"] > 0.01
        assert (status["model"], status["previous"]) == (model.fingerprint, None)
        assert http.post("/v1/search", json={"queries": ["cheap lemon"]}).json()["answers"] == before
        assert add(http, "new", "grey cat").status_code == 200
        ask(http, model="exposed", force=True)
        status = wait(http)
        assert (status["state"], status["model"], status["checks"]) == ("switched", fingerprint, None)
        assert http.get("/v1/items/new").status_code == 200


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"recall": 0.94}, "recall 0.940"),
        ({"changed": 0.81}, "0.810 of the answers"),
        ({"novel_recall_after": 0.44}, "novel R@10 falls from 0.500 to 0.440"),
        ({"novel_recall_after": 0.1, "novel_clicks": 49}, None),
    ],
)
def test_the_thresholds(changes, problem):
    from metaxc.catalog.generation_checks import GenerationChecks

    good = {"queries": 200, "recall": 0.95, "changed": 0.8, "novel_clicks": 50}
    good |= {"novel_recall_before": 0.5, "novel_recall_after": 0.45}
    found = ServeSettings().switch.find_problems(GenerationChecks(**{**good, **changes}))
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


def test_one_switch_at_a_time_and_stopping_ends_a_build(catalog, other, trained, tmp_path, model):
    begun, may_load = threading.Event(), threading.Event()

    def load(folder):
        begun.set()
        may_load.wait(60)
        return Emmett.load(folder)

    folders = ModelFolders(tmp_path / "models", trained, load)
    with TestClient(make_app(catalog, models=folders), base_url=HOME) as http:
        assert ask(http, model="other").status_code == 202
        assert begun.wait(60)
        assert http.get("/v1/model").json()["state"] == "loading"
        assert ask(http, model="other").status_code == 409
        http.app.state.service._switcher._stopping.set()
        may_load.set()
        assert "closing" in wait(http)["reason"]
    with Catalog.open(catalog.folder.path, model) as again:
        assert len(again) > 0


def test_a_service_that_only_reads_or_has_no_folder_of_models_refuses(catalog, models, model):
    with TestClient(make_app(catalog), base_url=HOME) as http:
        assert ask(http, model="other").status_code == 403
    opened = Catalog.open(catalog.folder.path, model, read_only=True)
    with TestClient(make_app(opened, models=models), base_url=HOME) as http:
        assert ask(http, model="other").status_code == 403
        assert http.get("/v1/model").json()["state"] == "none"


def test_only_the_write_token_switches(catalog, models):
    tokens = {"read": "reading-is-all-it-may", "write": "writing-is-what-it-may"}
    with TestClient(make_app(catalog, ServeSettings(tokens=tokens), models=models), base_url=HOME) as http:
        for kind, status in (("read", 403), ("write", 202)):
            headers = {"authorization": f"Bearer {tokens[kind]}"}
            asked = http.post("/v1/model", json={"model": "other"}, headers=headers)
            assert asked.status_code == status
            assert http.get("/v1/model", headers=headers).status_code == 200
        assert http.get("/v1/model").status_code == 401


def test_the_client_waits_and_reports(catalog, models, other, model, tmp_path):
    with running(catalog, models=models) as url, Client(url) as client:
        seen = []
        status = client.switch_model(other[0], progress=seen.append)
        assert (status.state, status.model) == ("switched", other[1])
        assert all(one.under_way for one in seen)
        with pytest.raises(CatalogError, match="this model already"):
            client.switch_model("other")
        assert client.switch_model(rollback=True).model == model.fingerprint
        assert client.switch_model("other", wait=False).model == model.fingerprint


def test_the_command_switches_returns_and_says_why_not(catalog, models, other, model):
    run = CliRunner().invoke
    with running(catalog, models=models) as url:
        done = run(app, ["switch", url, str(other[0])])
        assert (done.exit_code, done.stdout.splitlines()[0]) == (0, f"switched: model {other[1][:16]}")
        assert "recall 1.000" in done.stdout
        assert f"previous: model {model.fingerprint[:16]}" in done.stdout
        again = run(app, ["switch", url, "other"])
        assert "this model already" in str(again.exception)
        back = json.loads(run(app, ["switch", url, "--rollback", "--json"]).stdout)
        assert (back["state"], back["model"]) == ("switched", model.fingerprint)
        assert run(app, ["switch", url, "--status"]).stdout.startswith("switched")
        assert "either MODEL or --rollback" in str(run(app, ["switch", url]).exception)


def test_a_service_that_starts_again_uses_the_model_that_it_was_switched_to(
    catalog, other, trained, model, capsys
):
    folder = catalog.folder.path
    switch = ModelSwitch(catalog, Emmett.load(other[0]), other[0])
    switch.build()
    new = switch.finish()
    catalog.close()
    assert load_catalog_model(folder, trained, None, None).fingerprint == other[1]
    assert "is not used" in capsys.readouterr().err
    new.close()
    assert load_catalog_model(folder, other[0], None, None).fingerprint == other[1]
    assert capsys.readouterr().err == ""


def queued(payload, *parts):
    """A request of two slices, the first of which was handled before."""
    rows = tuple(range(2))
    return QueuedRequest(payload, (Slice(1, rows), Slice(1, ())), parts=list(parts))


@pytest.fixture
def metrics():
    return Metrics(lambda: None, dict)


@pytest.mark.parametrize("by_this_model", [True, False])
def test_a_large_add_across_a_switch_is_encoded_again(catalog, metrics, model, by_this_model):
    texts = ["grey cat", "grey dog"]
    marked = {text: np.full(model.encoder.dim, 0.1, np.float32) for text in texts}
    add = AddRequest.model_validate({"items": [{"id": text, "text": text} for text in texts]})
    part = EncodedPart(model.fingerprint if by_this_model else "another", marked)
    with catalog:
        WriteBatcher(ServedCatalog(catalog), metrics)([queued(add, part)])
        stored = catalog.store.fetch_all("SELECT embedding FROM items WHERE id = 'grey cat'")[0][0]
        expected = marked["grey cat"] if by_this_model else model.encoder.encode_items(["grey cat"])[0]
        np.testing.assert_allclose(decode_vector(stored), expected, atol=1e-6)


@pytest.mark.parametrize("by_this_model", [True, False])
def test_large_reads_across_a_switch_are_encoded_again(catalog, metrics, model, by_this_model):
    texts = ["grey cat", "grey dog"]
    fingerprint = model.fingerprint if by_this_model else "another"
    marked = np.full((2, model.encoder.dim + 1), 0.5, np.float32)
    with catalog:
        batcher = SearchBatcher(ServedCatalog(catalog), metrics, 0.0)
        represent = QueuedRequest(
            RepresentRequest(texts=[*texts, "cow"]),
            (Slice(1, (0, 1)), Slice(1, (2,))),
            parts=[EncodedPart(fingerprint, marked)],
        )
        preview = queued(PreviewRequest(text="cat", revealed=texts), EncodedPart(fingerprint, marked[:, :-1]))
        represented, previewed = batcher([represent, preview])
        expected = catalog.represent([*texts, "cow"])
        if by_this_model:
            expected[:2] = marked
        np.testing.assert_allclose(np.array(represented.vectors), expected, atol=1e-5)
        plain = catalog.preview("cat", revealed=texts)
        assert (previewed.explanation == plain.explanation) != by_this_model
        batcher.sample_queue.close()


def test_a_replaced_catalog_stays_open_while_it_is_used(catalog):
    served, closed = ServedCatalog(catalog), threading.Event()

    def close():
        served.wait_until_unused(catalog)
        closed.set()

    with served.use() as used:
        served.replace("new")
        thread = threading.Thread(target=close)
        thread.start()
        assert used is catalog
        assert not closed.is_set()
        with served.use() as later:
            assert later == "new"
    thread.join(30)
    assert closed.is_set()
    catalog.close()


def test_a_switched_catalog_is_followed_by_a_service_that_only_reads(catalog, other, model, trained):
    from metaxc.cli.serve_command import reopen_catalog

    catalog.add([NewItem("new", "small cat")])
    reader = Catalog.open(catalog.folder.path, model, read_only=True)
    following = make_app(reader, reopen=lambda old: reopen_catalog(old, trained, None, None))
    with TestClient(following, base_url=HOME) as http:
        assert http.get("/v1/about").json()["model"] == model.fingerprint
        switch = ModelSwitch(catalog, Emmett.load(other[0]), other[0])
        switch.build()
        with switch.finish():
            catalog.close()
            assert any(http.get("/readyz").status_code == 200 for _ in range(10_000))
            assert http.get("/v1/about").json()["model"] == other[1]
            assert http.get("/v1/items/new").status_code == 200
