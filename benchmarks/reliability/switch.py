"""Another model under load: does a switch lose a write, invent one, or let a search fail, and what does it cost?

    python benchmarks/reliability/switch.py --switches 50 --kills 100 --out benchmarks/results/reliability/switch.json

A real service in its own process is switched from model to model, every fifth time back to the one before, while
clients add, update, click, take clicks back, delete and search, each its own items. Then the service must hold what it
has acknowledged, and nothing else. The latency of searches during switches stands beside that between them.

Then kills: a child switches and writes without a pause and is killed at a random moment. Another child opens the
catalog with the model that it has then, and what was acknowledged must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kills import OBSERVE_AFTER, applied
from kills import _after as applied_if_there
from live import Wires, quantiles, served
from proof_run import add_options, finish_run, use_source
from world import Child, ask, content_of, model, text_of

SOURCE = use_source()

from metaxc.catalog import Catalog, CatalogSettings, NewItem  # noqa: E402
from metaxc.catalog.catalog_folder import CatalogFolder  # noqa: E402
from metaxc.catalog.generation_record import read_model  # noqa: E402
from metaxc.catalog.model_switch import ModelSwitch  # noqa: E402

MODELS = (3, 4, 5)
"""Numbers of neighbours: three models, so that the previous generation is not always the one that is wanted."""

BETWEEN = 0.5
"""Seconds without a switch after each of them, in which searches are timed, too."""

LONGEST = 1.5
"""Seconds a child lives at most: a switch takes about one."""


@dataclass
class Load:
    """What the clients have seen."""

    statuses: Counter[str] = field(default_factory=Counter)
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    switching: bool = False
    stopped: bool = False


async def write(wires: Wires, load: Load, client: int, seed: int) -> None:
    """One client: writes to its own items until told to stop."""
    drawn, number = random.Random(seed), 0
    own: list[str] = []
    while not load.stopped:
        number += 1
        kind = drawn.choice(["add", "add", "click", "click", "update", "undo", "delete"])
        name = drawn.choice(own) if own else ""
        facts = load.known.get(name, {})
        if kind == "add" or not own:
            name, text = f"{client}-{number}", text_of(drawn)
            reply = await wires.add(name, text)
            if reply.status == 200:
                own.append(name)
                load.known[name] = {"text": text, "clicks": {}}
        elif kind == "click":
            query = text_of(drawn)
            reply = await wires.click(name, query)
            if reply.status == 200:
                facts["clicks"][reply.json()["number"]] = query
        elif kind == "update":
            text = text_of(drawn)
            reply = await wires.ask("PUT", f"/v1/items/{quote(name, safe='')}", {"text": text})
            if reply.status == 200:
                facts["text"] = text
        elif kind == "undo" and facts["clicks"]:
            taken = drawn.choice(sorted(facts["clicks"]))
            reply = await wires.ask("DELETE", f"/v1/clicks/{taken}")
            if reply.status == 200:
                del facts["clicks"][taken]
        elif kind == "delete" and len(own) > 10:
            reply = await wires.ask("DELETE", f"/v1/items/{quote(name, safe='')}")
            if reply.status == 200:
                own.remove(name)
                del load.known[name]
        else:
            continue
        load.statuses[f"{kind} {reply.status}"] += 1
        await asyncio.sleep(drawn.random() * 0.1)


async def search(wires: Wires, load: Load, seed: int) -> None:
    """One client: searches until told to stop."""
    drawn = random.Random(seed)
    while not load.stopped:
        during = load.switching
        reply = await wires.search([text_of(drawn)])
        load.statuses[f"search {reply.status}"] += 1
        load.seconds[during].append(reply.seconds)
        await asyncio.sleep(drawn.random() * 0.05)


async def switch(wires: Wires, load: Load, switches: int, problems: list[str]) -> list[float]:
    """Switch so many times; the seconds that each took."""
    seconds, present, previous = [], MODELS[0], None
    for number in range(switches):
        if previous is not None and number % 5 == 4:
            body: dict[str, Any] = {"rollback": True}
            present, previous = previous, present
        else:
            following = MODELS[(MODELS.index(present) + 1) % len(MODELS)]
            body = {"model": str(following), "force": number % 2 == 1}
            present, previous = following, present
        load.switching, started = True, time.perf_counter()
        reply = await wires.ask("POST", "/v1/model", body)
        load.statuses[f"switch {reply.status}"] += 1
        status = reply.json()
        while status["state"] not in ("switched", "failed"):
            await asyncio.sleep(0.05)
            status = (await wires.ask("GET", "/v1/model")).json()
        load.switching = False
        seconds.append(time.perf_counter() - started)
        wanted = model(present).fingerprint
        if (status["state"], status["model"]) != ("switched", wanted):
            problems.append(f"switch {number}: {status}")
            break
        await asyncio.sleep(BETWEEN)
    return seconds


async def compare(wires: Wires, load: Load) -> dict[str, int]:
    """What the service holds against what it has acknowledged."""
    held = {name: text for name, text in (await wires.everything()).items() if not name.startswith("base")}
    lost = [name for name in load.known if name not in held]
    ghosts = [name for name in held if name not in load.known]
    other = [name for name, facts in load.known.items() if held.get(name, facts["text"]) != facts["text"]]
    clicks = 0
    for name, facts in load.known.items():
        if facts["clicks"] and name in held:
            told = (await wires.explain(name)).json()["clicks"]
            clicks += {click["number"]: click["query"] for click in told} != facts["clicks"]
    return {"lost": len(lost), "ghosts": len(ghosts), "other texts": len(other), "other clicks": clicks}


async def under_load(url: str, switches: int, clients: int, seed: int) -> dict[str, Any]:
    """Clients write and search while the service is switched."""
    wires, load, problems = Wires(url), Load(), []
    working = [asyncio.create_task(write(wires, load, number, seed + number)) for number in range(clients)]
    working += [asyncio.create_task(search(wires, load, seed + 100 + number)) for number in range(clients)]
    await asyncio.sleep(4 * BETWEEN)
    seconds = await switch(wires, load, switches, problems)
    load.stopped = True
    await asyncio.gather(*working)
    differences = await compare(wires, load)
    wires.close()
    refused = {what: count for what, count in load.statuses.items() if not what.endswith((" 200", " 202"))}
    failed = sum(count for what, count in refused.items() if what.split()[-1][0] in "05")
    problems += [f"{name}: {count}" for name, count in {**differences, "5xx": failed}.items() if count]
    during, between = (quantiles(load.seconds[state]) for state in (True, False))
    return {
        "switches": len(seconds),
        "acknowledged writes": sum(
            count
            for what, count in load.statuses.items()
            if what.endswith(" 200") and not what.startswith("search")
        ),
        "items at the end": len(load.known),
        **differences,
        "5xx": failed,
        "statuses": dict(sorted(load.statuses.items())),
        "a switch, ms": quantiles(seconds),
        "searches during switches, ms": during,
        "searches between switches, ms": between,
        "p99 ratio": round(during["p99"] / between["p99"], 2),
        "load average": round(os.getloadavg()[0], 1),
        "problems": problems,
    }


def switching_child(place: Path, seed: int, known: dict[str, list[Any]]) -> Any:
    """A child's work: one switch after the other in a thread, writes until it is killed."""

    def work(tell) -> None:
        drawn, there = random.Random(seed), sorted(known)
        clicks = {name: [number for number, _ in known[name][3]] for name in there}
        catalog = open_catalog(place)
        building: tuple[threading.Thread, ModelSwitch] | None = None
        tell({"open": True})
        for number in range(10_000):
            if building is None:
                others = [model(one) for one in MODELS if model(one).fingerprint != catalog.model.fingerprint]
                switch = ModelSwitch(catalog, drawn.choice(others))
                building = threading.Thread(target=switch.build, daemon=True), switch
                building[0].start()
            elif not building[0].is_alive():  # the last step takes its turn between two writes
                tell({"switch": "begins"})
                old, catalog = catalog, building[1].finish()
                tell({"switch": "done"})
                old.close()
                building[1].remove_unused()
                building = None
            one_write(catalog, drawn, there, clicks, f"{seed}-{number}", tell)

    return work


def one_write(catalog, drawn, there, clicks, fresh: str, tell) -> None:
    """Tell of a write, do it, tell that it is acknowledged."""
    kind, name = drawn.choice(["add", "update", "delete", "click", "click", "undo"]), ""
    if there:
        name = drawn.choice(there)
    if kind == "add" or not there:
        text = text_of(drawn)
        tell({"do": "add", "items": [[fresh, text, ["tag"]]]})
        catalog.add([NewItem(fresh, text, ("tag",))])
        there.append(fresh)
    elif kind == "update":
        text = text_of(drawn)
        tell({"do": "update", "id": name, "text": text})
        catalog.update(name, text=text)
    elif kind == "delete" and len(there) > 20:
        tell({"do": "delete", "id": name})
        catalog.delete([name])
        there.remove(name)
        clicks.pop(name, None)
    elif kind == "click":
        query = text_of(drawn)
        tell({"do": "click", "id": name, "query": query})
        click = catalog.click(name, query)
        clicks.setdefault(name, []).append(click.number)
        tell({"done": True, "number": click.number})
        return
    elif kind == "undo" and clicks.get(name):
        taken = clicks[name].pop()
        tell({"do": "undo", "id": name, "number": taken})
        catalog.undo(taken)
    else:
        return
    tell({"done": True})


def open_catalog(place: Path) -> Catalog:
    """The catalog with the model that it has."""
    fingerprint, _ = read_model(CatalogFolder(place))
    return Catalog.open(place, next(model(one) for one in MODELS if model(one).fingerprint == fingerprint))


def look(place: Path, tell) -> None:
    """Everything that the catalog holds."""
    with open_catalog(place) as catalog:
        catalog.store.verify()
        tell({"content": content_of(catalog)})


def kill(kills: int, seed: int, most_seconds: float) -> dict[str, Any]:
    """So many kills, one after the other on one catalog."""
    folder = Path(tempfile.mkdtemp(prefix="metaxc-switch-"))
    place, drawn, started = folder / "catalog", random.Random(seed), time.perf_counter()
    Catalog.create(place, model(MODELS[0]), settings=CatalogSettings(observe_after=OBSERVE_AFTER)).close()
    known: dict[str, list[Any]] = {}
    counts: Counter[str] = Counter(kills=0, acknowledged=0, switches=0, lost=0, ghosts=0, errors=0)
    problems: list[str] = []
    try:
        while counts["kills"] < kills and time.perf_counter() - started < most_seconds and not problems:
            known = one_kill(place, known, seed + counts["kills"], drawn, counts, problems)
            counts["kills"] += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**counts, "items at the end": len(known), "problems": problems}


def one_kill(place, known, seed, drawn, counts, problems) -> dict[str, list[Any]]:
    """One child killed; what the catalog holds then."""
    child = Child(switching_child(place, seed, known))
    lines, pending = child.lines(), None
    first = next(lines, {"error": "died before it was open"})
    if "error" not in first:
        time.sleep(drawn.random() * LONGEST)
    os.kill(child.pid, signal.SIGKILL)
    during = None
    for line in [first, *lines]:
        if "error" in line:
            counts["errors"] += 1
            problems.append(f"kill {counts['kills']}: {line}")
        elif "switch" in line:
            counts["switches"] += line["switch"] == "done"
            during = line["switch"]
        elif "do" in line:
            pending = line
        elif "done" in line:
            counts["acknowledged"] += 1
            known, pending = applied(known, pending, line.get("number")), None
    counts["killed in the last step of a switch"] += during == "begins"
    child.wait()
    told, code = ask(lambda tell: look(place, tell))
    if code or not told or "error" in told[-1]:
        counts["errors"] += 1
        problems.append(f"kill {counts['kills']}: not opened: {told[-1:]}, code {code}")
        return known
    found = told[-1]["content"]
    if found == known:
        return known
    if pending is not None and found == applied_if_there(known, pending, found):
        return found
    lost = [name for name in known if name not in found]
    ghosts = [name for name in found if name not in known]
    counts["lost"] += bool(lost) or not ghosts
    counts["ghosts"] += bool(ghosts)
    problems.append(f"kill {counts['kills']}: lost {lost[:3]}, ghosts {ghosts[:3]}, under way {pending}")
    return found


def memory(pid: int) -> int:
    """What a process holds in memory, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def run(switches: int, clients: int, kills: int, seed: int, most_seconds: float = 3600.0) -> dict[str, Any]:
    """Switches under load, then kills."""
    folder = Path(tempfile.mkdtemp(prefix="metaxc-switch-"))
    for one in MODELS:
        (folder / "models" / str(one)).mkdir(parents=True)
        model(one)
    loaded: dict[str, Any] = {"problems": []}
    try:
        if switches:
            options = ["--models", str(folder / "models"), "--token-seconds", "0.0002"]
            with served(folder / "catalog", options=options) as server:
                before = memory(server.pid)
                loaded = asyncio.run(under_load(server.url, switches, clients, seed))
                loaded["memory, MB"] = {"before": before, "after": memory(server.pid)}
                loaded["exit code"] = server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    killed = kill(kills, seed, most_seconds)
    problems = loaded.pop("problems") + killed.pop("problems")
    return {"seed": seed, "clients": 2 * clients, "under load": loaded, "kills": killed, "problems": problems}


def main() -> None:
    """Switch, kill, count and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--switches", type=int, default=50)
    parser.add_argument("--clients", type=int, default=3, help="that write, and as many that search")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop killing after so long")
    add_options(parser)
    options = parser.parse_args()
    finish_run(run(options.switches, options.clients, options.kills, options.seed, options.seconds), options)


if __name__ == "__main__":
    main()
