"""Clients without a token that attack a service: a process of its own, so that they take no time from who measures.

    python benchmarks/reliability/stranger_clients.py --port 8765 --kind idle --count 1100

A connection that the service closes is opened again after a pause. Nothing is ever read. Ends when its input closes.
One process polls all its connections and needs 1 to 3 percent of a core.

`--kind sink` is no client but a server that accepts connections, keeps the newest and reads nothing: with the strangers
there, one measures what they take from a service on the same machine by running at all.
"""

from __future__ import annotations

import argparse
import heapq
import os
import resource
import select
import socket
import sys
import time
from collections import deque
from contextlib import suppress

OPEN_PATHS = ("/", "/healthz", "/readyz", "/openapi.json", "/static/style.css", "/v1/search", "/metrics")
PIPELINE = 200
"""Requests that one client sends at once; the responses are a few megabytes, more than any buffer holds."""

TRICKLE = 1.0
"""Seconds between two bytes of a body."""


def opening(kind: str, number: int) -> bytes:
    """What a stranger sends first."""
    path = OPEN_PATHS[number % len(OPEN_PATHS)]
    if kind == "bodies":
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: 100000\r\n\r\n{{".encode()
    if kind == "pipelines":
        path = "/static/style.css" if number % 2 else "/openapi.json"
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * PIPELINE
    return b""


class Strangers:
    """Many connections of one kind.

    Args:
        kind: "idle", "bodies" or "pipelines".
        count: Connections.
        port: Of the service, on this machine.
        pause: Seconds before a closed connection is opened again.
        address: Their own.
    """

    def __init__(self, kind: str, count: int, port: int, pause: float, address: str):
        self.kind, self.port, self.pause, self.address = kind, port, pause, address
        self.poll = select.epoll()
        self.open: dict[int, tuple[socket.socket, int]] = {}
        self.due = [(time.monotonic(), number) for number in range(count)]
        self.opened = 0
        self.next_trickle = time.monotonic() + TRICKLE
        self.poll.register(sys.stdin.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Until the input is closed."""
        told = 0.0
        while True:
            for descriptor, _ in self.poll.poll(0.01):
                if descriptor == sys.stdin.fileno():
                    return
                self._lose(descriptor)
            now = time.monotonic()
            while self.due and self.due[0][0] <= now:
                self._connect(heapq.heappop(self.due)[1])
            if self.kind == "bodies" and now >= self.next_trickle:
                self.next_trickle = now + TRICKLE
                for one, _ in self.open.values():
                    with suppress(OSError):
                        one.send(b"x")
            if now - told >= 0.2:
                told = now
                print(len(self.open), self.opened, flush=True)

    def _connect(self, number: int) -> None:
        one = socket.socket()
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # little is taken from who has to write
        one.bind((self.address, 0))
        with suppress(BlockingIOError):
            one.connect(("127.0.0.1", self.port))
        self.open[one.fileno()] = one, number
        self.opened += 1
        self.poll.register(one.fileno(), select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)
        content = opening(self.kind, number)
        if content:
            with suppress(OSError):  # a connection on this machine is there at once, or waits to be accepted
                one.send(content)

    def _lose(self, descriptor: int) -> None:
        one, number = self.open.pop(descriptor)
        self.poll.unregister(descriptor)
        one.close()
        heapq.heappush(self.due, (time.monotonic() + self.pause, number))


def accept_all(kept: int) -> None:
    """Tell the port, then accept connections until the input is closed."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.setblocking(False)
    print(listening.getsockname()[1], flush=True)
    newest: deque[socket.socket] = deque()
    while sys.stdin not in (ready := select.select([sys.stdin, listening], [], [])[0]):
        with suppress(BlockingIOError):
            newest.append(listening.accept()[0])
        if ready and len(newest) > kept:
            newest.popleft().close()


def main() -> None:
    """Attack until told to end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kind", choices=["idle", "bodies", "pipelines", "sink"], required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument(
        "--pause", type=float, default=1.0, help="seconds before a connection is opened again"
    )
    parser.add_argument("--address", default="127.0.0.1", help="of the strangers, within 127.0.0.0/8")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.kind == "sink":
        accept_all(options.count)
        return
    os.set_blocking(sys.stdin.fileno(), False)
    Strangers(options.kind, options.count, options.port, options.pause, options.address).run()


if __name__ == "__main__":
    main()
