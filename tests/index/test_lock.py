from threading import Barrier, Event, Thread

import pytest

from metaxc.index.lock import SharedLock


def test_readers_hold_it_together():
    lock, together = SharedLock(), Barrier(3, timeout=30)

    def read():
        with lock.reading():
            together.wait()

    threads = [Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not together.broken


def test_writers_lose_no_step_to_each_other_or_to_readers():
    lock, total, halves = SharedLock(), [0, 0], []

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


def test_a_waiting_writer_goes_before_a_reader_that_comes_later():
    lock, order = SharedLock(), []
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
    while not lock._waiting:
        pass
    threads[2].start()
    done.set()
    for thread in threads:
        thread.join()
    assert order == ["write", "read"]


def test_an_error_inside_lets_go():
    lock, entered = SharedLock(), Event()
    for held in (lock.reading, lock.writing):
        with pytest.raises(KeyError), held():
            raise KeyError

    def write():
        with lock.writing():
            entered.set()

    Thread(target=write, daemon=True).start()
    assert entered.wait(30)
