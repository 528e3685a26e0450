import os
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from metaxc.catalog.catalog_errors import CatalogError, StorageError
from metaxc.catalog.schema import QUERIES, TableChecksum, row_checksum
from metaxc.catalog.store import Store

WRITER = """
import sys, pathlib
from metaxc.catalog.schema import QUERIES
from metaxc.catalog.store import Store
store = Store(pathlib.Path(sys.argv[1]))
for number in range(1, 1000):
    with store.transaction() as transaction:
        transaction.put(QUERIES, (number, f"text {number}", bytes(4000)))
    print(number, flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    store = Store.create(tmp_path / "store", {"dim": "4"})
    for number in range(1, 30):
        with store.transaction() as transaction:
            transaction.put(QUERIES, (number, f"text {number}", bytes(range(200))))
    store.close()
    return tmp_path / "store"


def texts(store):
    return [row[0] for row in store.fetch_all("SELECT text FROM queries ORDER BY number")]


def killed(folder, after):
    """The store of a process that was killed after this many acknowledged transactions."""
    shutil.rmtree(folder)
    Store.create(folder, {"dim": "4"}).close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
    for line in writer.stdout:
        if int(line) == after:
            break
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    return folder


def test_acknowledged_writes_survive_a_kill(folder):
    store = Store(killed(folder, 25))
    assert texts(store)[:25] == [f"text {number}" for number in range(1, 26)]
    store.close()


def test_a_write_ahead_log_that_has_lost_its_tail_is_noticed(folder):
    """SQLite silently drops the damaged tail of a log; the acknowledged sequence number shows that it did."""
    wal = killed(folder, 25) / "catalog.sqlite-wal"
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 0xFF
    wal.write_bytes(content)
    with pytest.raises(CatalogError, match="acknowledged"):
        Store(folder)
    accepted = Store.recover(folder)
    assert 0 < len(texts(accepted)) < 25
    left = accepted.sequence
    accepted.close()
    again = Store(folder)
    assert again.sequence == left
    again.close()


def test_lost_changed_and_resurrected_rows_are_noticed(folder):
    """Such rows come from a page of an older state, or from another program."""
    (folder / "closed.json").unlink()
    for statement, why in (
        ("DELETE FROM queries WHERE number = 7", "missing"),
        ("UPDATE queries SET text = 'other' WHERE number = 7", "row 7 of the table queries"),
        ("UPDATE facts SET value = '5' WHERE name = 'dim'", "metadata"),
        ("CREATE TABLE more (a)", "tables"),
        ("DROP INDEX items_by_state", "tables"),
    ):
        copy = folder.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        with sqlite3.connect(copy / "catalog.sqlite") as connection:
            connection.execute(statement)
        connection.close()
        with pytest.raises(CatalogError, match=why):
            Store(copy)


@pytest.mark.parametrize("how", ["flip", "truncate", "zero", "empty"])
@pytest.mark.parametrize("name", ["catalog.sqlite", "closed.json", "mark"])
def test_damage_to_any_file_of_a_closed_store_is_noticed(folder, name, how):
    file = folder / name
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    if how == "flip":
        content[middle] ^= 1
    elif how == "zero":
        content[: min(64, len(content))] = bytes(min(64, len(content)))
    else:
        content = content[: middle if how == "truncate" else 0]
    assert content != file.read_bytes()
    file.write_bytes(content)
    with pytest.raises(CatalogError, match="damaged"):
        Store(folder)


def test_a_failed_transaction_leaves_nothing(folder):
    store = Store(folder)

    def half():
        with store.transaction() as transaction:
            transaction.put(QUERIES, (100, "half", b""))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert len(texts(store)) == 29
    with store.transaction() as transaction:
        transaction.put(QUERIES, (100, "whole", b""))
    assert texts(store)[-1] == "whole"
    store.close()
    Store(folder).close()


def test_a_read_only_store_refuses_to_write(folder):
    store = Store(folder, read_only=True)
    with pytest.raises(CatalogError, match="reading only"), store.transaction():
        pass
    store.close()
    assert (folder / "closed.json").exists()


def test_row_checksums_depend_on_types_and_on_where_values_end():
    rows = [
        ("a", "bc"),
        ("ab", "c"),
        (b"a", "bc"),
        ("a", "bc", None),
        (1,),
        (1.0,),
        ("1",),
        (None,),
        ("",),
        (b"",),
    ]
    assert len({row_checksum("t", row) for row in rows}) == len(rows)
    assert row_checksum("t", (1,)) != row_checksum("u", (1,))


def test_a_table_checksum_does_not_depend_on_the_order_of_rows():
    first, second = TableChecksum(), TableChecksum()
    digests = [row_checksum("t", (number,)) for number in range(5)]
    for digest in digests:
        first.add(digest)
    for digest in reversed(digests):
        second.add(digest)
    second.add(digests[0])
    assert str(first) != str(second)
    second.remove(digests[0])
    assert str(first) == str(second) == str(TableChecksum(str(first)))


@pytest.mark.skipif(not hasattr(os, "pwrite"), reason="needs a POSIX system")
def test_a_full_disk_is_a_storage_error(folder):
    """A limit on the database's size stands in for the disk; benchmarks/reliability fills a real one."""
    store = Store(folder)
    store._writer.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StorageError, match="Disk full"), store.transaction() as transaction:
        transaction.put(QUERIES, (100, "long", bytes(5_000_000)))
    assert len(texts(store)) == 29
    store.close()
