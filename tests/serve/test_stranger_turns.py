"""How much of the event loop's time strangers get."""

import asyncio
import selectors
import socket

import pytest

from metaxc.serve import stranger_turns
from metaxc.serve.stranger_turns import EVENTS_PER_TURN, StrangerSelector, Turns


async def turn_of_the_loop(count=1):
    for _ in range(count):
        await asyncio.sleep(0)


def test_one_stranger_per_turn_of_the_event_loop():
    async def run():
        turns, ran = Turns(), []
        for number in range(3):
            turns.wait("10.0.0.1", lambda number=number: ran.append(number))
        turns.wait("10.0.0.1", lambda: turns.wait("10.0.0.1", lambda: ran.append("late")))
        for expected in ([0], [0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2, "late"]):
            await turn_of_the_loop()
            assert ran == expected
        assert len(turns) == 0

    asyncio.run(run())


def test_a_function_that_fails_does_not_end_the_turns():
    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        turns, ran = Turns(), []
        turns.wait("10.0.0.1", lambda: 1 / 0)
        turns.wait("10.0.0.1", lambda: ran.append(1))
        await turn_of_the_loop(2)
        assert (ran, len(turns)) == ([1], 0)

    asyncio.run(run())


def test_a_network_with_few_strangers_does_not_wait_for_one_with_many():
    async def run():
        turns, ran = Turns(), []
        for network in [*["many"] * 4, "few", "few"]:
            turns.wait(network, lambda network=network: ran.append(network))
        await turn_of_the_loop(6)
        assert ran == ["many", "few", "many", "few", "many", "many"]

    asyncio.run(run())


def test_who_leaves_has_no_turn():
    async def run():
        turns, ran = Turns(), []
        first, second = (lambda: ran.append("first")), (lambda: ran.append("second"))
        for function in (first, second, second):
            turns.wait("10.0.0.1", function)
        turns.leave("10.0.0.1", first)
        turns.leave("10.0.0.2", second)
        assert len(turns) == 1
        await turn_of_the_loop(3)
        assert ran == ["second"]
        turns.wait("10.0.0.1", first)
        turns.leave("10.0.0.1", first)
        assert not turns._waiting
        await turn_of_the_loop()
        turns.wait("10.0.0.1", second)
        await turn_of_the_loop()
        assert ran == ["second"] * 2

    asyncio.run(run())


@pytest.mark.parametrize("recent", [0.0, 600.0])
def test_while_clients_are_served_there_is_a_pause_between_strangers(monkeypatch, recent):
    monkeypatch.setattr(stranger_turns, "PAUSE", 600.0)
    monkeypatch.setattr(stranger_turns, "RECENT", recent)

    async def run():
        loop = asyncio.get_running_loop()
        later = []
        monkeypatch.setattr(loop, "call_later", lambda seconds, function: later.append((seconds, function)))
        turns, ran = Turns(), []
        turns._last = turns._last_client = loop.time() - 1000
        turns.begin_client()
        for number in range(4):
            turns.wait("10.0.0.1", lambda number=number: ran.append(number))
        await turn_of_the_loop(5)
        (seconds, run_next), *more = later
        assert (ran, more) == ([0], [])
        assert 599 < seconds <= 600
        turns.end_client()
        run_next()  # as the timer does, but early
        await turn_of_the_loop(5)
        assert ran == ([0] if recent else [0, 1, 2, 3])

    asyncio.run(run())


@pytest.fixture
def selector():
    made = StrangerSelector()
    yield made
    made.close()


@pytest.fixture
def pairs():
    made = [socket.socketpair() for _ in range(3 * EVENTS_PER_TURN + 1)]
    yield made
    for pair in made:
        for one in pair:
            one.close()


def found(selector, timeout=0):
    return [key.data for key, _ in selector.select(timeout)]


def test_every_client_and_a_few_strangers_are_noticed_per_turn(selector, pairs):
    """Each stranger once before any for a second time, though they all stay ready."""
    count = len(pairs) - 1
    for number, (one, other) in enumerate(pairs):
        if number < count:
            selector.mark(one.fileno())
        selector.register(one, selectors.EVENT_READ, number)
        other.send(b"x")
    noticed = [found(selector) for _ in range(6)]
    assert [len(turn) for turn in noticed] == [1 + EVENTS_PER_TURN] * 6
    assert all(count in turn for turn in noticed)
    for part in (noticed[:3], noticed[3:]):
        assert sorted(number for turn in part for number in turn if number != count) == list(range(count))


def test_strangers_that_have_changed_are_not_noticed_by_mistake(selector, pairs):
    strangers = [one for one, _ in pairs[: 2 * EVENTS_PER_TURN]]
    for number, one in enumerate(strangers):
        selector.mark(one.fileno())
        selector.register(one.fileno(), selectors.EVENT_READ, number)
        pairs[number][1].send(b"x")
    noticed = found(selector)
    rest = [number for number in range(len(strangers)) if number not in noticed]
    gone, paused, admitted = rest[:3]
    selector.unregister(strangers[gone].fileno())
    selector.modify(strangers[paused].fileno(), selectors.EVENT_WRITE, "writes")
    selector.unmark(strangers[admitted].fileno())
    assert found(selector) == [admitted, *rest[3:]]


def test_the_event_loop_sleeps_when_nothing_is_ready(selector, pairs):
    one, other = pairs[0]
    selector.mark(one.fileno())
    selector.register(one, selectors.EVENT_READ, "stranger")
    assert found(selector, 0.001) == []
    other.send(b"x")
    assert found(selector, None) == ["stranger"]
    one.recv(1)
    assert found(selector, 0.001) == []


def test_files_are_known_whichever_side_they_are_on(selector, pairs):
    one = pairs[0][0]
    key = selector.register(one, selectors.EVENT_READ, "data")
    for change in (selector.mark, selector.mark, selector.unmark, selector.unmark):
        change(one.fileno())
        assert selector.get_key(one) == selector.get_map()[one.fileno()] == key
    selector.unregister(one)
    with pytest.raises(KeyError):
        selector.get_key(one)
