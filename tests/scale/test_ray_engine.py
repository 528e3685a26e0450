"""A real Ray cluster of three nodes on this machine, one of which is killed while its worker is writing."""

import gc
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array, save_npz

from metaxc.classifiers import Classifiers, ridge
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.emmett import Emmett
from metaxc.encoders import Pretrained
from metaxc.errors import ConfigError, MetaxcError
from metaxc.generators import Combine
from metaxc.scale import (
    RayEngine,
    RepresentBatch,
    find_neighbours,
    fit_ridge,
    represent_files,
    represent_lance,
)
from metaxc.selectors import NearestSelector

ray = pytest.importorskip("ray", reason="needs the extra ray: make test-integrations")
from ray.cluster_utils import Cluster  # noqa: E402

PARTITIONS, ROWS = 12, 1_500
"""Each of the three nodes gets several partitions, and each takes long enough to be caught while it is written."""

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}
HEALTH_CHECK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1_000}
"""A dead node is noticed after five missed checks: one a second, in place of one in three seconds."""


@pytest.fixture(scope="module")
def text_model(tiny, shop, tmp_path_factory) -> Path:
    """A model with a small transformer."""
    encoder = Pretrained(tiny)
    embeddings = encoder.encode_items(shop.items.texts[:20])
    weights = normalize_rows(np.random.default_rng(0).normal(size=(20, encoder.dim)))
    classifiers = Classifiers(weights, np.full(20, 5))
    folder = tmp_path_factory.mktemp("ray") / "model"
    Emmett(encoder, classifiers, embeddings, Combine(0.5, 0.1), shop.items, np.arange(20)).save(folder)
    return folder


@pytest.fixture(scope="module")
def texts(shop_words, tmp_path_factory) -> Path:
    """A Parquet file with a row group for each partition, and no text twice."""
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(shop_words, 6)) for _ in range(PARTITIONS * ROWS)]
    file = tmp_path_factory.mktemp("ray") / "items.parquet"
    pq.write_table(pa.table({"id": range(len(lines)), "text": lines}), file, row_group_size=ROWS)
    return file


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head and two more nodes, one CPU each."""
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    made = Cluster(initialize_head=True, head_node_args={**NODE, "_system_config": HEALTH_CHECK})
    try:
        for _ in range(2):
            made.add_node(**NODE)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        patch.undo()


class NodeKiller(threading.Thread):
    """Kills a node, its workers first, as soon as one of them has a partition half written."""

    def __init__(self, cluster: Cluster, out: Path):
        super().__init__(daemon=True)
        self.cluster, self.out, self.node = cluster, out, cluster.list_all_nodes()[-1]
        self.interrupted: str | None = None
        self.finished = threading.Event()

    def run(self) -> None:
        [raylet] = self.node.all_processes["raylet"]
        while self.interrupted is None and not self.finished.wait(0.01):
            for file in self.out.glob(".*.part.parquet"):
                name, pid = re.fullmatch(r"\.(.+)\.(\d+)-\w+\.part\.parquet", file.name).groups()
                workers = psutil.Process(raylet.process.pid).children(recursive=True)
                if int(pid) in [process.pid for process in workers]:
                    for process in workers:
                        process.kill()
                    self.interrupted = name
                    self.cluster.remove_node(self.node, allow_graceful=False)
                    break


def read_all(folder: Path) -> tuple[list[int], np.ndarray]:
    table = pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob("*.parquet")))
    return table["id"].to_pylist(), np.array(table["vector"].to_pylist(), dtype=np.float32)


def test_the_callable_works_with_ray_data(cluster, text_model, texts):
    expected = pq.read_table(texts).slice(0, 50)
    ray.init(cluster.address, log_to_driver=False)
    try:
        for format in ("numpy", "pyarrow"):
            found = (
                ray.data.from_arrow(expected)
                .map_batches(
                    RepresentBatch,
                    fn_constructor_args=(text_model,),
                    fn_constructor_kwargs={"queries": True},
                    compute=ray.data.ActorPoolStrategy(size=1),
                    batch_size=20,
                    batch_format=format,
                )
                .take_all()
            )
            assert [row["id"] for row in found] == list(range(50))
            np.testing.assert_allclose(
                np.stack([row["vector"] for row in found]),
                Emmett.load(text_model).encode_queries(expected["text"]),
                rtol=0,
                atol=1e-6,
            )
    finally:
        ray.shutdown()


def test_errors_of_workers_are_told_after_all_other_partitions_are_written(cluster, text_model, tmp_path):
    texts = ["a cat", " ", "a dog", "", "a cow"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=1)
    represent, out = RepresentBatch(text_model), tmp_path / "out"
    with pytest.raises(MetaxcError, match="An empty item") as raised:
        represent_files(represent, tmp_path / "a.parquet", out, engine=RayEngine(cluster.address, workers=1))
    assert str(raised.value).startswith(
        "2 partitions have failed. The first error:\nA partition of the input cannot be represented\n"
    )
    assert [file.name for file in sorted(out.glob("*.parquet"))] == [f"a-0000{n}.parquet" for n in (0, 2, 4)]
    del raised
    gc.collect()  # what is left of Ray Data must not connect again
    assert not ray.is_initialized()


def test_a_cluster_that_is_not_there_is_told_at_once(text_model, texts, tmp_path):
    with socket.socket() as closed:  # bound, but nobody listens
        closed.bind(("127.0.0.1", 0))
        engine = RayEngine(f"127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(ConfigError, match="cannot be reached"):
            represent_files(RepresentBatch(text_model), texts, tmp_path / "out", engine=engine)


def test_neighbours_and_classifiers_by_shards_on_ray_are_those_of_one_machine(cluster, tmp_path):
    random = np.random.default_rng(0)
    embeddings = normalize_rows(random.normal(size=(900, 32)))
    clicks = csr_array((random.random((500, 400)) < 0.01).astype(np.float32))
    np.save(tmp_path / "items.npy", embeddings[:400])
    np.save(tmp_path / "queries.npy", embeddings[400:])
    save_npz(tmp_path / "clicks.npz", clicks)
    engine = RayEngine(cluster.address)
    rows, scores = find_neighbours(tmp_path / "items.npy", 5, tmp_path / "near", shards=6, engine=engine)
    near, similarities = NearestSelector(embeddings[:400]).select(
        embeddings[:400], 5, exclude_self=np.arange(400)
    )
    np.testing.assert_array_equal(rows, near)
    np.testing.assert_allclose(scores, similarities, atol=1e-6)
    found = fit_ridge(
        tmp_path / "queries.npy", tmp_path / "clicks.npz", tmp_path / "ridge", shards=6, engine=engine
    )
    np.testing.assert_allclose(found.weights, ridge(embeddings[400:], clicks).weights, atol=1e-5)
    assert not ray.is_initialized()


def test_a_lance_dataset_on_ray_is_that_of_one_machine(cluster, text_model, texts, tmp_path):
    lance = pytest.importorskip("lance", reason="needs the extra sync-lance")
    table = pq.read_table(texts).slice(0, 60)
    lance.write_dataset(table, str(tmp_path / "items.lance"), max_rows_per_file=10)
    represent, found = RepresentBatch(text_model), []
    for name, engine in (("ray", {"engine": RayEngine(cluster.address)}), ("here", {})):
        done = represent_lance(represent, tmp_path / "items.lance", tmp_path / f"{name}.lance", **engine)
        assert (done.partitions, done.rows) == (6, 60)
        found.append(lance.dataset(str(tmp_path / f"{name}.lance")).to_table())
    assert found[0]["id"].to_pylist() == found[1]["id"].to_pylist() == list(range(60))
    vectors = [np.array(one["vector"].to_pylist(), dtype=np.float32) for one in found]
    np.testing.assert_allclose(*vectors, rtol=0, atol=1e-6)
    assert not ray.is_initialized()


def test_a_node_is_killed_in_the_middle_and_the_output_is_that_of_one_machine(
    cluster, text_model, texts, tmp_path
):
    represent, out = RepresentBatch(text_model), tmp_path / "ray"
    killer = NodeKiller(cluster, out)
    killer.start()
    try:
        done = represent_files(represent, texts, out, engine=RayEngine(cluster.address))
    finally:
        killer.finished.set()
        killer.join()
    assert killer.interrupted is not None, "the node was killed while it wrote a partition"
    assert (out / killer.interrupted).exists()
    assert (done.partitions, done.rows, done.kept) == (PARTITIONS, PARTITIONS * ROWS, 0)
    assert not list(out.glob(".*.part.parquet"))
    represent_files(represent, texts, tmp_path / "here")
    (ids, found), (expected_ids, expected) = read_all(out), read_all(tmp_path / "here")
    assert not ray.is_initialized()
    assert ids == expected_ids == list(range(PARTITIONS * ROWS))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
