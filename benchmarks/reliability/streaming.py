"""Items stream in while others search: how much slower do searches get, and is each item found at once?

    python benchmarks/reliability/streaming.py --model demo/model --data demo/data \\
        --out benchmarks/results/reliability/streaming.json

A service runs in a process of its own; without `--model` on the small world. A client searches, always one query after
the other. In turns it is alone, or items come in one by one at 50 per second, at even distances, with a few clicks;
five on the same item, so that items become observed and inform others meanwhile. The turns are short and many, so that
other work of the machine hits both alike. Searches of all turns are pooled: the promise is a p99 under the stream of
at most 3 times that of the turns alone.

After each turn the stream goes on for a while with nobody else: an item is added and must be the answer of the next
search; it is clicked and must have other neighbours and another score in the next.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live import Language, Reply, Server, Wires, quantiles, served
from proof_run import write_result

RATE = 50.0
"""Items per second."""

LEAST_RATE = 0.95
"""Of the rate, or the stream was not what it was meant to be."""

CLICK_EVERY, CLICKS = 10, 5
"""A click with every tenth item; five on the same item, which is then observed."""

TIMES = 3.0
"""The most that the p99 may grow."""

ROUNDS = 5
WARM = 2.0
"""Seconds before anything counts."""

PROBES = 4
"""Items whose first steps are looked at, per turn; fewer where it takes longer than PROBING seconds."""

PROBING = 8.0


@dataclass
class Seen:
    """What was answered.

    Args:
        statuses: How often each; 0 is a broken connection.
        alone: Seconds of searches without the stream.
        streamed: Seconds of searches under it.
        adds: Seconds of adds.
        clicks: Seconds of clicks.
        added: Texts of acknowledged items by id.
        lost: Of these, who is not there in the end.
        streaming: Seconds that items streamed in.
        shown: Seconds from an acknowledged add to the answer of the next search.
        unseen: First steps that the next search does not show.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    alone: list[float] = field(default_factory=list)
    streamed: list[float] = field(default_factory=list)
    adds: list[float] = field(default_factory=list)
    clicks: list[float] = field(default_factory=list)
    added: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    streaming: float = 0.0
    shown: list[float] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    async def counted(self, asking: Awaitable[Reply], times: list[float]) -> Reply:
        """One answer more."""
        reply = await asking
        self.statuses[reply.status] += 1
        times.append(reply.seconds)
        return reply


class Stream:
    """Items that come in at a rate, until stopped.

    Args:
        wires: To the service.
        language: What they say.
        seen: What becomes of them.
        rate: Items per second.
    """

    def __init__(self, wires: Wires, language: Language, seen: Seen, rate: float):
        self.wires, self.language, self.seen, self.rate = wires, language, seen, rate
        self._number = 0
        self._clicked = ""
        self._going = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Stream:
        self._going = True
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._going = False
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        started, sent = time.perf_counter(), 0
        under_way: set[asyncio.Task[None]] = set()
        while self._going:
            await asyncio.sleep(max(0.0, started + sent / self.rate - time.perf_counter()))
            sent += 1
            self._number += 1
            task = asyncio.create_task(self._one(self._number))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        self.seen.streaming += time.perf_counter() - started

    async def _one(self, number: int) -> None:
        name, text = f"stream-{number}", self.language.item()
        reply = await self.seen.counted(self.wires.add(name, text), self.seen.adds)
        if reply.status == 200:
            self.seen.added[name] = text
            if number % CLICK_EVERY == 0:
                if number % (CLICK_EVERY * CLICKS) == 0 or not self._clicked:
                    self._clicked = name
                click = self.wires.click(self._clicked, self.language.query())
                await self.seen.counted(click, self.seen.clicks)


async def searches(wires: Wires, language: Language, seen: Seen, times: list[float], seconds: float) -> None:
    """One query after the other."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        await seen.counted(wires.search([language.query()]), times)


async def first_steps(wires: Wires, language: Language, seen: Seen, name: str) -> None:
    """An item's own: found in the next search, other neighbours and another score after its first click."""
    text, query = language.item(), language.query()
    unmeasured: list[float] = []

    async def ask(asking: Awaitable[Reply]) -> Any:
        return (await seen.counted(asking, unmeasured)).json()

    async def score() -> list[tuple[str, float]]:
        found = await ask(wires.search([query], tags=[name]))
        return [(hit["id"], hit["score"]) for hit in found["answers"][0]["hits"]]

    await ask(wires.add(name, text, name))
    acknowledged = time.perf_counter()
    before = await score()
    seen.shown.append(time.perf_counter() - acknowledged)
    seen.added[name] = text
    if [found for found, _ in before] != [name]:
        seen.unseen.append(f"{name} is not in the search after its add: {before}")
        return
    old = (await ask(wires.explain(name)))["explanation"]["neighbours"]
    await ask(wires.click(name, query))
    after = await score()
    new = (await ask(wires.explain(name)))["explanation"]["neighbours"]
    if old == new:
        seen.unseen.append(f"{name} has the same neighbours after its first click ({query!r} on {text!r})")
    if before == after:
        seen.unseen.append(f"{name} has the same score after its first click ({query!r} on {text!r})")


async def streamed(server: Server, rounds: int, seconds: float, rate: float, data: Path | None) -> Seen:
    """All turns on an open service."""
    language, seen, wires = Language(data), Seen(), Wires(server.url)
    stream = Stream(wires, language, seen, rate)
    await searches(wires, language, seen, [], min(WARM, seconds))
    for turn in range(rounds):
        await searches(wires, language, seen, seen.alone, seconds)
        async with stream:
            await searches(wires, language, seen, seen.streamed, seconds)
            until, number = time.perf_counter() + PROBING, 0
            while number < PROBES and time.perf_counter() < until:
                await first_steps(wires, language, seen, f"probe-{turn}-{number}")
                number += 1
    there = await wires.everything()
    seen.lost = [name for name, text in seen.added.items() if there.get(name) != text]
    wires.close()
    return seen


def told(seen: Seen, rate: float) -> dict[str, Any]:
    """The figures, and what does not hold."""
    alone, under = quantiles(seen.alone), quantiles(seen.streamed)
    ratio = under["p99"] / alone["p99"]
    achieved = len(seen.adds) / seen.streaming
    problems = list(seen.unseen)
    if seen.lost:
        problems.append(f"{len(seen.lost)} acknowledged adds are lost: {seen.lost[:3]}")
    if set(seen.statuses) != {200}:
        problems.append(f"answered with other than 200: {dict(seen.statuses)}")
    if achieved < LEAST_RATE * rate:
        problems.append(f"{achieved:.1f} items per second in place of {rate:g}")
    if ratio > TIMES:
        problems.append(f"the p99 of searches is {ratio:.2f} times what it is alone")
    return {
        "searches alone, ms": alone,
        "searches under the stream, ms": under,
        "p50 ratio": round(under["p50"] / alone["p50"], 3),
        "p99 ratio": round(ratio, 3),
        "items per second": round(achieved, 2),
        "adds, ms": quantiles(seen.adds),
        "clicks, ms": quantiles(seen.clicks),
        "from add to found, ms": quantiles(seen.shown),
        "first steps looked at": len(seen.shown),
        "first steps that were not seen": seen.unseen,
        "acknowledged adds": len(seen.added),
        "of these lost": len(seen.lost),
        "statuses": {str(status): count for status, count in sorted(seen.statuses.items())},
        "problems": problems,
    }


def run(
    rounds: int, seconds: float, rate: float = RATE, model: Path | None = None, data: Path | None = None
) -> dict[str, Any]:
    """A service, its turns, its end."""
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="metaxc-streaming-") as folder,
        served(Path(folder) / "catalog", model=model, data=data) as server,
    ):
        found = told(asyncio.run(streamed(server, rounds, seconds, rate, data)), rate)
        code = server.stop()
    if code:
        found["problems"].append(f"the service ended with {code}")
    about = {"model": str(model.name) if model else "small world", "rounds": rounds, "turn, s": seconds}
    return {**about, **found, "exit code": code, "seconds": round(time.perf_counter() - started, 1)}


def main() -> None:
    """Stream, search and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a turn")
    parser.add_argument("--rate", type=float, default=RATE, help="items per second")
    parser.add_argument("--model", type=Path, help="a model folder; the small world without")
    parser.add_argument("--data", type=Path, help="its data set folder")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = run(options.rounds, options.seconds, options.rate, options.model, options.data)
    write_result(found, options.out)


if __name__ == "__main__":
    main()
