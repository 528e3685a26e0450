"""Ten times more requests than the service can answer: does it stay upright?

    python benchmarks/reliability/overload.py --seconds 20 --out benchmarks/results/reliability/overload.json

A service runs in a process of its own, with a small queue. First its capacity is measured: a few clients that ask as
fast as they are answered. Then ten times as many requests are sent at even distances, whether answered or not, nine
searches to one add. Each has to be answered with 200 or refused with 429 and a Retry-After; memory has to stay flat;
afterwards a search is answered as before, every acknowledged add is there, and no refused one.

A search brings many queries, so that the work and not the reading of requests is what is short, as with a real encoder.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from live import Language, Reply, Server, Wires, quantiles, served
from proof_run import write_result

CLIENTS = 8
"""That measure the capacity; more of them get no more answers."""

WARM = 2.0
"""Seconds before anything counts."""

TIMES = 10
LEAST_TIMES = 9.0
"""Below, the load was not what it was meant to be, and the run shows nothing."""

ADDS = 10
"""Every so many requests is an add."""

FLAT = 1.10
"""The most memory of the second half, as a multiple of that of the first."""

EVERY = 0.5
"""Seconds between two looks at the memory."""

QUEUE = 32


@dataclass
class Seen:
    """What was answered.

    Args:
        statuses: How often each; 0 is a broken connection.
        accepted: Seconds of what was answered with 200.
        refused: Seconds of what was refused with 429.
        untold: Refusals that do not say when to come again.
        added: Texts of acknowledged items by id.
        not_added: Ids of refused items.
        memory: (seconds since the start, resident bytes).
    """

    statuses: Counter[int] = field(default_factory=Counter)
    accepted: dict[str, list[float]] = field(default_factory=lambda: {"search": [], "add": []})
    refused: list[float] = field(default_factory=list)
    untold: int = 0
    added: dict[str, str] = field(default_factory=dict)
    not_added: set[str] = field(default_factory=set)
    memory: list[tuple[float, int]] = field(default_factory=list)

    def count(self, kind: str, reply: Reply) -> None:
        """One answer more."""
        self.statuses[reply.status] += 1
        if reply.status == 200:
            self.accepted[kind].append(reply.seconds)
        elif reply.status == 429:
            self.refused.append(reply.seconds)
            self.untold += b"\r\nretry-after:" not in reply.head


async def capacity(wires: Wires, language: Language, queries: int, seconds: float) -> float:
    """Searches per second with clients that wait for their answers."""

    async def client() -> int:
        done = 0
        while time.perf_counter() < end:
            reply = await wires.search([language.query() for _ in range(queries)])
            if reply.status != 200:
                raise RuntimeError(f"refused without need: {reply.status}, {reply.body[:200]!r}")
            done += 1
        return done

    started = time.perf_counter()
    end = started + seconds
    done = sum(await asyncio.gather(*(client() for _ in range(CLIENTS))))
    return done / (time.perf_counter() - started)


async def flood(
    wires: Wires, language: Language, queries: int, rate: float, seconds: float, seen: Seen
) -> float:
    """Send requests at a rate, whatever becomes of them; requests per second that were sent."""
    under_way: set[asyncio.Task[None]] = set()
    bodies = [[language.query() for _ in range(queries)] for _ in range(200)]

    async def one(number: int) -> None:
        if number % ADDS:
            seen.count("search", await wires.search(bodies[number % len(bodies)]))
            return
        name, text = f"new-{number}", language.item()
        reply = await wires.add(name, text)
        seen.count("add", reply)
        if reply.status == 200:
            seen.added[name] = text
        elif reply.status == 429:
            seen.not_added.add(name)

    started, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - started) < seconds:
        for number in range(sent, int(now * rate)):
            task = asyncio.create_task(one(number))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            sent += 1
        await asyncio.sleep(0.002)
    took = time.perf_counter() - started
    await asyncio.gather(*under_way)
    return sent / took


async def watch(pid: int, seen: Seen) -> None:
    """Write the memory of a process down until cancelled."""
    process, started = psutil.Process(pid), time.perf_counter()
    while True:
        seen.memory.append((time.perf_counter() - started, process.memory_info().rss))
        await asyncio.sleep(EVERY)


async def loaded(server: Server, seconds: float, queries: int, data: Path | None) -> dict[str, Any]:
    """The whole run on an open service."""
    language, seen, wires = Language(data), Seen(), Wires(server.url)
    asked = [language.query() for _ in range(20)]
    await capacity(wires, language, queries, min(WARM, seconds))
    can = await capacity(wires, language, queries, seconds / 4)
    before = hits(await wires.search(asked, states=["observed"]))
    alone = psutil.Process(server.pid).memory_info().rss
    watching = asyncio.create_task(watch(server.pid, seen))
    rate = await flood(wires, language, queries, TIMES * can, seconds, seen)
    watching.cancel()
    after = hits(await wires.search(asked, states=["observed"]))
    there = await wires.everything()
    again = await capacity(wires, language, queries, min(WARM, seconds))
    wires.close()
    lost = [name for name, text in seen.added.items() if there.get(name) != text]
    ghosts = [name for name in seen.not_added if name in there]
    first, second = halves(seen.memory, seconds)
    found = {
        "capacity": round(can, 1),
        "queries per search": queries,
        "offered per second": round(rate, 1),
        "times capacity": round(rate / can, 2),
        "statuses": {str(status): count for status, count in sorted(seen.statuses.items())},
        "accepted searches, ms": quantiles(seen.accepted["search"]),
        "accepted adds, ms": quantiles(seen.accepted["add"]),
        "refused, ms": quantiles(seen.refused),
        "refused without Retry-After": seen.untold,
        "acknowledged adds": len(seen.added),
        "of these lost": len(lost),
        "refused adds that are there": len(ghosts),
        "memory, MB": {
            "before": megabytes(alone),
            "first half": megabytes(first),
            "second half": megabytes(second),
            "ratio": round(second / first, 4),
        },
        "memory every half second, MB": [megabytes(held) for _, held in seen.memory],
        "capacity afterwards": round(again, 1),
        "answers as before": before == after,
    }
    return {**found, "problems": problems(found, seen)}


def problems(found: dict[str, Any], seen: Seen) -> list[str]:
    """What does not hold."""
    made = []
    others = {status: count for status, count in seen.statuses.items() if status not in (200, 429)}
    if others:
        made.append(f"answered with other than 200 and 429: {others}")
    if found["times capacity"] < LEAST_TIMES:
        made.append(f"the load was {found['times capacity']} times the capacity only")
    if not seen.accepted["search"] or not seen.added or not seen.refused:
        made.append("nothing was answered, or nothing added, or nothing refused")
    if seen.untold:
        made.append(f"{seen.untold} refusals without Retry-After")
    if found["of these lost"] or found["refused adds that are there"]:
        made.append("an acknowledged add is lost, or a refused one is there")
    if found["memory, MB"]["ratio"] > FLAT:
        made.append(f"memory is not flat: {found['memory, MB']}")
    if not found["answers as before"]:
        made.append("a search is answered otherwise than before the load")
    return made


def hits(reply: Reply) -> list[list[tuple[str, float]]]:
    """Ids and scores of each query."""
    answers = reply.json()["answers"]
    return [[(hit["id"], round(hit["score"], 4)) for hit in answer["hits"]] for answer in answers]


def halves(memory: list[tuple[float, int]], seconds: float) -> tuple[int, int]:
    """The most memory of each half of the load."""
    first = [held for at, held in memory if at < seconds / 2]
    second = [held for at, held in memory if at >= seconds / 2] or [memory[-1][1]]
    return max(first), max(second)


def megabytes(count: int) -> float:
    """Of bytes."""
    return round(count / 2**20, 1)


def run(
    seconds: float, queries: int, model: Path | None = None, data: Path | None = None, queue: int = QUEUE
) -> dict[str, Any]:
    """A service, its load, its end."""
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="metaxc-overload-") as folder,
        served(Path(folder) / "catalog", model=model, data=data, queue=queue) as server,
    ):
        found = asyncio.run(loaded(server, seconds, queries, data))
        code = server.stop()
    if code:
        found["problems"].append(f"the service ended with {code}")
    return {**found, "queue": queue, "exit code": code, "seconds": round(time.perf_counter() - started, 1)}


def main() -> None:
    """Load, look and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of the load")
    parser.add_argument("--queries", type=int, default=64, help="per search")
    parser.add_argument("--model", type=Path, help="a model folder; the small world without")
    parser.add_argument("--data", type=Path, help="its data set folder")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = run(options.seconds, options.queries, options.model, options.data)
    write_result(found, options.out)


if __name__ == "__main__":
    main()
