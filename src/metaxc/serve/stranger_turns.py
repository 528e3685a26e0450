"""When strangers are served: in turns, within a bounded part of the event loop's time; clients with a token come first.

Two parts decide it. `StrangerSelector` bounds how many strangers the event loop notices per turn: hundreds that send a
byte at the same moment would otherwise all be read before any other client. `Turns` bounds how many are answered.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import ChainMap, deque
from collections.abc import Callable, Mapping
from typing import Any

EVENTS_PER_TURN = 8  # strangers; noticing one and reading what it has sent costs about 0.03 ms
PAUSE = 0.005  # seconds between two strangers while clients are served; answering one costs about 1 ms
RECENT = 1.0  # seconds after its last answer in which a client is expected to ask again, and counts as being served


class Turns:
    """Runs waiting functions, one per turn of the event loop; while clients are served, one per `PAUSE`.

    The networks of the strangers take turns too: a probe of a load balancer does not wait for all connections of an
    attacker.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[Callable[[], None], None]] = {}
        self._scheduled = False
        self._last = -PAUSE
        self._clients = 0
        self._last_client = -RECENT

    def __len__(self) -> int:
        """Waiting functions."""
        return sum(map(len, self._waiting.values()))

    def wait(self, network: str, function: Callable[[], None]) -> None:
        """Call a function when the turn of its network comes."""
        self._waiting.setdefault(network, {})[function] = None
        self._schedule()

    def leave(self, network: str, function: Callable[[], None]) -> None:
        """A function need not be called any more, if it is waiting: its connection is closed. So no more can wait than
        connections are open."""
        functions = self._waiting.get(network, {})
        functions.pop(function, None)
        if not functions:
            self._waiting.pop(network, None)

    def begin_client(self) -> None:
        """A request with a token has arrived."""
        self._clients += 1

    def end_client(self) -> None:
        """A request with a token has been answered, or its client has left."""
        self._clients -= 1
        self._last_client = asyncio.get_running_loop().time()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            # `call_soon` means the next turn: what is ready in this one goes first
            asyncio.get_running_loop().call_soon(self._run_next)

    def _run_next(self) -> None:
        if not self._waiting:
            self._scheduled = False
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        early = self._last + PAUSE - now
        if early > 0 and (self._clients or now < self._last_client + RECENT):
            loop.call_later(early, self._run_next)
            return
        network = next(iter(self._waiting))
        functions = self._waiting.pop(network)
        function = next(iter(functions))
        del functions[function]
        if functions:
            self._waiting[network] = functions  # behind all other networks
        self._scheduled = False
        try:
            function()
        finally:
            self._last = loop.time()
            self._schedule()


class StrangerSelector(selectors.BaseSelector):
    """A selector for an event loop, which reports every event of clients and per turn a few events of strangers.

    The files of strangers are in a selector of their own, which is one file of the other. Whatever strangers send,
    a turn of the event loop takes the time of its clients and of `EVENTS_PER_TURN` strangers.
    """

    def __init__(self) -> None:
        self._clients, self._strangers = selectors.DefaultSelector(), selectors.DefaultSelector()
        self._inner = self._clients.register(self._strangers.fileno(), selectors.EVENT_READ)
        self._marked: set[int] = set()
        self._ready: deque[tuple[selectors.SelectorKey, int]] = deque()
        levels: Any = (self._clients.get_map(), self._strangers.get_map())
        self._map: Mapping[Any, selectors.SelectorKey] = ChainMap(*levels)

    def mark(self, descriptor: int) -> None:
        """The file is a stranger's."""
        self._move(descriptor, self._marked.add)

    def unmark(self, descriptor: int) -> None:
        """The file is not a stranger's, or will be closed."""
        self._move(descriptor, self._marked.discard)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._level(fileobj).register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._level(fileobj).unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._level(fileobj).modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._map

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._clients.select(timeout)
        found = [event for event in events if event[0] is not self._inner]
        if len(found) < len(events):
            found += self._next_strangers()
        return found

    def close(self) -> None:
        self._clients.close()
        self._strangers.close()

    def _next_strangers(self) -> list[tuple[selectors.SelectorKey, int]]:
        """In the order in which they became ready, so that none is passed over for ever."""
        if not self._ready:
            self._ready.extend(self._strangers.select(0))
        known = self._strangers.get_map()
        found: list[tuple[selectors.SelectorKey, int]] = []
        while self._ready and len(found) < EVENTS_PER_TURN:
            key, events = self._ready.popleft()
            if known.get(key.fd) is key:  # else it has changed since, and is reported again if it is ready
                found.append((key, events))
        return found

    def _level(self, fileobj: Any) -> selectors.DefaultSelector:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        return self._strangers if descriptor in self._marked else self._clients

    def _move(self, descriptor: int, change: Callable[[int], None]) -> None:
        key = self._map.get(descriptor)
        if key is not None:
            self.unregister(descriptor)
        change(descriptor)
        if key is not None:
            self.register(key.fileobj, key.events, key.data)
