"""Reading bodies: what counts, and who reads none."""

import asyncio

from metaxc.serve.body_limit import BodyLimit
from metaxc.serve.middleware import PUBLIC, WRITE
from metaxc.serve.serve_settings import ServeSettings


class Request:
    """One request to a `BodyLimit`, whose body comes in the pieces that the test sends."""

    def __init__(self, app, policy=WRITE, **headers):
        pieces = [(name.encode(), str(value).encode()) for name, value in headers.items()]
        self.scope = {"type": "http", "headers": pieces, "route_policy": policy}
        self.body, self.sent = asyncio.Queue(), []
        self.task = asyncio.create_task(app(self.scope, self.body.get, self.send))

    async def send(self, message):
        self.sent.append(message)

    async def piece(self, body, more=True):
        self.body.put_nowait({"type": "http.request", "body": body, "more_body": more})
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def status(self):
        return self.sent[0]["status"]


class EchoLength:
    """An app that waits, then responds with the length of the body."""

    def __init__(self):
        self.go_on = asyncio.Event()

    async def __call__(self, scope, receive, send):
        length = len((await receive())["body"])
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [], "length": length})


def test_a_body_that_is_still_arriving_takes_no_request_from_others():
    async def run():
        inner = EchoLength()
        app = BodyLimit(inner, ServeSettings(limits={"max_requests": 1}))
        slow = [Request(app) for _ in range(20)]
        for one in slow:
            await one.piece(b"{")
        quick = Request(app)
        await quick.piece(b"{}", more=False)
        refused = Request(app)
        await refused.piece(b"{}", more=False)
        assert refused.status == 429
        inner.go_on.set()
        await quick.task
        await slow[0].piece(b"}", more=False)
        await slow[0].task
        assert (quick.status, slow[0].status, slow[0].sent[0]["length"]) == (200, 200, 2)

    asyncio.run(run())


def test_the_memory_of_all_bodies_together_is_limited():
    async def run():
        inner = EchoLength()
        inner.go_on.set()
        app = BodyLimit(inner, ServeSettings(limits={"max_body_bytes": 2000, "max_total_body_bytes": 3000}))
        first, second = Request(app), Request(app)
        await first.piece(b"x" * 1900)
        await second.piece(b"x" * 1900)
        await second.task
        assert second.status == 429
        third = Request(app)
        await third.piece(b"x" * 1000, more=False)
        await first.piece(b"x", more=False)
        assert (third.status, first.status) == (200, 200)
        assert app._total_bytes == 0

    asyncio.run(run())


def test_a_route_without_a_queue_reads_no_body():
    async def run():
        inner = EchoLength()
        inner.go_on.set()
        app = BodyLimit(inner, ServeSettings(limits={"max_requests": 1}))
        announced = [Request(app, PUBLIC, **{"content-length": 1000}) for _ in range(5)]
        await asyncio.gather(*(one.task for one in announced))
        assert {(one.status, one.sent[0]["length"]) for one in announced} == {(200, 0)}

    asyncio.run(run())


def test_a_body_that_does_not_arrive_in_time_is_408():
    async def run():
        app = BodyLimit(EchoLength(), ServeSettings(connections={"body_timeout": 0.01}))
        slow = Request(app)
        await slow.task
        assert slow.status == 408
        assert app._total_bytes == 0

    asyncio.run(run())
