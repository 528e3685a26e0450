"""A folder is watched for new models; each is tried once, by the switch that requests use."""

import logging
import os

import pytest
from fastapi.testclient import TestClient
from running_service import HOME
from test_model_switcher import wait

from metaxc.artifacts import MANIFEST, write_manifest
from metaxc.catalog import ConflictError
from metaxc.emmett import Emmett
from metaxc.errors import DataError
from metaxc.serve.app import make_app
from metaxc.serve.model_switcher import ModelFolders
from metaxc.serve.model_watcher import ModelWatcher
from metaxc.serve.serve_settings import ServeSettings


class Watched:
    """A watcher of `folder` that notes what it would switch to."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder, self.asked, self.error, self.known = folder, [], None, set()
        self.watcher = ModelWatcher(folder, self.switch, lambda: self.known)
        self.clock = 1_000

    def switch(self, folder):
        self.asked.append(folder.name)
        if self.error is not None:
            raise self.error

    def put(self, name, content="weights"):
        """A complete folder, newer than those before."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "weights").write_text(content)
        write_manifest(folder, "emmett")
        self.clock += 1
        for file in folder.iterdir():
            os.utime(file, (self.clock, self.clock))
        return folder

    def look(self):
        """What one look asks for."""
        before = len(self.asked)
        self.watcher.look()
        return self.asked[before:]


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path / "watched")


def test_a_new_model_is_tried_once_and_again_when_its_files_change(watched):
    watched.known = {watched.put("first")}
    assert watched.look() == []
    watched.put("second")
    assert watched.look() == ["second"]
    assert watched.look() == []
    watched.put("second", "better")
    assert watched.look() == ["second"]


def test_of_several_the_newest_is_tried_and_the_others_are_not_tried_later(watched):
    watched.known = {watched.put("first")}
    watched.look()
    for name in ("second", "fourth", "third"):
        watched.put(name)
    assert watched.look() == ["third"]
    watched.put("third").rename(watched.folder.parent / "gone")
    assert watched.look() == []


def test_at_the_start_only_the_newest_counts_unless_it_is_in_use_or_was_before(tmp_path):
    for number, (known, asked) in enumerate([({"first"}, ["second"]), ({"second"}, [])]):
        watched = Watched(tmp_path / f"watched-{number}")
        for name in ("first", "second"):
            watched.put(name)
        watched.known = {watched.folder / name for name in known}
        assert watched.look() == asked
        assert watched.look() == []


def test_a_link_named_current_alone_decides_in_both_directions(watched):
    first, second = watched.put("first"), watched.put("second")
    link, new = watched.folder / "current", watched.folder / ".new"
    link.symlink_to("first")
    watched.known = {first}
    assert watched.look() == []
    for target in (second, first, second):
        new.symlink_to(target.name)
        new.rename(link)
        assert watched.look() == [target.name]
    watched.put("third")
    link.unlink()
    assert watched.look() == []


def test_a_model_that_is_being_copied_is_logged_once_and_tried_when_it_is_complete(watched, caplog):
    watched.known = {watched.put("first")}
    watched.look()
    copied = watched.put("second")
    (copied / "weights").write_text("wei")
    assert (watched.look(), watched.look()) == ([], [])
    (copied / "weights").write_text("weigh")
    assert watched.look() == []
    assert [record.message for record in caplog.records] == [
        f"{copied} is not used until it is complete: weights is missing or has another size"
    ]
    (copied / "weights").write_text("weights")
    assert watched.look() == ["second"]


def test_what_is_no_model_is_left_alone(watched):
    (watched.folder / "notes.txt").write_text("x")
    (watched.folder / "empty").mkdir()
    (watched.folder / "loop").symlink_to("loop")
    watched.put("damaged").joinpath(MANIFEST).write_text("[]")
    watched.put(".hidden.part")
    assert watched.look() == []
    watched.put("model")
    assert watched.look() == ["model"]


def test_a_switch_that_cannot_begin_now_is_tried_again_and_a_refusal_is_not(watched, caplog):
    watched.put("first")
    watched.error = ConflictError("A switch is under way")
    assert (watched.look(), watched.look()) == (["first"], ["first"])
    watched.error = DataError("Not the name of a folder")
    assert (watched.look(), watched.look()) == (["first"], [])
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_folder_that_disappears_ends_nothing(watched, caplog):
    watched.folder.rmdir()
    assert (watched.look(), watched.look()) == ([], [])
    assert len(caplog.records) == 1


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr("metaxc.serve.model_watcher.WATCH_SECONDS", 0.02)


def count_switches(http, outcome):
    return f'metaxc_model_switches_total{{outcome="{outcome}"}} 1.0' in http.get("/metrics").text


@pytest.mark.usefixtures("fast")
def test_a_running_service_uses_a_model_that_appears(catalog, model, trained, tmp_path):
    (tmp_path / "models").mkdir()
    changed = Emmett.load(trained)
    changed.neighbours = model.neighbours + 1
    folders = ModelFolders(tmp_path / "models", trained, watched=tmp_path / "models")
    with TestClient(make_app(catalog, models=folders), base_url=HOME) as http:
        assert http.get("/v1/model").json()["state"] == "none"
        changed.save(tmp_path / "models" / "tonight")
        status = wait(http)
        wanted = Emmett.load(tmp_path / "models" / "tonight").fingerprint
        assert (status["state"], status["model"]) == ("switched", wanted)
        assert status["checks"]["recall"] == 1.0
        assert count_switches(http, "switched")
        known = http.app.state.service._switcher.find_known_folders()
        assert known == {tmp_path / "models" / "tonight", trained.resolve()}


@pytest.mark.usefixtures("fast")
def test_a_model_that_fails_the_checks_is_refused_once(catalog, model, trained, tmp_path, caplog):
    changed = Emmett.load(trained)
    changed.calibration = model.calibration.model_copy(update={"exposure": 5.0})
    changed.save(tmp_path / "models" / "exposed")
    folders = ModelFolders(tmp_path / "models", trained, watched=tmp_path / "models")
    settings = ServeSettings(switch={"max_changed": 0.01})
    with TestClient(make_app(catalog, settings, models=folders), base_url=HOME) as http:
        assert wait(http)["state"] == "failed"
        service = http.app.state.service
        for _ in range(3):
            service._watcher.look()
        assert http.get("/v1/about").json()["model"] == model.fingerprint
        assert count_switches(http, "failed")
    refusals = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(refusals) == 1
    assert "fails the checks" in refusals[0].getMessage()
