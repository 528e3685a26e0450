"""kill -9 at random moments under mixed load: is every acknowledged write there afterwards, and nothing else?

    python benchmarks/reliability/kills.py --kills 1000 --out benchmarks/results/reliability/kills.json

A child adds, updates, deletes and clicks, one or several at a time, takes clicks back, snapshots and searches; it tells
each write before it begins and after it is acknowledged, and is killed at a random moment. Another child opens the
catalog and tells everything it holds. What was acknowledged must be there; of the one write that was under way all or
nothing; nothing else.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

from proof_run import write_result
from world import Child, ask, content_of, model, text_of

from metaxc.catalog import Catalog, CatalogSettings, NewItem

OBSERVE_AFTER = 3
MOST_ITEMS = 150
MOST_WRITES = 60
"""Acknowledged writes after which a child is killed, at most; by time alone, one on a busy machine would do nothing."""

LONGEST = 0.02
"""Seconds that it lives after that, at most, so that it is killed in the middle of a write: most take a few ms."""


def load(place: Path, seed: int, known: dict[str, list[Any]]) -> Any:
    """The child's work: writes until it is killed."""

    def work(tell) -> None:
        drawn, there = random.Random(seed), sorted(known)
        clicks = {name: [number for number, _ in known[name][3]] for name in there}
        catalog = Catalog.open(place, model())
        tell({"open": True})
        for number in range(10_000):
            kind = drawn.choice(
                [
                    *("add", "add", "add", "update", "tags", "delete", "delete several"),
                    *("click", "click", "clicks", "undo", "snapshot", "search"),
                ]
            )
            if len(there) > MOST_ITEMS:
                kind = "delete"
            name = drawn.choice(there) if there else None
            if kind == "add":
                new = [
                    [f"{seed}-{number}-{one}", text_of(drawn), ["tag"] * (one % 2)]
                    for one in range(drawn.randint(1, 4))
                ]
                tell({"do": "add", "items": new})
                catalog.add([NewItem(of, text, tuple(tags)) for of, text, tags in new])
                there += [of for of, _, _ in new]
                tell({"done": number})
            elif kind == "search" or name is None:
                catalog.search([text_of(drawn)], 5)
            elif kind == "snapshot":
                if number % 7 == 0:
                    catalog.snapshot(place.parent / "kept", overwrite=True)
            elif kind == "update":
                text = text_of(drawn)
                tell({"do": "update", "id": name, "text": text})
                catalog.update(name, text=text)
                tell({"done": number})
            elif kind == "tags":
                tag = f"tag {number % 5}"
                tell({"do": "tags", "id": name, "tag": tag})
                catalog.update(name, add_tags=[tag])
                tell({"done": number})
            elif kind == "delete several" and len(there) > 20:
                gone = drawn.sample(there, drawn.randint(2, 4))
                tell({"do": "delete several", "ids": gone})
                catalog.delete(gone)
                there = [one for one in there if one not in gone]
                tell({"done": number})
            elif kind == "clicks":
                new = [[drawn.choice(there), text_of(drawn)] for _ in range(drawn.randint(2, 6))]
                tell({"do": "clicks", "clicks": new})
                recorded = catalog.clicks([(of, query) for of, query in new])
                for click in recorded:
                    clicks.setdefault(click.item, []).append(click.number)
                tell({"done": number, "number": recorded[0].number})
            elif kind == "delete" and len(there) > 20:
                tell({"do": "delete", "id": name})
                catalog.delete([name])
                there.remove(name)
                clicks.pop(name, None)
                tell({"done": number})
            elif kind == "click":
                query = text_of(drawn)
                tell({"do": "click", "id": name, "query": query})
                click = catalog.click(name, query)
                clicks.setdefault(name, []).append(click.number)
                tell({"done": number, "number": click.number})
            elif kind == "undo" and clicks.get(name):
                taken = clicks[name].pop()
                tell({"do": "undo", "id": name, "number": taken})
                catalog.undo(taken)
                tell({"done": number})

    return work


def applied(known: dict[str, list[Any]], write: dict[str, Any], number: int | None) -> dict[str, list[Any]]:
    """What the catalog holds after a write."""
    after = deepcopy(known)
    name = write.get("id", "")
    if write["do"] == "add":
        after |= {of: [text, tags, "novel", []] for of, text, tags in write["items"]}
    elif write["do"] == "update":
        after[name][0] = write["text"]
    elif write["do"] == "tags":
        after[name][1] = sorted({*after[name][1], write["tag"]})
    elif write["do"] == "delete":
        del after[name]
    elif write["do"] == "delete several":
        for name in write["ids"]:
            del after[name]
    elif write["do"] in ("click", "clicks"):
        new = [[name, write["query"]]] if write["do"] == "click" else write["clicks"]
        for place, (of, query) in enumerate(new):
            # The numbers of one transaction follow each other.
            after[of][3] = sorted([*after[of][3], [None if number is None else number + place, query]])
            after[of][2] = _state(after[of][3])
    else:
        after[name][3] = [click for click in after[name][3] if click[0] != write["number"]]
        after[name][2] = _state(after[name][3])
    return after


def _state(clicks: list[Any]) -> str:
    return "observed" if len(clicks) >= OBSERVE_AFTER else "clicked" if clicks else "novel"


def run(kills: int, seed: int, most_seconds: float) -> dict[str, Any]:
    """So many kills, one after the other on one catalog."""
    folder = Path(tempfile.mkdtemp(prefix="metaxc-kills-"))
    place, drawn, started = folder / "catalog", random.Random(seed), time.perf_counter()
    Catalog.create(place, model(), settings=CatalogSettings(observe_after=OBSERVE_AFTER)).close()
    known: dict[str, list[Any]] = {}
    counts = {
        "kills": 0,
        "acknowledged": 0,
        "under way": 0,
        "of these applied": 0,
        "lost": 0,
        "ghosts": 0,
        "errors": 0,
    }
    problems: list[str] = []
    try:
        while counts["kills"] < kills and time.perf_counter() - started < most_seconds:
            known = one_kill(place, known, seed + counts["kills"], drawn, counts, problems)
            counts["kills"] += 1
            if problems and counts["lost"] + counts["ghosts"] + counts["errors"] > 3:
                break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        **counts,
        "items at the end": len(known),
        "seconds": round(time.perf_counter() - started, 1),
        "problems": problems,
    }


def one_kill(place, known, seed, drawn, counts, problems) -> dict[str, list[Any]]:
    """One child killed; what the catalog holds then."""
    child = Child(load(place, seed, known))
    lines, pending = child.lines(), None
    first = next(lines, {"error": "died before it was open"})
    if "error" in first:
        counts["errors"] += 1
        problems.append(f"kill {counts['kills']}: {first}")
        child.wait()
        return known
    left = drawn.randrange(MOST_WRITES)
    for line in _killing(child, lines, left, drawn.random() * LONGEST):
        if "error" in line:
            counts["errors"] += 1
            problems.append(f"kill {counts['kills']}: {line}")
        elif "do" in line:
            pending = line
        else:
            counts["acknowledged"] += 1
            known, pending = applied(known, pending, line.get("number")), None
    child.wait()
    told, code = ask(lambda tell: _look(place, tell))
    if code or not told or "error" in told[-1]:
        counts["errors"] += 1
        problems.append(f"kill {counts['kills']}: not opened: {told[-1:]}, code {code}")
        return known
    found = told[-1]["content"]
    if found == known:
        counts["under way"] += pending is not None
        return known
    if pending is not None and found == _after(known, pending, found):
        counts["under way"] += 1
        counts["of these applied"] += 1
        return found
    lost = [name for name in known if name not in found]
    ghosts = [name for name in found if name not in known]
    counts["lost"] += bool(lost) or not ghosts
    counts["ghosts"] += bool(ghosts)
    problems.append(f"kill {counts['kills']}: lost {lost[:3]}, ghosts {ghosts[:3]}, under way {pending}")
    return found


def _killing(child: Child, lines: Iterator[Any], writes: int, seconds: float) -> Iterator[Any]:
    """What a child tells; it is killed so many seconds after so many of its writes were acknowledged."""
    for line in lines if writes else ():
        yield line
        writes -= "done" in line
        if not writes:
            break
    time.sleep(seconds)
    os.kill(child.pid, signal.SIGKILL)
    yield from lines


def _look(place: Path, tell) -> None:
    with Catalog.open(place, model()) as catalog:
        tell({"content": content_of(catalog)})


def _after(known, pending, found) -> dict[str, list[Any]]:
    """What the write under way would have made; a click's number is taken from what is there."""
    number = None
    if pending["do"] in ("click", "clicks"):
        before = {of for row in known.values() for of, _ in row[3]}
        number = min((of for row in found.values() for of, _ in row[3] if of not in before), default=None)
    return applied(known, pending, number)


def main() -> None:
    """Kill, count and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1800.0, help="stop after so long")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model()
    found = run(options.kills, options.seed, options.seconds)
    write_result(found, options.out)


if __name__ == "__main__":
    main()
