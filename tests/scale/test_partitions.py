"""Parquet files are represented by row group; what is complete stays, what is unfinished or foreign is never used."""

import json
import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from metaxc.emmett import Emmett
from metaxc.errors import ConfigError, DataError
from metaxc.scale import RepresentBatch, represent_files, work_here
from metaxc.scale.partitions import LOCK, RECORD, list_partitions

OUTPUTS = [
    "a-00000.parquet",
    "a-00001.parquet",
    "a-00002.parquet",
    "more/b-00000.parquet",
    "more/b-00001.parquet",
]


class StoppedError(Exception):
    pass


class Recorded:
    """The engine of this process, with a record of the partitions; stops after some of them."""

    def __init__(self, most: int = 99):
        self.most, self.written = most, []

    def __call__(self, writer, partitions) -> Iterator[int]:
        for one in partitions:
            if len(self.written) == self.most:
                raise StoppedError
            yield from work_here(writer, [one])
            self.written.append(one.output.name)


def outputs(folder):
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.parquet"))


def read(file):
    return np.array(pq.read_table(file)["vector"].to_pylist(), dtype=np.float32)


@pytest.fixture
def represent(model_folder):
    return RepresentBatch(model_folder)


def test_each_row_group_becomes_a_file_with_its_columns_and_the_model(represent, items, tmp_path):
    reported = []
    done = represent_files(represent, items, tmp_path / "out", report=lambda *rows: reported.append(rows))
    assert (done.partitions, done.rows, done.kept) == (5, 42, 0)
    assert reported == [(0, 42), (10, 42), (20, 42), (30, 42), (40, 42), (42, 42)]
    assert outputs(tmp_path / "out") == OUTPUTS
    model = Emmett.load(represent.folder)
    file = tmp_path / "out" / "a-00001.parquet"
    table = pq.read_table(file)
    assert table.column_names == ["id", "text", "price", "vector"]
    assert table["id"].to_pylist() == [f"i{number}" for number in range(10, 20)]
    assert table["price"].to_pylist() == list(range(10, 20))
    assert table.schema.field("vector").type == pa.list_(pa.float32(), model.encoder.dim + 1)
    np.testing.assert_array_equal(read(file), model.represent(table["text"]))
    record = json.loads(pq.read_metadata(file).metadata[RECORD])
    assert record["model"] == represent.identity["model"]
    assert (record["source"], record["row_group"]) == ("a.parquet", 1)


def test_batches_of_a_row_group_are_all_written(represent, items, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.scale.partitions.BATCH_ROWS", 4)
    represent_files(represent, items, tmp_path / "out")
    found = pq.read_table(tmp_path / "out" / "a-00000.parquet")
    assert found["id"].to_pylist() == [f"i{number}" for number in range(10)]


def test_a_single_file_of_queries(model_folder, tmp_path):
    pq.write_table(pa.table({"text": ["t0", "t5"]}), tmp_path / "queries.parquet")
    represent = RepresentBatch(model_folder, queries=True, exposure=0.5)
    represent_files(represent, tmp_path / "queries.parquet", tmp_path / "out")
    expected = Emmett.load(model_folder).encode_queries(["t0", "t5"], 0.5)
    np.testing.assert_array_equal(read(tmp_path / "out" / "queries-00000.parquet"), expected)
    other = RepresentBatch(model_folder, queries=True)
    with pytest.raises(ConfigError, match="another exposure"):
        represent_files(other, tmp_path / "queries.parquet", tmp_path / "out")
    with pytest.raises(ConfigError, match="another kind"):
        represent_files(RepresentBatch(model_folder), tmp_path / "queries.parquet", tmp_path / "out")


def test_a_stopped_run_resumes_with_the_partitions_that_are_missing(represent, items, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(StoppedError):
        represent_files(represent, items, out, engine=Recorded(2))
    assert outputs(out) == OUTPUTS[:2]
    before = [(out / name).stat().st_mtime_ns for name in OUTPUTS[:2]]
    second, reported = Recorded(), []
    done = represent_files(represent, items, out, engine=second, report=lambda *rows: reported.append(rows))
    assert second.written == ["a-00002.parquet", "b-00000.parquet", "b-00001.parquet"]
    assert done.kept == 2
    assert reported[0] == (20, 42)
    assert [(out / name).stat().st_mtime_ns for name in OUTPUTS[:2]] == before
    third = Recorded()
    assert represent_files(represent, items, out, engine=third).kept == 5
    assert third.written == []


def test_what_a_killed_process_left_is_neither_used_nor_kept(represent, items, tmp_path):
    out = tmp_path / "out"
    represent_files(represent, items, out)
    whole = (out / "a-00000.parquet").read_bytes()
    left = out / ".a-00000.parquet.123-0a1b2c3d.part.parquet"
    (out / "a-00000.parquet").rename(left)
    left.write_bytes(whole[: len(whole) // 2])
    engine = Recorded()
    represent_files(represent, items, out, engine=engine)
    assert engine.written == ["a-00000.parquet"]
    assert outputs(out) == OUTPUTS
    assert (out / "a-00000.parquet").read_bytes() == whole


def test_what_a_lost_worker_left_is_removed_at_the_end(represent, items, tmp_path):
    left = tmp_path / "out" / "more" / ".b-00000.parquet.123-0a1b2c3d.part.parquet"

    def lose_a_worker(writer, partitions):
        yield from work_here(writer, partitions)
        left.touch()

    represent_files(represent, items, tmp_path / "out", engine=lose_a_worker)
    assert not left.exists()


def test_a_partition_that_another_worker_has_completed_is_not_written_again(represent, items, tmp_path):
    found = []

    def twice(writer, partitions):
        for one in partitions:
            yield writer(one)
            before = one.output.stat()
            assert writer(one) == one.rows
            found.append((one.output.stat().st_ino, one.output.stat().st_mtime_ns))
            assert found[-1] == (before.st_ino, before.st_mtime_ns)

    represent_files(represent, items, tmp_path / "out", engine=twice)
    assert len(found) == 5


def test_workers_get_absolute_paths(represent, items, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def elsewhere(writer, partitions):
        monkeypatch.chdir("/")
        return work_here(writer, partitions)

    represent_files(represent, "items", "out", engine=elsewhere)
    assert outputs(tmp_path / "out") == OUTPUTS


def test_an_error_in_a_partition_leaves_no_file_of_it_and_names_the_place(represent, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.scale.partitions.BATCH_ROWS", 1)
    texts = ["i0", "i1", "i2", "unheard of"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=2)
    with pytest.raises(DataError, match=r"a\.parquet, row group 1: .*vector(?s:.*)--overwrite"):
        represent_files(represent, tmp_path / "a.parquet", tmp_path / "out")
    assert outputs(tmp_path / "out") == ["a-00000.parquet"]


def test_vectors_of_another_model_are_refused_and_replaced_only_when_asked(
    represent, other_model_folder, items, tmp_path
):
    out, other = tmp_path / "out", RepresentBatch(other_model_folder)
    represent_files(represent, items, out)
    before = read(out / OUTPUTS[0])
    with pytest.raises(ConfigError, match="vectors of another model"):
        represent_files(other, items, out)
    np.testing.assert_array_equal(read(out / OUTPUTS[0]), before)
    assert represent_files(other, items, out, overwrite=True).kept == 0
    assert not np.array_equal(read(out / OUTPUTS[0]), before)


def test_the_exposure_of_a_model_does_not_matter_for_items(world, represent, items, tmp_path):
    from world_model import build_model

    from metaxc.emmett import Calibration

    build_model(world, calibration=Calibration(novelty_prior=3.0, exposure=0.7)).save(tmp_path / "model")
    represent_files(represent, items, tmp_path / "out")
    assert represent_files(RepresentBatch(tmp_path / "model"), items, tmp_path / "out").kept == 5


def test_a_changed_input_is_noticed(represent, items, tmp_path):
    out = tmp_path / "out"
    represent_files(represent, items, out)
    facts = (items / "a.parquet").stat()
    os.utime(items / "a.parquet", ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    with pytest.raises(ConfigError, match=r"vectors of another input(?s:.*)--overwrite"):
        represent_files(represent, items, out)
    assert represent_files(represent, items, out, overwrite=True).kept == 2


def test_outputs_of_files_that_are_gone_are_noticed(represent, items, tmp_path):
    out = tmp_path / "out"
    represent_files(represent, items, out)
    (items / "more" / "b.parquet").unlink()
    with pytest.raises(ConfigError, match="vectors of another input"):
        represent_files(represent, items, out)
    represent_files(represent, items, out, overwrite=True)
    assert outputs(out) == OUTPUTS[:3]


@pytest.mark.parametrize("name", ["notes.txt", "a-00000.parquet"])
def test_other_files_are_never_replaced(represent, items, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    with pytest.raises(ConfigError, match="has not written"):
        represent_files(represent, items, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / name).read_text() == "mine"


def test_a_worker_with_another_model_does_not_write(represent, other_model_folder, items, tmp_path):
    def elsewhere(writer, partitions):
        writer.represent.__dict__["identity"] = RepresentBatch(other_model_folder).identity
        return work_here(writer, partitions)

    with pytest.raises(ConfigError, match="A worker has another model"):
        represent_files(represent, items, tmp_path / "out", engine=elsewhere)
    assert outputs(tmp_path / "out") == []


def test_two_runs_at_once(represent, items, tmp_path):
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / LOCK), pytest.raises(ConfigError, match="Another process is writing"):
        represent_files(represent, items, tmp_path / "out")


def test_the_input_is_not_the_output(represent, items, tmp_path):
    for out in (items, items / "out", tmp_path):
        with pytest.raises(ConfigError, match="source"):
            represent_files(represent, items, out)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="not a folder"):
        represent_files(represent, items, tmp_path / "file")


def test_inputs_that_cannot_be_used(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(DataError, match="no rows"):
        list_partitions(folder, tmp_path / "out")
    pq.write_table(pa.table({"text": ["i0"]}), folder / "_hidden.parquet")
    with pytest.raises(DataError, match="no rows"):
        list_partitions(folder, tmp_path / "out")
    for columns, file in (({"title": ["x"]}, "a"), ({"text": ["x"], "vector": [1.0]}, "b")):
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")
        with pytest.raises(DataError, match=f"{file}.parquet(?s:.*)a column 'text'"):
            list_partitions(folder / f"{file}.parquet", tmp_path / "out")
    (folder / "c.parquet").write_text("no Parquet")
    with pytest.raises(DataError, match="cannot be read"):
        list_partitions(folder / "c.parquet", tmp_path / "out")
    with pytest.raises(DataError, match="cannot be read"):
        list_partitions(folder / "missing.parquet", tmp_path / "out")
