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
def place(tmp_path):
    store = Store.create(tmp_path / "record", {"dim": "4"})
    for number in range(1, 30):
        with store.transaction() as transaction:
            transaction.put(QUERIES, (number, f"text {number}", bytes(range(200))))
    store.close()
    return tmp_path / "record"


def texts(store):
    return [row[0] for row in store.fetch_all("SELECT text FROM queries ORDER BY number")]


def killed(place, after):
    """The record as a process left it that was killed after so many acknowledged writes."""
    shutil.rmtree(place)
    Store.create(place, {"dim": "4"}).close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(place)], stdout=subprocess.PIPE, text=True)
    for line in writer.stdout:
        if int(line) == after:
            break
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    return place


def test_what_was_acknowledged_survives_a_kill(place):
    store = Store(killed(place, 25))
    assert texts(store)[:25] == [f"text {number}" for number in range(1, 26)]
    store.close()


def test_a_log_that_lost_its_end_is_told(place):
    """SQLite drops the damaged end of a log without a word: the mark knows better."""
    wal = killed(place, 25) / "catalog.sqlite-wal"
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 0xFF
    wal.write_bytes(content)
    with pytest.raises(CatalogError, match="acknowledged"):
        Store(place)
    accepted = Store.recover(place)
    assert 0 < len(texts(accepted)) < 25
    left = accepted.sequence
    accepted.close()
    again = Store(place)
    assert again.sequence == left
    again.close()


def test_rows_that_are_lost_changed_or_revived_are_told(place):
    """As a page of an older state would do, or one that another program wrote."""
    (place / "closed.json").unlink()
    for statement, why in (
        ("DELETE FROM queries WHERE number = 7", "missing"),
        ("UPDATE queries SET text = 'other' WHERE number = 7", "row 7 of the table queries"),
        ("UPDATE facts SET value = '5' WHERE name = 'dim'", "metadata"),
        ("CREATE TABLE more (a)", "tables"),
        ("INSERT INTO tags VALUES ('tag', 1)", "tags"),
    ):
        copy = place.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        with sqlite3.connect(copy / "catalog.sqlite") as connection:
            connection.execute(statement)
        connection.close()
        with pytest.raises(CatalogError, match=why):
            Store(copy)


@pytest.mark.parametrize("how", ["flip", "truncate", "zero", "empty"])
@pytest.mark.parametrize("name", ["catalog.sqlite", "closed.json", "mark"])
def test_every_file_of_a_closed_record_is_looked_at(place, name, how):
    file = place / name
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
        Store(place)


def test_a_transaction_that_fails_leaves_nothing(place):
    store = Store(place)

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
    Store(place).close()


def test_a_reader_cannot_write(place):
    store = Store(place, read_only=True)
    with pytest.raises(CatalogError, match="reading only"), store.transaction():
        pass
    store.close()
    assert (place / "closed.json").exists()


def test_digests_tell_types_and_borders_apart():
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


def test_a_sum_does_not_depend_on_the_order():
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
def test_a_disk_that_is_full_is_a_storage_error(place):
    """A limit on the record's size stands in for the disk here; the real thing is in benchmarks/reliability."""
    store = Store(place)
    store._writer.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StorageError, match="Disk full"), store.transaction() as transaction:
        transaction.put(QUERIES, (100, "long", bytes(5_000_000)))
    assert len(texts(store)) == 29
    store.close()
