"""Lance datasets are represented by fragment: committed when all is complete, resumed, refused if they do not fit."""

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from filelock import FileLock
from item_tables import write_items

from metaxc.errors import ConfigError, DataError, MetaxcError
from metaxc.scale import RepresentBatch, represent_files, represent_lance, work_here
from metaxc.scale.partitions import LOCK, RECORD

lance = pytest.importorskip("lance", reason="needs the extra sync-lance")


class StoppedError(Exception):
    pass


class Recorded:
    """The engine of this process, with a record of the fragments; stops after some of them."""

    def __init__(self, most: int = 99):
        self.most, self.written = most, []

    def __call__(self, writer, partitions) -> Iterator[int]:
        for one in partitions:
            if len(self.written) == self.most:
                raise StoppedError
            yield from work_here(writer, [one])
            self.written.append(one.fragment)


def table(numbers) -> pa.Table:
    texts = [f"i{number}" for number in numbers]
    return pa.table({"id": texts, "text": texts, "price": np.arange(len(texts))})


def files(out) -> dict[str, int]:
    """Inode of each data file and record: another one was written again."""
    return {
        path.name: path.stat().st_ino for part in ("data", "_represent") for path in (out / part).iterdir()
    }


def read(out) -> np.ndarray:
    return np.array(lance.dataset(str(out)).to_table()["vector"].to_pylist(), dtype=np.float32)


def check_vectors(out, represent, numbers) -> None:
    """Those of the library, but for rounding: a fragment is one batch, and here all texts are."""
    np.testing.assert_allclose(read(out), represent.vectors([f"i{n}" for n in numbers]), rtol=0, atol=1e-6)


@pytest.fixture
def represent(model_folder):
    return RepresentBatch(model_folder)


@pytest.fixture
def source(tmp_path):
    """A dataset of 42 items in fragments of 10: five partitions."""
    lance.write_dataset(table(range(42)), str(tmp_path / "items.lance"), max_rows_per_file=10)
    return tmp_path / "items.lance"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "vectors.lance"


def test_the_output_has_the_rows_of_the_input_and_the_vectors_of_parquet(represent, source, out, tmp_path):
    reported = []
    done = represent_lance(represent, source, out, report=lambda *rows: reported.append(rows))
    assert (done.partitions, done.rows, done.kept) == (5, 42, 0)
    assert reported == [(0, 42), (10, 42), (20, 42), (30, 42), (40, 42), (42, 42)]
    opened = lance.dataset(str(out))
    assert opened.version == 1
    assert [one.count_rows() for one in opened.get_fragments()] == [10, 10, 10, 10, 2]
    found = opened.to_table()
    assert found.select(["id", "text", "price"]).equals(table(range(42)))
    assert found.schema.field("vector").type == pa.list_(pa.float32(), represent.model.encoder.dim + 1)
    assert json.loads(opened.schema.metadata[RECORD]) == represent.identity
    write_items(tmp_path / "items.parquet", range(42))
    represent_files(represent, tmp_path / "items.parquet", tmp_path / "parquet")
    parquet = pa.parquet.read_table(tmp_path / "parquet")
    np.testing.assert_array_equal(read(out), np.array(parquet["vector"].to_pylist(), dtype=np.float32))


def test_batches_of_a_fragment_are_all_written(represent, source, out, monkeypatch):
    monkeypatch.setattr("metaxc.scale.lance_fragments.BATCH_ROWS", 4)
    represent_lance(represent, source, out)
    assert lance.dataset(str(out)).to_table(columns=["id", "text", "price"]).equals(table(range(42)))


def test_a_stopped_run_is_not_visible_and_resumes_with_the_fragments_that_are_missing(represent, source, out):
    with pytest.raises(StoppedError):
        represent_lance(represent, source, out, engine=Recorded(2))
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(str(out))
    before = files(out)
    assert len(before) == 4  # two data files, two records
    second, reported = Recorded(), []
    done = represent_lance(represent, source, out, engine=second, report=lambda *rows: reported.append(rows))
    assert second.written == [2, 3, 4]
    assert done.kept == 2
    assert reported[0] == (20, 42)
    assert before.items() <= files(out).items()
    assert lance.dataset(str(out)).to_table()["id"].to_pylist() == table(range(42))["id"].to_pylist()
    third = Recorded()
    assert represent_lance(represent, source, out, engine=third).kept == 5
    assert third.written == []
    assert lance.dataset(str(out)).version == 1


def test_a_run_that_was_stopped_before_its_commit_only_commits(represent, source, out, monkeypatch):
    monkeypatch.setattr("metaxc.scale.lance_partitions._commit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        represent_lance(represent, source, out)
    monkeypatch.undo()
    engine = Recorded()
    assert represent_lance(represent, source, out, engine=engine).kept == 5
    assert engine.written == []
    assert lance.dataset(str(out)).count_rows() == 42


def test_what_a_killed_process_left_is_neither_used_nor_kept(represent, source, out):
    with pytest.raises(StoppedError):
        represent_lance(represent, source, out, engine=Recorded(1))
    [whole] = (out / "data").iterdir()
    (out / "data" / "0123.lance").write_bytes(whole.read_bytes()[:100])
    (out / "_represent" / ".000003-0a.json.123-0a1b2c3d.part.json").touch()
    represent_lance(represent, source, out)
    assert len(list((out / "data").iterdir())) == len(list((out / "_represent").iterdir())) == 5
    assert whole.exists()


def test_a_data_file_that_was_cut_off_is_written_again(represent, source, out):
    with pytest.raises(StoppedError):
        represent_lance(represent, source, out, engine=Recorded(1))
    [whole] = (out / "data").iterdir()
    whole.write_bytes(whole.read_bytes()[:-1])
    engine = Recorded()
    represent_lance(represent, source, out, engine=engine)
    assert engine.written == [0, 1, 2, 3, 4]
    check_vectors(out, represent, range(42))


def test_a_partition_that_another_worker_has_completed_is_not_written_again(represent, source, out):
    def twice(writer, partitions):
        for one in partitions:
            yield writer(one)
            before = files(out)
            assert writer(one) == one.rows
            assert files(out) == before

    assert represent_lance(represent, source, out, engine=twice).rows == 42


def test_workers_get_absolute_paths(represent, source, out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def elsewhere(writer, partitions):
        monkeypatch.chdir("/")
        return work_here(writer, partitions)

    represent_lance(represent, source.name, out.name, engine=elsewhere)
    assert lance.dataset(str(out)).count_rows() == 42


def test_vectors_of_another_model_are_refused_and_replaced_only_when_asked(
    represent, other_model_folder, source, out
):
    other = RepresentBatch(other_model_folder)
    represent_lance(represent, source, out)
    before = read(out)
    with pytest.raises(ConfigError, match=r"vectors of another model(?s:.*)--overwrite"):
        represent_lance(other, source, out)
    with pytest.raises(StoppedError):
        represent_lance(other, source, out, engine=Recorded(3), overwrite=True)
    np.testing.assert_array_equal(read(out), before)  # until the new ones are complete
    engine = Recorded()
    assert represent_lance(other, source, out, engine=engine, overwrite=True).kept == 3
    assert engine.written == [3, 4]
    check_vectors(out, other, range(42))
    assert len(files(out)) == 10  # nothing of the first model
    assert len(lance.dataset(str(out)).versions()) == 1
    assert json.loads(lance.dataset(str(out)).schema.metadata[RECORD]) == other.identity
    assert represent_lance(other, source, out).kept == 5


def test_vectors_of_another_kind_are_refused(model_folder, tmp_path, out):
    queries = tmp_path / "queries.lance"
    lance.write_dataset(pa.table({"text": ["t0", "t5"]}), str(queries))
    represent = RepresentBatch(model_folder, queries=True, exposure=0.5)
    represent_lance(represent, queries, out)
    np.testing.assert_array_equal(read(out), represent.model.encode_queries(["t0", "t5"], 0.5))
    with pytest.raises(ConfigError, match="another exposure"):
        represent_lance(RepresentBatch(model_folder, queries=True), queries, out)


def test_fragments_that_were_added_to_the_input_are_added_to_the_output(represent, source, out):
    represent_lance(represent, source, out)
    before = files(out)
    lance.dataset(str(out)).create_scalar_index("price", "BTREE")
    lance.write_dataset(table(range(100, 105)), str(source), mode="append")
    engine = Recorded()
    assert represent_lance(represent, source, out, engine=engine).kept == 5
    assert engine.written == [5]
    assert before.items() <= files(out).items()
    opened = lance.dataset(str(out))
    assert opened.to_table()["id"].to_pylist()[-6:] == ["i41", *(f"i{n}" for n in range(100, 105))]
    assert len(opened.describe_indices()) == 1


def test_a_changed_input_is_noticed(represent, source, out):
    represent_lance(represent, source, out)
    lance.dataset(str(source)).delete("id = 'i15'")
    with pytest.raises(ConfigError, match=r"vectors of another input(?s:.*)fragment 1(?s:.*)as it is now"):
        represent_lance(represent, source, out)
    engine = Recorded()
    assert represent_lance(represent, source, out, engine=engine, overwrite=True).kept == 4
    assert engine.written == [1]
    assert "i15" not in lance.dataset(str(out)).to_table()["id"].to_pylist()
    check_vectors(out, represent, [n for n in range(42) if n != 15])
    lance.dataset(str(source)).delete("id in ('i40', 'i41')")  # the fragment is gone
    with pytest.raises(ConfigError, match=r"another input(?s:.*)fragment 4(?s:.*)of this input alone"):
        represent_lance(represent, source, out)


def test_an_error_in_a_fragment_names_the_place_and_leaves_the_others(represent, tmp_path, out, monkeypatch):
    monkeypatch.setattr("metaxc.scale.lance_fragments.BATCH_ROWS", 1)
    texts = ["i0", "i1", "i2", "unheard of"]
    lance.write_dataset(pa.table({"text": texts}), str(tmp_path / "a.lance"), max_rows_per_file=2)
    with pytest.raises(DataError, match=r"a\.lance, fragment 1: .*vector(?s:.*)--overwrite"):
        represent_lance(represent, tmp_path / "a.lance", out)
    assert len(files(out)) == 2
    assert not (out / "_versions").exists()


def change(out, how):
    opened = lance.dataset(str(out))
    if how == "deleted":
        opened.delete("id = 'i3'")
    elif how == "compacted":
        opened.optimize.compact_files(target_rows_per_fragment=1000)
    else:
        lance.write_dataset(opened.to_table().slice(0, 3), str(out), mode="append")


@pytest.mark.parametrize("how", ["deleted", "compacted", "appended"])
def test_a_dataset_that_was_changed_is_never_replaced(represent, source, out, how):
    represent_lance(represent, source, out)
    change(out, how)
    before = lance.dataset(str(out)).to_table()
    with pytest.raises(ConfigError, match="was changed since"):
        represent_lance(represent, source, out, overwrite=True)
    assert lance.dataset(str(out)).to_table().equals(before)


def test_other_folders_are_never_replaced(represent, source, out, tmp_path):
    lance.write_dataset(table(range(3)), str(out))
    with pytest.raises(ConfigError, match="has not written"):
        represent_lance(represent, source, out, overwrite=True)
    assert lance.dataset(str(out)).count_rows() == 3
    for place in (source, source / "out.lance"):
        with pytest.raises(ConfigError, match="source"):
            represent_lance(represent, source, place)


def test_a_worker_with_another_model_does_not_write(represent, other_model_folder, source, out):
    def elsewhere(writer, partitions):
        writer.represent.__dict__["identity"] = RepresentBatch(other_model_folder).identity
        return work_here(writer, partitions)

    with pytest.raises(ConfigError, match="A worker has another model"):
        represent_lance(represent, source, out, engine=elsewhere)
    assert not (out / "data").exists()


def test_an_engine_that_leaves_partitions_out_commits_nothing(represent, source, out):
    with pytest.raises(MetaxcError, match="no vectors"):
        represent_lance(represent, source, out, engine=lambda writer, ones: work_here(writer, ones[1:]))
    assert not (out / "_versions").exists()


def test_two_runs_at_once(represent, source, out):
    out.mkdir()
    with FileLock(out / LOCK), pytest.raises(ConfigError, match="Another process is writing"):
        represent_lance(represent, source, out)


def test_inputs_that_cannot_be_used(represent, tmp_path, out):
    with pytest.raises(DataError, match=r"missing\.lance(?s:.*)a Lance dataset"):
        represent_lance(represent, tmp_path / "missing.lance", out)
    lance.write_dataset(pa.table({"title": ["x"]}), str(tmp_path / "a.lance"))
    with pytest.raises(DataError, match="a column 'text'"):
        represent_lance(represent, tmp_path / "a.lance", out)
    lance.write_dataset(pa.table({"text": pa.array([], pa.string())}), str(tmp_path / "b.lance"))
    with pytest.raises(DataError, match="no rows"):
        represent_lance(represent, tmp_path / "b.lance", out)
    assert not out.exists()
