"""One client asks for much: how long do the others wait?

    python benchmarks/reliability/fairness.py --out benchmarks/results/reliability/fairness.json

promises, and how each is attacked, on a service in a process of its own:

- *A large request delays others by one slice.* Clients send searches and representations of 256 texts of 3,900
  characters, one after the other, while another client searches and lists items; all from one address, which is the
  worst case. Then the large clients leave in the middle of a request, and a search is sent: their work has to stop.
- *An accepted request begins within a second, a refused one is told so at once.* First the capacity is measured with a
  few clients that wait for their answers, then 2.5 times as many searches are sent at even distances, whether answered
  or not.
- *A deadline is honoured.* Under that load, searches say that they wait half a second (`Prefer: wait=0.5`).
- *A click costs the same however many clicks the item has.* Items with 13 and with 20,000 clicks are clicked in turn.
- *Single writes do not queue behind bulk.* A client adds 256 texts of 3,900 characters at a time, another one item.

Without `--model` the encoder is that of the small world, made to take 0.4 ms per token as a transformer does on one
core. `--source FOLDER` measures the service of another version first, as "before": a checkout's `src`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from live import Language, Reply, Server, Wires, quantiles, served
from proof_run import write_result

import metaxc
from metaxc.research.code_version import git_commit

TIMES = 2.5
CLIENTS = 8
"""That measure the capacity."""

QUERIES = 16
"""Per search of the overload, so that the work and not the reading of requests is what is short."""

WARM = 2.0
"""Seconds before the capacity counts."""

PAUSE = 0.05
"""Seconds between two requests of the client that is looked at."""

DEADLINE = 0.5
PROMPT = 0.25
"""Seconds within which a refusal has to be answered (p99), while the machine has more to do than it can."""

SLACK = 0.5
"""Seconds that an accepted request may begin later than predicted (p99)."""

MOST_DELAY = 1.0
"""Seconds that searches, lists and single adds may take (p99) while three large requests take turns."""

MOST_RATIO = 1.5
"""A click on the item with the most clicks, as a multiple of one on the item with few."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Args:
        seconds: Of each measurement.
        texts: Of a large request.
        characters: Of each of its texts.
        clicks: Of the most clicked item.
    """

    seconds: float = 30.0
    texts: int = 256
    characters: int = 3900
    clicks: int = 20_000


class Attack:
    """The attacks on one open service.

    Args:
        wires: To the service.
        language: Usual queries and items.
        size: How much.
    """

    def __init__(self, wires: Wires, language: Language, size: Size):
        self.wires, self.language, self.size = wires, language, size
        self._drawn, self._numbers = random.Random(0), iter(range(10**9))

    def long_text(self) -> str:
        """A text of so many characters that none has been sent before."""
        words = f"{next(self._numbers)} "
        while len(words) < self.size.characters:
            words += f"{self.language.query()} "
        return words[: self.size.characters]

    def long_texts(self) -> list[str]:
        """The texts of a large request."""
        return [self.long_text() for _ in range(self.size.texts)]

    async def search(self) -> Reply:
        """A usual search."""
        return await self.wires.search([self.language.query()])

    async def list(self) -> Reply:
        """A page of items."""
        return await self.wires.ask("GET", "/v1/items?limit=20")

    async def add(self) -> Reply:
        """One item."""
        return await self.wires.add(f"single-{next(self._numbers)}", self.language.item())

    async def large_search(self) -> Reply:
        """All at once."""
        return await self.wires.search(self.long_texts())

    async def large_represent(self) -> Reply:
        """All at once."""
        return await self.wires.ask("POST", "/v1/represent", {"texts": self.long_texts()})

    async def large_add(self) -> Reply:
        """All at once."""
        items = [{"id": f"bulk-{next(self._numbers)}", "text": text} for text in self.long_texts()]
        return await self.wires.ask("POST", "/v1/items", {"items": items})

    async def ask_for(self, seconds: float, *asks: Callable[[], Awaitable[Reply]]) -> list[dict[str, Any]]:
        """Ask one after the other, with pauses; the times and statuses of each kind."""
        replies: list[list[Reply]] = [[] for _ in asks]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for ask, seen in zip(asks, replies, strict=True):
                seen.append(await ask())
            await asyncio.sleep(PAUSE)
        return [_summarize(seen) for seen in replies]

    @asynccontextmanager
    async def beside(self, *asks: Callable[[], Awaitable[Reply]]) -> Any:
        """Clients that send one large request after the other during a block, and leave at its end; yields the
        statuses of what they were answered."""
        statuses: Counter[str] = Counter()

        async def client(ask: Callable[[], Awaitable[Reply]]) -> None:
            while True:
                reply = await ask()
                statuses[str(reply.status)] += 1
                await asyncio.sleep(PAUSE)

        tasks = [asyncio.create_task(client(ask)) for ask in asks]
        await asyncio.sleep(0.5)
        try:
            yield statuses
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def large_reads(self) -> dict[str, Any]:
        """Searches and lists alone, then beside three large reads, then after these clients have left."""
        seconds = self.size.seconds
        searches, lists = await self.ask_for(seconds / 3, self.search, self.list)
        async with self.beside(self.large_search, self.large_represent, self.large_represent) as statuses:
            searches_beside, lists_beside = await self.ask_for(seconds, self.search, self.list)
        left = await self.search()
        return {
            "searches alone, ms": searches,
            "lists alone, ms": lists,
            "searches beside large reads, ms": searches_beside,
            "lists beside large reads, ms": lists_beside,
            "large reads answered": dict(statuses),
            "search after the large clients have left, ms": round(1000 * left.seconds, 1),
        }

    async def single_adds(self) -> dict[str, Any]:
        """Single adds alone, then beside bulk adds."""
        seconds = self.size.seconds
        [alone] = await self.ask_for(seconds / 3, self.add)
        async with self.beside(self.large_add, self.large_add) as statuses:
            [beside] = await self.ask_for(seconds, self.add)
        return {
            "single adds alone, ms": alone,
            "single adds beside bulk adds, ms": beside,
            "bulk adds answered": dict(statuses),
        }

    async def clicks(self) -> dict[str, Any]:
        """Clicks on the item with few and on the one with many clicks, in turn."""
        times: dict[int, list[float]] = {13: [], self.size.clicks: []}
        for turn in range(30):
            for count, seconds in times.items():
                reply = await self.wires.click(f"clicked-{count}", self.language.query())
                if reply.status != 200:
                    raise RuntimeError(f"a click was answered with {reply.status}: {reply.body[:200]!r}")
                if turn >= 5:
                    seconds.append(reply.seconds)
        found = {f"on an item with {count:,} clicks, ms": quantiles(all) for count, all in times.items()}
        few, many = (quantiles(all)["p50"] for all in times.values())
        return {**found, "ratio": round(many / few, 2)}

    async def overload(self) -> dict[str, Any]:
        """The capacity, then 2.5 times as many searches, one in ten with a deadline."""
        await self._capacity(min(WARM, self.size.seconds))
        can = await self._capacity(self.size.seconds / 3)
        under_way: set[asyncio.Task[None]] = set()
        usual: list[Reply] = []
        hasty: list[Reply] = []

        async def one(number: int) -> None:
            if number % 10:
                usual.append(await self._search_many())
            else:
                hasty.append(await self._search_many({"Prefer": f"wait={DEADLINE}"}))

        started, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - started) < self.size.seconds:
            for number in range(sent, int(now * TIMES * can)):
                task = asyncio.create_task(one(number))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                sent += 1
            await asyncio.sleep(0.002)
        offered = sent / (time.perf_counter() - started)
        await asyncio.gather(*under_way)
        accepted = [reply for reply in usual if reply.status == 200]
        refused = [reply for reply in usual if reply.status in (429, 503)]
        return {
            "capacity, searches per second": round(can, 1),
            "times capacity": round(offered / can, 2),
            "statuses": dict(Counter(str(reply.status) for reply in usual)),
            "accepted, ms": quantiles([reply.seconds for reply in accepted]),
            "accepted began after, ms": quantiles([reply.json()["seconds"]["queue"] for reply in accepted]),
            "refused, ms": quantiles([reply.seconds for reply in refused]),
            "refused without Retry-After": sum(b"\r\nretry-after:" not in reply.head for reply in refused),
            f"answered to clients that wait {DEADLINE} s, ms": _summarize(hasty),
        }

    async def _search_many(self, headers: dict[str, str] | None = None) -> Reply:
        body = {"queries": [self.language.query() for _ in range(QUERIES)]}
        return await self.wires.ask("POST", "/v1/search", body, headers)

    async def _capacity(self, seconds: float) -> float:
        """Searches per second with clients that wait for their answers."""
        started = time.perf_counter()
        done = 0

        async def client() -> None:
            nonlocal done
            while time.perf_counter() < started + seconds:
                reply = await self._search_many()
                done += reply.status == 200

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return done / (time.perf_counter() - started)


def _summarize(replies: list[Reply]) -> dict[str, Any]:
    statuses = Counter(str(reply.status) for reply in replies)
    return {**quantiles([reply.seconds for reply in replies]), "statuses": dict(statuses)}


async def attack(server: Server, size: Size, data: Path | None) -> dict[str, Any]:
    """All attacks on an open service."""
    wires = Wires(server.url)
    against = Attack(wires, Language(data), size)
    for _ in range(20):  # libraries are loaded at first use
        await against.search()
    found = {
        "clicks": await against.clicks(),
        "large reads": await against.large_reads(),
        "overload": await against.overload(),
        "single adds": await against.single_adds(),  # last: its long items make long answers
    }
    wires.close()
    return found


def measure(
    size: Size, model: Path | None, data: Path | None, source: Path | None, token_seconds: float
) -> dict[str, Any]:
    """Start a service, attack it, end it."""
    options = ["--clicked", "13", str(size.clicks)]
    options += [] if model else ["--token-seconds", str(token_seconds)]
    with (
        tempfile.TemporaryDirectory(prefix="metaxc-fairness-", ignore_cleanup_errors=True) as folder,
        served(Path(folder) / "catalog", model=model, data=data, source=source, options=options) as server,
    ):
        return asyncio.run(attack(server, size, data))


def find_problems(found: dict[str, Any], max_wait: float = 1.0) -> list[str]:
    """What does not hold."""
    reads, adds, load = found["large reads"], found["single adds"], found["overload"]
    least = [
        (found["clicks"]["ratio"], MOST_RATIO, "a click costs more on an item with many clicks"),
        (load["accepted began after, ms"]["p99"], 1000 * (max_wait + SLACK), "accepted searches begin late"),
        (load["refused, ms"].get("p99", 0), 1000 * PROMPT, "refusals are slow"),
        (load["refused without Retry-After"], 0, "refusals without Retry-After"),
    ]
    for name, seen in (
        ("searches beside large reads, ms", reads),
        ("lists beside large reads, ms", reads),
        ("single adds beside bulk adds, ms", adds),
    ):
        least.append((seen[name]["p99"], 1000 * MOST_DELAY, name))
        if set(seen[name]["statuses"]) != {"200"}:
            least.append((1, 0, f"{name}: {seen[name]['statuses']}"))
    left = reads["search after the large clients have left, ms"]
    least.append((left, 1000 * MOST_DELAY, "work goes on after its clients have left"))
    return [f"{what}: {value} > {most}" for value, most, what in least if value > most]


def run(
    size: Size,
    model: Path | None = None,
    data: Path | None = None,
    source: Path | None = None,
    token_seconds: float = 0.0004,
) -> dict[str, Any]:
    """Before, where there is another source, and after."""
    found: dict[str, Any] = {
        "commit": git_commit(Path(metaxc.__file__).parent),
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "encoder": "of the model" if model else f"{1000 * token_seconds:g} ms per token",
    }
    if source is not None:
        earlier = measure(size, model, data, source.resolve(), token_seconds)
        found["before"] = {"commit": git_commit(source / "metaxc"), **earlier}
    found["after"] = measure(size, model, data, None, token_seconds)
    return {**found, "problems": find_problems(found["after"])}


def main() -> None:
    """Attack and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=Size.seconds, help="of each measurement")
    parser.add_argument("--texts", type=int, default=Size.texts, help="of a large request")
    parser.add_argument("--clicks", type=int, default=Size.clicks, help="of the most clicked item")
    parser.add_argument("--token-seconds", type=float, default=0.0004, help="of the small world's encoder")
    parser.add_argument("--model", type=Path, help="a model folder; the small world without it")
    parser.add_argument("--data", type=Path, help="the model's data set")
    parser.add_argument("--source", type=Path, help="the src folder of another version, measured first")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size = Size(options.seconds, options.texts, clicks=options.clicks)
    found = run(size, options.model, options.data, options.source, options.token_seconds)
    write_result(found, options.out)


if __name__ == "__main__":
    main()
