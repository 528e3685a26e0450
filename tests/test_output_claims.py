"""Nothing that metaxc has not written is replaced by an output."""

import os
import subprocess

import pytest

from metaxc.artifacts import Stages, atomic_file, atomic_folder, discard_results, make_folder, reuse_or_build
from metaxc.errors import ConfigError
from metaxc.output_claims import claim_file, claim_folder


def content(folder):
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def result(tmp_path):
    folder = tmp_path / "result"
    with atomic_folder(folder, "thing") as new:
        (new / "sub").mkdir()
        (new / "sub" / "file").write_text("old")
    return folder


def refused(path, *, match, **options):
    before = content(path.parent)
    with pytest.raises(ConfigError, match=match), atomic_folder(path, "thing", **options) as new:
        (new / "file").write_text("new")
    assert content(path.parent) == before


def test_a_new_and_an_empty_folder_may_be_written(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new", "deep/er"):
        with atomic_folder(tmp_path / name, "thing") as new:
            (new / "file").write_text("new")
        assert (tmp_path / name / "file").read_text() == "new"


def test_an_earlier_result_is_replaced_only_with_overwrite(result):
    refused(result, match="already holds a result")
    with atomic_folder(result, "thing", overwrite=True) as new:
        (new / "file").write_text("new")
    assert set(content(result)) == {"file", "manifest.json"}


def test_other_data_is_never_replaced(result, tmp_path):
    with atomic_folder(tmp_path / "other", "other thing") as new:
        (new / "file").write_text("x")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    (result / "sub" / "notes.txt").write_text("x")
    for name, match in (("other", "no"), ("mine", "notes"), ("file", "not a folder"), ("result", "notes")):
        refused(tmp_path / name, match=match, overwrite=True)


def test_a_catalog_and_what_is_inside_it_are_never_written(tmp_path):
    (tmp_path / "catalog" / "gen-1").mkdir(parents=True)
    (tmp_path / "catalog" / "CURRENT").write_text("x")
    for name in ("catalog", "catalog/gen-1", "catalog/new"):
        refused(tmp_path / name, match="a catalog", overwrite=True)


def test_a_source_and_what_is_around_or_inside_it_are_never_written(result, tmp_path):
    (tmp_path / "link").symlink_to(result)
    refused(result, match="the source", overwrite=True, sources=[tmp_path / "link"])
    refused(tmp_path / "link", match="the source", overwrite=True, sources=[result])
    refused(result / "new", match="inside the source", sources=[result])
    refused(result, match="contains the source", overwrite=True, sources=[result / "sub"])


def test_a_link_is_written_through(result, tmp_path):
    (tmp_path / "link").symlink_to(result)
    with atomic_folder(tmp_path / "link", "thing", overwrite=True) as new:
        (new / "file").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (result / "file").read_text() == "new"
    (tmp_path / "name").symlink_to(tmp_path / "target")
    with atomic_file(tmp_path / "name") as temporary:
        temporary.write_text("content")
    assert (tmp_path / "name").is_symlink()
    assert (tmp_path / "target").read_text() == "content"


def test_a_link_to_a_mount_is_refused(tmp_path):
    (tmp_path / "mount").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path / "mount"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (tmp_path / "link").symlink_to(tmp_path / "mount")
        refused(tmp_path / "link", match="mount point", overwrite=True)
        assert (tmp_path / "link").is_symlink()
    finally:
        subprocess.run(["umount", tmp_path / "mount"], check=True)


def test_data_that_appears_meanwhile_is_not_replaced(tmp_path):
    def write():
        with atomic_folder(tmp_path / "new", "thing") as new:
            (new / "file").write_text("new")
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "notes.txt").write_text("x")

    with pytest.raises(ConfigError, match="notes"):
        write()
    assert content(tmp_path) == {"new/notes.txt": b"x"}


def test_a_file_is_replaced_only_with_overwrite_and_by_its_kind(result, tmp_path):
    file = tmp_path / "vectors"
    assert claim_file(file, b"MARK") == file
    file.write_bytes(b"MARK and more")
    with pytest.raises(ConfigError, match="already exists"):
        claim_file(file, b"MARK")
    assert claim_file(file, b"MARK", overwrite=True) == file
    file.write_bytes(b"my notes")
    with pytest.raises(ConfigError, match="another kind"):
        claim_file(file, b"MARK", overwrite=True)
    with pytest.raises(ConfigError, match="part of another result"):
        claim_file(result / "manifest.json", b"thing", overwrite=True)
    with pytest.raises(ConfigError, match="regular file"):
        claim_file(tmp_path, b"MARK", overwrite=True)
    with pytest.raises(ConfigError, match="folder does not exist"):
        claim_file(tmp_path / "missing" / "file", b"MARK")
    with pytest.raises(ConfigError, match="inside the source"):
        claim_file(result / "new", b"MARK", sources=[result])


def test_stages_are_discarded_and_other_data_stays(tmp_path):
    stages = Stages(tmp_path / "stages")
    stages.run("one", {}, lambda folder: (folder / "file").write_text("x"))
    discard_results(tmp_path / "stages", "stage")
    assert not (tmp_path / "stages").exists()
    stages.run("one", {}, lambda folder: (folder / "file").write_text("x"))
    (tmp_path / "stages" / "mine").mkdir()
    (tmp_path / "stages" / "mine" / "notes.txt").write_text("x")
    discard_results(tmp_path / "stages", "stage")
    assert content(tmp_path) == {"stages/mine/notes.txt": b"x"}


def test_a_folder_that_only_has_the_name_of_a_stage_is_kept_under_another_name(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "notes.txt").write_text("x")
    reuse_or_build(tmp_path / "one", "stage", lambda folder: (folder / "file").write_text("x") and None)
    assert claim_folder(tmp_path / "one", "stage", overwrite=True)
    assert [path.read_text() for path in tmp_path.glob("one.damaged-*/notes.txt")] == ["x"]


def test_new_folders_are_synced_into_their_parents(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def record(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    make_folder(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    synced.clear()
    make_folder(tmp_path / "a" / "b")  # perhaps made by somebody who did not sync it
    assert synced == [str(tmp_path / "a")]
    synced.clear()
    with atomic_folder(tmp_path / "c" / "d", "thing") as new:
        (new / "sub").mkdir()
        (new / "sub" / "file").write_text("x")
    names = {os.path.relpath(path, tmp_path) for path in synced}
    assert {".", "c"} <= names
    assert {name.rpartition(".part")[2] for name in names} >= {"", "/sub", "/sub/file", "/manifest.json"}
