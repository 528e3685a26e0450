import json
import shutil
import sys

import numpy as np
import pytest
from index_worlds import catalog_vectors

from metaxc.artifacts import load_arrays, save_arrays, save_json, write_manifest
from metaxc.errors import MetaxcError, ModelError
from metaxc.index import ExactIndex, ScanIndex, load_index
from metaxc.index import codes as codes_module

DIM = 10
FILES = ["vectors.safetensors", "codes.safetensors", "index.json", "manifest.json"]


@pytest.fixture
def folder(tmp_path, small_scan):
    index = ScanIndex(DIM)
    index.add(np.arange(300), catalog_vectors(300, DIM, seed=1))
    index.save(tmp_path / "index", {"mark": 1})
    return tmp_path / "index"


@pytest.fixture
def no_native_code(monkeypatch):
    """Any use of faiss fails the test."""

    def refused(module, extra):
        raise AssertionError("native code was reached")

    monkeypatch.setattr(codes_module, "import_extra", refused)


def damages(data: bytes):
    yield "truncated", data[: len(data) // 2]
    yield "emptied", b""
    yield "longer", data + b" x"
    yield "zeroed", bytes(len(data))
    for place in np.linspace(0, len(data) - 1, 25).astype(int):
        yield f"flipped at {place}", data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_every_damage_is_seen_before_native_code_runs(folder, no_native_code, name):
    whole = (folder / name).read_bytes()
    for damage, data in damages(whole):
        (folder / name).write_bytes(data)
        try:
            load_index(folder)
            pytest.fail(f"{name} {damage} was not noticed")
        except ModelError:
            pass
    (folder / name).unlink()
    with pytest.raises(ModelError):
        load_index(folder)


def test_swapped_files_are_seen(folder, no_native_code):
    (folder / "vectors.safetensors").rename(folder / "other")
    (folder / "codes.safetensors").rename(folder / "vectors.safetensors")
    (folder / "other").rename(folder / "codes.safetensors")
    with pytest.raises(ModelError):
        load_index(folder)


def test_codes_of_other_vectors_are_refused_though_every_checksum_is_right(folder):
    arrays = load_arrays(folder / "vectors.safetensors")
    save_arrays(folder / "vectors.safetensors", {name: array[:299] for name, array in arrays.items()})
    about = json.loads((folder / "index.json").read_text())
    save_json(folder / "index.json", {**about, "count": 299})
    write_manifest(folder, "index")
    with pytest.raises(ModelError, match="300 codes"):
        load_index(folder)


def test_a_count_that_is_not_that_of_the_vectors_is_refused(folder):
    about = json.loads((folder / "index.json").read_text())
    save_json(folder / "index.json", {**about, "count": 299})
    write_manifest(folder, "index")
    with pytest.raises(ModelError, match="does not fit together"):
        load_index(folder)


def test_saving_again_replaces_the_folder(folder):
    ExactIndex(DIM).save(folder, {"mark": 2})
    loaded, facts = load_index(folder)
    assert (loaded.kind, len(loaded), facts) == ("exact", 0, {"mark": 2})
    assert sorted(path.name for path in folder.iterdir()) == [
        "index.json",
        "manifest.json",
        "vectors.safetensors",
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["index"]


def test_an_index_saved_without_codes_gets_them_when_it_is_loaded(folder):
    index, _ = load_index(folder)
    index._codes = None
    shutil.rmtree(folder)
    index.save(folder, {})
    assert not (folder / "codes.safetensors").exists()
    assert "4-bit" in repr(load_index(folder)[0])


def test_without_faiss_a_scan_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MetaxcError, match=r"metaxc\[serve\]"):
        load_index(folder)
