"""The callable gives every kind of batch the vectors that the library gives, and is small to send."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from metaxc.emmett import Emmett
from metaxc.errors import DataError, ModelError
from metaxc.scale import RepresentBatch, represent_batch

TEXTS = ["i4", "i0", "i9"]


@pytest.fixture(scope="module")
def expected(model_folder):
    return Emmett.load(model_folder).represent(TEXTS)


def test_a_dictionary_of_arrays_gets_an_array(model_folder, expected):
    batch = {"id": np.array(["a", "b", "c"]), "text": np.array(TEXTS, dtype=object)}
    found = RepresentBatch(model_folder)(batch)
    assert list(found) == ["id", "text", "vector"]
    assert found["vector"].dtype == np.float32
    np.testing.assert_array_equal(found["vector"], expected)
    assert list(batch) == ["id", "text"], "the batch that was given stays as it is"


def test_an_arrow_table_gets_lists_of_a_fixed_size(model_folder, expected):
    found = RepresentBatch(model_folder)(pa.table({"id": [3, 1, 2], "text": TEXTS}))
    assert found.schema.field("vector").type == pa.list_(pa.float32(), expected.shape[1])
    assert found["id"].to_pylist() == [3, 1, 2]
    np.testing.assert_array_equal(np.array(found["vector"].to_pylist(), dtype=np.float32), expected)


def test_data_frames_as_spark_gives_them(model_folder, expected):
    pandas = pytest.importorskip("pandas")
    represent = RepresentBatch(model_folder)
    frames = [pandas.DataFrame({"id": [n], "text": [text]}, index=[7]) for n, text in enumerate(TEXTS)]
    found = pandas.concat(map(represent, frames))
    assert found["id"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(np.stack(found["vector"]), expected, atol=1e-6)


def test_queries_with_an_exposure(model_folder):
    found = RepresentBatch(model_folder, queries=True, exposure=-0.25)({"text": ["t0", "t5"]})["vector"]
    np.testing.assert_array_equal(found, Emmett.load(model_folder).encode_queries(["t0", "t5"], -0.25))
    with pytest.raises(DataError, match="Only queries have an exposure"):
        RepresentBatch(model_folder, exposure=0.1)


def test_copies_load_the_model_once_in_a_process_and_another_model_anew(
    model_folder, other_model_folder, tmp_path, monkeypatch
):
    represent_batch._load_model.cache_clear()
    loaded = []
    load = Emmett.load
    monkeypatch.setattr(
        Emmett, "load", lambda folder, **options: loaded.append(folder) or load(folder, **options)
    )
    folder = tmp_path / "model"
    folder.symlink_to(model_folder)
    first = RepresentBatch(folder)
    before = first({"text": TEXTS})["vector"]
    sent = pickle.dumps(first)
    assert len(sent) < 1_000
    np.testing.assert_array_equal(pickle.loads(sent)({"text": TEXTS})["vector"], before)
    assert len(loaded) == 1
    folder.unlink()
    folder.symlink_to(other_model_folder)
    assert not np.array_equal(pickle.loads(sent)({"text": TEXTS})["vector"], before)
    assert len(loaded) == 2


def test_the_paths_do_not_depend_on_the_current_folder(model_folder, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(model_folder.parent)
    represent = RepresentBatch(model_folder.name)
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(represent({"text": TEXTS})["vector"], expected)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"id": ["a"]}, "no column 'text'"),
        ({"text": ["i0"], "vector": [0]}, "already has a column 'vector'"),
        ({"text": [None]}, "not a string"),
        (pa.table({"text": [" "]}), "An empty item"),
    ],
)
def test_batches_that_cannot_be_used(model_folder, batch, message):
    with pytest.raises(DataError, match=message):
        RepresentBatch(model_folder)(batch)


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(ModelError, match="under the same path on every machine"):
        RepresentBatch(tmp_path)({"text": ["i0"]})
