"""Killed at every point where it matters: each fsync, rename and SQL statement of each operation, one after the other.

    python benchmarks/reliability/crash_points.py --out benchmarks/results/reliability/crash_points.json

A child is killed (SIGKILL, by itself) at the n-th such call; where an operation has more of them than `--points`, the
last ones, where commits and renames are, and others evenly between. Then the catalog must open and be what it was
before or what it is after, and nothing between.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proof_run import write_result
from world import ask, content_of, model, text_of

from metaxc import artifacts
from metaxc.catalog import Catalog, CatalogSettings, NewItem, migrate, store
from metaxc.catalog.model_switch import ModelSwitch
from metaxc.errors import MetaxcError


class Fuse:
    """Kills the process at the n-th call; 0 only counts them."""

    def __init__(self, at: int):
        self.at, self.calls = at, 0

    def burn(self) -> None:
        """One call more."""
        self.calls += 1
        if self.calls == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a chance to die before it and one after."""

        def called(*arguments: Any, **named: Any) -> Any:
            self.burn()
            answer = function(*arguments, **named)
            self.burn()
            return answer

        return called


def with_fuse(at: int) -> Fuse:
    """From now on this process dies at the n-th call of what touches the disk."""
    fuse = Fuse(at)

    class Watched(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            return fuse.before(super().execute)(*arguments)

        def backup(self, *arguments: Any, **named: Any) -> None:
            fuse.before(super().backup)(*arguments, **named)

        def close(self) -> None:
            fuse.before(super().close)()

    connect = sqlite3.connect
    store.sqlite3.connect = lambda *arguments, **named: connect(*arguments, **{**named, "factory": Watched})  # type: ignore[attr-defined]
    artifacts.os.fsync = fuse.before(os.fsync)  # type: ignore[attr-defined]
    Path.rename = fuse.before(Path.rename)  # type: ignore[assignment]
    Path.unlink = fuse.before(Path.unlink)  # type: ignore[assignment]
    shutil.rmtree = fuse.before(shutil.rmtree)  # type: ignore[assignment]
    os.pwrite = fuse.before(os.pwrite)  # type: ignore[assignment]
    return fuse


def opened(place: Path, neighbours: int = 3) -> Catalog:
    """The catalog in this process."""
    return Catalog.open(place / "catalog", model(neighbours))


def add(place: Path) -> None:
    """Add three items in one batch."""
    opened(place).add(
        [NewItem(f"new{number}", text_of(random.Random(number)), ("tag",)) for number in range(3)]
    )


def click(place: Path) -> None:
    """Record the click that makes an item observed."""
    opened(place).click("0", "word1 word2 word3")


def delete(place: Path) -> None:
    """Delete two items, one of them with clicks."""
    opened(place).delete(["0", "1"])


def close(place: Path) -> None:
    """Write, then close: the index is saved and the checksum written."""
    catalog = opened(place)
    catalog.update("2", text="word5 word6 word7")
    catalog.close()


def snapshot(place: Path) -> None:
    """Replace an older snapshot."""
    opened(place).snapshot(place / "kept", overwrite=True)


def restore(place: Path) -> None:
    """Restore a snapshot of another state."""
    Catalog.restore(place / "kept", place / "catalog", overwrite=True)


def moved(place: Path) -> None:
    """Migrate to another model."""
    migrate(place / "catalog", model(4))


def switched(place: Path) -> None:
    """Switch to another model with the catalog open."""
    old = opened(place)
    switch = ModelSwitch(old, model(4))
    switch.build()
    new = switch.finish()
    old.close()
    switch.remove_unused()
    new.close()


OPERATIONS = {work.__name__: work for work in (add, click, delete, close, snapshot, restore, moved, switched)}


def prepared(place: Path) -> None:
    """A catalog and a snapshot of another state of it."""
    with Catalog.create(place / "catalog", model(), settings=CatalogSettings(observe_after=2)) as catalog:
        drawn = random.Random(0)
        catalog.add([NewItem(str(number), text_of(drawn)) for number in range(6)])
        catalog.click("0", text_of(drawn))
        catalog.snapshot(place / "kept")
        catalog.delete(["5"])


def state_of(place: Path) -> Any:
    """What the catalog holds and of which model it is; and whether its snapshot can be restored."""

    def work(tell: Callable[[Any], None]) -> None:
        for neighbours in (3, 4):
            try:
                with opened(place, neighbours) as catalog:
                    content = content_of(catalog)
                break
            except MetaxcError as error:
                if "another model" not in error.what:
                    raise
        Catalog.restore(place / "kept", place / "restored")
        with Catalog.open(place / "restored", model()) as catalog:
            kept = content_of(catalog)
        tell({"content": _without_numbers(content), "model": neighbours, "kept": _without_numbers(kept)})

    told, code = ask(work)
    shutil.rmtree(place / "restored", ignore_errors=True)
    return told[-1] if code == 0 and told else {"error": told[-1:], "code": code}


def _without_numbers(content: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [*facts[:3], len(facts[3])] for name, facts in content.items()}


def chosen(calls: int, most: int) -> list[int]:
    """The calls to be killed at: all, or the last half of `most` and as many evenly before."""
    if calls <= most:
        return list(range(1, calls + 1))
    last = range(calls - most // 2 + 1, calls + 1)
    step = (calls - most // 2) / (most - most // 2)
    return [*(1 + int(step * number) for number in range(most - most // 2)), *last]


def run(names: list[str], points: int) -> dict[str, Any]:
    """The points of every operation."""
    folder = Path(tempfile.mkdtemp(prefix="metaxc-points-"))
    counts: dict[str, Counter] = {}
    problems: list[str] = []
    try:
        ask(lambda tell: prepared(folder / "start"))
        shutil.copytree(folder / "start", folder / "end")
        before = state_of(folder / "start")
        for name in names:
            work = OPERATIONS[name]
            shutil.rmtree(folder / "end")
            shutil.copytree(folder / "start", folder / "end")

            def whole(tell, work=work) -> None:
                fuse = with_fuse(0)
                work(folder / "end")
                tell(fuse.calls)

            told, code = ask(whole)
            if code:
                raise AssertionError(f"{name} does not end well: {told}")
            after, counts[name] = state_of(folder / "end"), Counter()
            for call in chosen(told[-1], points):
                place = folder / "killed"
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(folder / "start", place)

                def child(tell, work=work, call=call, place=place) -> None:
                    with_fuse(call)
                    work(place)

                _, code = ask(child)
                if code != -signal.SIGKILL:
                    continue  # one that came to its end a call earlier
                found = state_of(place)
                answer = "as before" if found == before else "as after" if found == after else "NEITHER"
                counts[name][answer] += 1
                if answer == "NEITHER":
                    problems.append(f"{name}, point {call}: {str(found)[:400]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    total = sum(counts.values(), Counter())
    return {
        "points": total.total(),
        **total,
        "operations": {k: dict(v) for k, v in counts.items()},
        "problems": problems,
    }


def main() -> None:
    """Kill, count and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operations", nargs="*", default=list(OPERATIONS), choices=list(OPERATIONS))
    parser.add_argument("--points", type=int, default=60, help="at most so many of each operation")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model(), model(4)
    found = run(options.operations, options.points)
    write_result(found, options.out)


if __name__ == "__main__":
    main()
