from threading import Barrier, Event, Thread

import numpy as np
import pytest

from metaxc.index.vector_table import MIN_CAPACITY, MOST_KEYS_PER_ROW, ReadWriteLock, VectorTable


@pytest.mark.parametrize("step", [1, 3, 1000 * MOST_KEYS_PER_ROW])
@pytest.mark.parametrize("wanted", [3, 700])
def test_known_keys_are_found_however_large_or_many_they_are(step, wanted):
    """By single keys, in an array by key, and by sorting where keys are large."""
    table, random = VectorTable(1), np.random.default_rng(0)
    keys = random.permutation(1000) * step
    table.upsert(keys, np.zeros((1000, 1), np.float32))
    table.remove(keys[:100])
    asked = np.concatenate([random.choice(keys, wanted), [10**15] if step > 3 else [5 * step * 1000]])
    found = table.find_known(asked)
    assert set(table.keys[found].tolist()) == set(asked.tolist()) & set(keys[100:].tolist())
    assert (np.diff(found) > 0).all()
    assert table.find_known(np.array([], np.int64)).tolist() == []


def test_readers_share_the_lock():
    lock, together = ReadWriteLock(), Barrier(3, timeout=30)

    def read():
        with lock.reading():
            together.wait()

    threads = [Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not together.broken


def test_writers_exclude_each_other_and_readers():
    lock, total, halves = ReadWriteLock(), [0, 0], []

    def write():
        for _ in range(500):
            with lock.writing():
                before = total[0]
                total[0] = before + 1
                total[1] = before + 1

    def read():
        for _ in range(500):
            with lock.reading():
                halves.append(total[0] == total[1])

    threads = [Thread(target=work) for work in (write, write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == [1000, 1000]
    assert all(halves)


def test_waiting_writer_has_priority_over_later_readers():
    lock, order = ReadWriteLock(), []
    reads, done = Event(), Event()

    def first():
        with lock.reading():
            reads.set()
            assert done.wait(30)

    def write():
        with lock.writing():
            order.append("write")

    def late():
        with lock.reading():
            order.append("read")

    threads = [Thread(target=work) for work in (first, write, late)]
    threads[0].start()
    assert reads.wait(30)
    threads[1].start()
    while not lock._waiting_writers:
        pass
    threads[2].start()
    done.set()
    for thread in threads:
        thread.join()
    assert order == ["write", "read"]


def test_exception_releases_the_lock():
    lock, entered = ReadWriteLock(), Event()
    for held in (lock.reading, lock.writing):
        with pytest.raises(KeyError), held():
            raise KeyError

    def write():
        with lock.writing():
            entered.set()

    Thread(target=write, daemon=True).start()
    assert entered.wait(30)


def test_a_table_that_grows_keeps_its_vectors_and_the_views_of_them():
    """Rows move in place where nobody looks at them, and are copied where somebody does."""
    table, random = VectorTable(3), np.random.default_rng(0)
    vectors = random.normal(size=(5 * MIN_CAPACITY, 3)).astype(np.float32)
    table.upsert(np.arange(10), vectors[:10])
    kept = table.vectors[4]
    for start in range(10, len(vectors), 700):
        block = vectors[start : start + 700]
        table.upsert(np.arange(start, start + len(block)), block)
    assert (table.vectors[: len(vectors)] == vectors).all()
    assert (kept == vectors[4]).all()
    table.remove(np.arange(20, len(vectors)))
    assert len(table.vectors) == MIN_CAPACITY
    assert (table.vectors[:20] == vectors[:20]).all()


def test_a_table_grows_without_a_copy_of_what_it_has():
    table = VectorTable(256)
    count = 16 * MIN_CAPACITY  # 16 MiB, which a copy would allocate again
    table.upsert(np.arange(count), np.ones((count, 256), np.float32))
    moved = table._rows._memory
    table.upsert(np.arange(count, count + 1), np.zeros((1, 256), np.float32))
    assert len(table.vectors) == 2 * count
    assert table._rows._memory is moved
    assert (table.vectors[:count] == 1).all()
    assert (table.vectors[count] == 0).all()


def test_an_adopted_array_is_left_alone_when_the_table_grows():
    vectors = np.arange(4 * MIN_CAPACITY, dtype=np.float32).reshape(-1, 2)
    before, table = vectors.copy(), VectorTable(2)
    table.adopt(np.arange(len(vectors)), vectors)
    assert table.vectors is vectors
    table.upsert(np.array([10**6]), np.full((1, 2), -1, np.float32))
    assert (table.vectors[: len(before)] == before).all()
    assert (vectors == before).all()
