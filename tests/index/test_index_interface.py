"""Choosing, building and loading an index; every kind of damage to its folder is detected."""

import json
import shutil
import sys

import numpy as np
import pytest
from index_worlds import catalog_vectors, recall, stored_vectors

from metaxc.artifacts import load_arrays, save_arrays, save_json, write_manifest
from metaxc.errors import DataError, MetaxcError, ModelError
from metaxc.index import (
    ExactIndex,
    IVFIndex,
    ScanIndex,
    build_index,
    choose_index,
    interface,
    load_index,
    pq_codes,
)
from metaxc.index.interface import IVF_FROM, IVF_RECALL, SCAN_DIM, SCAN_FROM

DIM = 10
FILES = ["vectors.safetensors", "codes.safetensors", "index.json", "manifest.json"]


def test_few_vectors_get_an_exact_index():
    index, reason = choose_index(SCAN_FROM - 1, 8)
    assert isinstance(index, ExactIndex)
    assert (len(index), index.dim) == (0, 8)
    assert reason.startswith(f"exact: {SCAN_FROM - 1:,} vectors")


def test_many_vectors_get_a_scan_index():
    index, reason = choose_index(SCAN_FROM, 64)
    assert isinstance(index, ScanIndex)
    assert (len(index), index.dim) == (0, 64)
    assert reason.startswith(f"scan: {SCAN_FROM:,} vectors")


@pytest.mark.parametrize("count", [IVF_FROM, 50_000_000])
def test_very_many_vectors_get_an_ivf_index_that_finds_nearly_all(count):
    assert type(choose_index(IVF_FROM - 1, 64)[0]) is ScanIndex
    index, reason = choose_index(count, 64)
    assert isinstance(index, IVFIndex)
    assert index.plan.target == IVF_RECALL
    assert reason.startswith(f"ivf: {count:,} vectors")
    assert type(choose_index(count, 63)[0]) is ExactIndex


@pytest.mark.parametrize("centres", [30, 3000])
def test_an_ivf_index_that_is_chosen_finds_nearly_all_with_and_without_groups(monkeypatch, centres):
    monkeypatch.setattr(interface, "IVF_FROM", 3000)
    monkeypatch.setattr(interface, "SCAN_FROM", 1000)
    monkeypatch.setattr("metaxc.index.ivf.MIN_VECTORS", 1000)
    vectors, queries = (catalog_vectors(n, 64, seed, centres) for n, seed in ((3000, 0), (50, 1)))
    index, reason = build_index(np.arange(3000), vectors)
    assert isinstance(index, IVFIndex)
    assert reason.startswith("ivf: 3,000 vectors")
    assert index.measured_recall >= IVF_RECALL
    found, right = index.search(queries, 10)[0], index.search_exactly(queries, 10)[0]
    assert recall(found, right) >= 0.97


@pytest.mark.parametrize(
    ("kind", "expected"), [("exact", ExactIndex), ("scan", ScanIndex), ("ivf", IVFIndex)]
)
def test_the_kind_that_is_asked_for_is_made(kind, expected):
    index, reason = choose_index(3, 8, kind)
    assert (type(index), len(index), index.dim) == (expected, 0, 8)
    assert reason == f"{kind}: 3 vectors; this kind was asked for"
    built, _ = build_index(np.array([4, 2]), np.eye(2, dtype=np.float32), kind=kind)
    assert type(built) is expected
    assert built.search(np.array([[0.1, 0.9]], np.float32), 1)[0].tolist() == [[2]]


def test_an_unknown_kind_is_an_error_that_names_the_kinds():
    with pytest.raises(DataError, match="exact or scan or ivf"):
        choose_index(3, 8, "hnsw")


def test_short_vectors_get_an_exact_index():
    index, reason = choose_index(100_000, SCAN_DIM - 1)
    assert isinstance(index, ExactIndex)
    assert "below 64 dimensions" in reason


def test_without_faiss_the_index_is_exact_and_the_reason_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    index, reason = choose_index(SCAN_FROM, 64)
    assert isinstance(index, ExactIndex)
    assert "faiss is not installed (pip install 'metaxc[serve]')" in reason


def test_built_index_contains_the_vectors():
    vectors = catalog_vectors(SCAN_FROM, 64, seed=0)
    index, reason = build_index(np.arange(SCAN_FROM), vectors)
    assert reason.startswith("scan: ")
    assert "4-bit" in repr(index)
    np.testing.assert_array_equal(stored_vectors(index, [3, 1]), vectors[[3, 1]])
    few, reason = build_index(np.array([4, 2]), vectors[:2])
    assert reason.startswith("exact: ")
    np.testing.assert_array_equal(stored_vectors(few, [2, 4]), vectors[[1, 0]])


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

    monkeypatch.setattr(pq_codes, "import_extra", refused)


def damages(data: bytes):
    yield "truncated", data[: len(data) // 2]
    yield "emptied", b""
    yield "longer", data + b" x"
    yield "zeroed", bytes(len(data))
    for place in np.linspace(0, len(data) - 1, 25).astype(int):
        yield f"flipped at {place}", data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_damage_is_detected_before_native_code_runs(folder, no_native_code, name):
    whole = (folder / name).read_bytes()
    for damage, data in damages(whole):
        (folder / name).write_bytes(data)
        try:
            load_index(folder)
            pytest.fail(f"{name} {damage} was not detected")
        except ModelError:
            pass
    (folder / name).unlink()
    with pytest.raises(ModelError):
        load_index(folder)


def test_swapped_files_are_detected(folder, no_native_code):
    (folder / "vectors.safetensors").rename(folder / "other")
    (folder / "codes.safetensors").rename(folder / "vectors.safetensors")
    (folder / "other").rename(folder / "codes.safetensors")
    with pytest.raises(ModelError):
        load_index(folder)


def test_codes_of_other_vectors_are_an_error_despite_valid_checksums(folder):
    arrays = load_arrays(folder / "vectors.safetensors")
    save_arrays(folder / "vectors.safetensors", {name: array[:299] for name, array in arrays.items()})
    about = json.loads((folder / "index.json").read_text())
    save_json(folder / "index.json", {**about, "count": 299})
    write_manifest(folder, "index")
    with pytest.raises(ModelError, match="300 codes"):
        load_index(folder)


def test_wrong_number_of_vectors_is_an_error(folder):
    about = json.loads((folder / "index.json").read_text())
    save_json(folder / "index.json", {**about, "count": 299})
    write_manifest(folder, "index")
    with pytest.raises(ModelError, match="do not match"):
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


def test_index_saved_without_codes_gets_them_when_loaded(folder):
    index, _ = load_index(folder)
    index._codes = None
    shutil.rmtree(folder)
    index.save(folder, {})
    assert not (folder / "codes.safetensors").exists()
    assert "4-bit" in repr(load_index(folder)[0])


def test_loading_without_faiss_is_an_error_with_the_install_command(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MetaxcError, match=r"metaxc\[serve\]"):
        load_index(folder)
