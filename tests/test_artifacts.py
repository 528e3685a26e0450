import json
import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from metaxc import artifacts
from metaxc.artifacts import (
    Stages,
    atomic_folder,
    load_arrays,
    save_arrays,
    save_json,
    verify_folder,
    write_manifest,
)
from metaxc.errors import ModelError


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "model"
    with atomic_folder(place, "thing") as new:
        save_json(new / "config.json", {"a": 1})
        save_arrays(new / "w.safetensors", {"w": np.arange(6, dtype=np.float32).reshape(2, 3)})
    return place


def test_arrays_come_back_with_their_shapes(tmp_path):
    arrays = {"scalar": np.array(2.5, np.float32), "rows": np.arange(3), "turned": np.ones((2, 3)).T}
    save_arrays(tmp_path / "a.safetensors", arrays)
    back = load_arrays(tmp_path / "a.safetensors")
    assert {name: array.shape for name, array in back.items()} == {
        "scalar": (),
        "rows": (3,),
        "turned": (3, 2),
    }
    np.testing.assert_array_equal(back["rows"], [0, 1, 2])


def test_a_whole_folder_verifies_and_its_fingerprint_follows_its_content(folder, tmp_path):
    first = verify_folder(folder, "thing")
    assert first == verify_folder(folder, "thing")
    save_json(folder / "config.json", {"a": 2})
    assert write_manifest(folder, "thing") != first


@pytest.mark.parametrize("name", ["config.json", "w.safetensors", "manifest.json"])
def test_every_flipped_byte_is_noticed(folder, name):
    original = (folder / name).read_bytes()
    for place in range(0, len(original), 7):
        damaged = bytearray(original)
        damaged[place] ^= 0x41
        (folder / name).write_bytes(bytes(damaged))
        with pytest.raises(ModelError):
            verify_folder(folder, "thing")
    (folder / name).write_bytes(original)
    verify_folder(folder, "thing")


def test_truncated_missing_newer_and_foreign_folders_are_refused(folder):
    weights = (folder / "w.safetensors").read_bytes()
    (folder / "w.safetensors").write_bytes(weights[:-1])
    with pytest.raises(ModelError, match="another length"):
        verify_folder(folder, "thing")
    (folder / "w.safetensors").unlink()
    with pytest.raises(ModelError, match="missing"):
        verify_folder(folder, "thing")
    (folder / "w.safetensors").write_bytes(weights)
    with pytest.raises(ModelError, match="another kind"):
        verify_folder(folder, "other")
    manifest = json.loads((folder / "manifest.json").read_text())
    save_json(folder / "manifest.json", {**manifest, "format": 99})
    with pytest.raises(ModelError, match="newer metaxc"):
        verify_folder(folder, "thing")


def test_a_file_that_is_not_in_the_manifest_is_refused_unless_it_is_hidden(folder):
    (folder / ".DS_Store").write_bytes(b"x")
    verify_folder(folder, "thing")
    (folder / "inner").mkdir()
    (folder / "inner" / "more.json").write_text("{}")
    with pytest.raises(ModelError, match=r"not in its manifest(.|\n)*more\.json"):
        verify_folder(folder, "thing")


FACTS = {"bytes": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "lists no files"),
        ([], "lists no files"),
        (None, "lists no files"),
        ({"../manifest.json": FACTS}, "damaged"),
        ({"/etc/passwd": FACTS}, "damaged"),
        ({"config.json": None}, "damaged"),
        ({"config.json": {"bytes": "1", "sha256": "0"}}, "damaged"),
        ({"config.json": {"bytes": 1}}, "damaged"),
    ],
)
def test_a_manifest_that_lists_no_files_or_others_is_refused(folder, files, message):
    body = {"format": 1, "kind": "thing", "files": files}
    save_json(folder / "manifest.json", {**body, "fingerprint": artifacts.json_digest(body)})
    with pytest.raises(ModelError, match=message):
        verify_folder(folder, "thing")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_arrays_with_nan_or_infinity_are_refused_unless_they_may_have_it(tmp_path, bad):
    array = np.ones((3, 4), np.float32)
    array[2, 3] = bad
    save_arrays(tmp_path / "a.safetensors", {"rows": np.arange(3), "vectors": array})
    with pytest.raises(ModelError, match=r"NaN or infinity(.|\n)*a\.safetensors: vectors"):
        load_arrays(tmp_path / "a.safetensors")
    assert len(load_arrays(tmp_path / "a.safetensors", finite=False)) == 2


def test_json_that_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ModelError, match="cannot be read"):
        artifacts.load_json(tmp_path / "a.json")


def test_a_failed_write_leaves_the_old_folder(folder):
    def fail():
        with atomic_folder(folder, "thing", overwrite=True) as new:
            (new / "half").write_text("x")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        fail()
    verify_folder(folder, "thing")
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


class TestStages:
    def build(self, made, name):
        def build(folder):
            made.append(name)
            save_json(folder / "result.json", {"name": name})

        return build

    def run(self, folder, made, inputs, stop_before=None):
        stages = Stages(folder)
        for name in ("one", "two", "three"):
            if name == stop_before:
                return
            stages.run(name, inputs if name == "one" else {}, self.build(made, name))

    def test_goes_on_where_it_stopped(self, tmp_path):
        made = []
        self.run(tmp_path, made, {"x": 1}, stop_before="three")
        self.run(tmp_path, made, {"x": 1})
        assert made == ["one", "two", "three"]

    def test_other_inputs_rebuild_everything_after_them(self, tmp_path):
        made = []
        self.run(tmp_path, made, {"x": 1})
        self.run(tmp_path, made, {"x": 2})
        assert made == ["one", "two", "three"] * 2

    def test_a_damaged_stage_is_built_again(self, tmp_path):
        made = []
        self.run(tmp_path, made, {"x": 1})
        (tmp_path / "two" / "result.json").write_text("{}")
        self.run(tmp_path, made, {"x": 1})
        assert made == ["one", "two", "three", "two"]


def test_a_disk_that_does_not_take_arrays_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="arrays"):
        save_arrays(tmp_path / "no such folder" / "arrays.safetensors", {"a": np.zeros(3)})


def test_a_folder_that_is_replaced_is_there_all_the_time(tmp_path, monkeypatch):
    """Its name is exchanged in one step: at no rename is it missing."""
    place = tmp_path / "folder"
    with atomic_folder(place, "thing") as new:
        (new / "file").write_text("old")
    if not sys.platform.startswith("linux"):
        pytest.skip("names are exchanged in one step on Linux")
    monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("two steps"))
    with atomic_folder(place, "thing", overwrite=True) as new:
        (new / "file").write_text("new")
        assert (place / "file").read_text() == "old"
    assert (place / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_where_names_cannot_be_exchanged_a_folder_is_replaced_in_two_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "_exchange_names", lambda one, other: False)
    for content in ("old", "new"):
        with atomic_folder(tmp_path / "folder", "thing", overwrite=True) as new:
            (new / "file").write_text(content)
    assert (tmp_path / "folder" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_are_readable_for_whom_the_umask_permits_it(tmp_path, umask, mode):
    """A service runs as another user than training did; safetensors makes files that only their owner can read."""
    before = os.umask(umask)
    try:
        with atomic_folder(tmp_path / "model", "kind") as new:
            save_arrays(new / "a.safetensors", {"a": np.zeros(3)})
            save_json(new / "a.json", {})
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "model").iterdir()} == {mode}
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == mode | (mode & 0o444) >> 2


def test_two_writers_with_the_same_process_number_do_not_share_a_temporary_file(tmp_path, monkeypatch):
    """Machines that share a file system count their processes alike."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    file = tmp_path / "a.json"
    with artifacts.atomic_file(file) as first:
        first.write_text("first")
        with artifacts.atomic_file(file) as second:
            second.write_text("second")
        assert file.read_text() == "second"
    assert file.read_text() == "first"


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 5), (2, 3, 4)])
def test_the_digest_of_an_array_is_that_of_its_bytes_as_text(shape, monkeypatch):
    """Folders and catalogs on disk name it, so it must stay what it was."""
    monkeypatch.setattr(artifacts, "DIGEST_BLOCK", 16)
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert artifacts.array_digest(array) == artifacts.json_digest(array.tobytes().hex())
    transposed = array.T
    assert artifacts.array_digest(transposed) == artifacts.json_digest(transposed.tobytes().hex())
