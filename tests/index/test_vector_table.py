from threading import Barrier, Event, Thread

import pytest

from metaxc.index.vector_table import ReadWriteLock


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
