"""Catalogs on read-only file systems, and commits whose sync fails."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from metaxc.catalog import Catalog, CatalogError, NewItem, StorageError
from metaxc.catalog.schema import QUERIES
from metaxc.catalog.store import Store

FAULTS = """
import os, pathlib, sys
from metaxc.catalog.catalog_errors import OutcomeUnknownError, StorageError
from metaxc.catalog.schema import QUERIES
from metaxc.catalog.store import Store
store = Store(pathlib.Path(sys.argv[1]))
for number in range(1, int(sys.argv[2]) + 1):
    try:
        with store.transaction() as transaction:
            transaction.put(QUERIES, (number, f"text {number}", b""))
        print("acknowledged", flush=True)
    except OutcomeUnknownError:
        print("unknown", flush=True)
    except StorageError:
        print("refused", flush=True)
os._exit(0)
"""


@pytest.fixture
def read_only_disk(tmp_path):
    """A function that mounts a folder read-only and returns where."""
    mounted = []

    def mount(folder):
        place = tmp_path / f"mount{len(mounted)}"
        place.mkdir()
        done = subprocess.run(["mount", "--bind", folder, place], capture_output=True)
        if done.returncode:
            pytest.skip("nothing can be mounted here")
        mounted.append(place)
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", place], check=True)


def test_a_closed_catalog_is_read_on_a_read_only_disk(catalog, folder, model, read_only_disk):
    catalog.close()
    place = read_only_disk(folder)
    with Catalog.open(place, model, read_only=True) as reader:
        assert reader.search(["t0"], 3)[0]
        assert reader.store.replaced is False
        with Catalog.open(
            folder, model
        ) as writer:  # the same files elsewhere: the disk is not read-only for all
            writer.add([NewItem("new", "i4")])
            with pytest.raises(CatalogError, match="open it again"):
                reader.search(["t0"], 3)
            with Catalog.open(place, model, read_only=True) as again:
                assert "new" in again
    with Catalog.open(place, model, read_only=True) as again:
        assert "new" in again


def test_a_catalog_on_a_read_only_disk_is_not_opened_for_writing(catalog, folder, model, read_only_disk):
    catalog.close()
    with pytest.raises(StorageError, match="reading only"):
        Catalog.open(read_only_disk(folder), model)


def test_the_log_of_a_killed_process_is_read_on_a_read_only_disk(
    catalog, folder, model, tmp_path, read_only_disk
):
    catalog.add([NewItem("new", "i4")])
    shutil.copytree(folder, tmp_path / "killed")
    with Catalog.open(read_only_disk(tmp_path / "killed"), model, read_only=True) as reader:
        assert "new" in reader
    (generation,) = (tmp_path / "killed").glob("gen-*")
    (generation / "catalog.sqlite-shm").unlink()
    with pytest.raises(StorageError, match="copy the catalog to a writable folder"):
        Catalog.open(read_only_disk(tmp_path / "killed"), model, read_only=True)


@pytest.fixture(scope="module")
def log_syncs(tmp_path_factory):
    """The numbers of the syncs of the log among all syncs of the child process."""
    place = tmp_path_factory.mktemp("traced")
    Store.create(place / "store", {"dim": "4"}).close()
    if shutil.which("strace") is None or not _traced(place / "store", 1, place / "log"):
        pytest.skip("strace may not trace here")
    lines = (place / "log").read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if re.search("sqlite-wal>", line)]


@pytest.mark.parametrize(
    ("sync", "lasting", "expected"),
    [
        (0, False, ["refused"]),  # that of the log's header
        (1, False, ["refused"]),  # that of a commit, all of which is in the log: the next sync works
        (1, False, ["refused", "acknowledged"]),
        (1, True, ["unknown", "unknown"]),  # the disk is gone
    ],
)
def test_a_write_whose_sync_fails_is_refused_for_good_or_its_outcome_is_unknown(
    tmp_path, log_syncs, sync, lasting, expected
):
    Store.create(tmp_path / "store", {"dim": "4"}).close()
    fault = f"inject=fdatasync:error=EIO:when={log_syncs[sync]}{'+' if lasting else ''}"
    assert _traced(tmp_path / "store", len(expected), tmp_path / "log", "-e", fault) == expected
    with Store(tmp_path / "store") as store:
        found = {row[0] for row in store.fetch_all("SELECT number FROM queries")}
    answers = dict(enumerate(expected, 1))
    assert {number for number, answer in answers.items() if answer == "acknowledged"} <= found
    assert not {number for number, answer in answers.items() if answer == "refused"} & found


def _traced(folder, writes, log, *options):
    """What each write was answered, without an orderly end; `log` lists the syncs of the database."""
    command = ["strace", "-f", "--seccomp-bpf", "-y", "-qq", "-o", log, "-e", "trace=fdatasync", *options]
    done = subprocess.run(
        [*command, sys.executable, "-c", FAULTS, folder, str(writes)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return done.stdout.split()


def test_a_transaction_after_a_refused_one_is_written(tmp_path):
    """The empty transaction that takes the place of a failed one leaves the checksums of all tables right."""
    with Store.create(tmp_path / "store", {"dim": "4"}) as store:
        store._unsettled = True
        with store.transaction() as transaction:
            transaction.put(QUERIES, (1, "text", b""))
        assert store.sequence == 2
        store.verify()
