"""A power cut at every sync of a catalog's life, and a disk whose syncs fail: what was acknowledged is there, what was
refused is not.

    python benchmarks/reliability/powerloss.py --out benchmarks/results/reliability/powerloss.json

Power cuts. A child creates a catalog, writes, takes a snapshot, restores it, migrates; strace records every write, sync
and rename. The recording is replayed up to each sync, and what a power cut leaves at that moment (`recorded_disk.py`)
is opened: strictly, with only what was synced, and mixed, with any part of the rest. It must hold every acknowledged
write; of the one under way all or nothing; and a snapshot that was acknowledged must be restorable.

Failing syncs. A library that is loaded before libc lets the n-th sync fail, once or from then on. After every answer
that is not an acknowledgement the process may end, as in a restart. Acknowledged writes must be there, refused ones
must not; of one whose outcome is "unknown" either is right.

Needs strace and a C compiler; without one of them its half is left out, which the result says.
"""

from __future__ import annotations

import argparse
import ctypes
import inspect
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proof_run import add_options, finish_run, use_source

SOURCE = use_source()
os.environ["OMP_NUM_THREADS"] = (
    "1"  # as in the recorded child: with more threads the model differs in its last digits
)

from recorded_disk import RecordedDisk, calls_of, record  # noqa: E402
from world import all_items, ask, model, text_of  # noqa: E402

from metaxc.catalog import Catalog, CatalogSettings, NewItem, StorageError, catalog_errors, migrate  # noqa: E402
from metaxc.errors import MetaxcError  # noqa: E402

REPLACING: dict[str, Any] = (
    {"overwrite": True} if "overwrite" in inspect.signature(Catalog.restore).parameters else {}
)
UnknownOutcome = getattr(catalog_errors, "OutcomeUnknownError", ())
"""Older versions do not know it."""

FAILING_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
static long failing = 0, counted = 0;
static int lasting = 0;
void arm(long number, int from_then_on) { failing = number; counted = 0; lasting = from_then_on; }
long count(void) { return counted; }
static int fails(void) {
  counted++;
  return failing && (lasting ? counted >= failing : counted == failing);
}
static int run(const char *name, int file) {
  int (*real)(int) = dlsym(RTLD_NEXT, name);
  if (fails()) { errno = EIO; return -1; }
  return real(file);
}
int fsync(int file) { return run("fsync", file); }
int fdatasync(int file) { return run("fdatasync", file); }
"""


def listed(catalog: Catalog) -> dict[str, Any]:
    """What a user can see of the items that did not come with the model."""
    items = all_items(catalog)
    return {
        item.id: [item.text, list(item.tags), item.clicks] for item in items if not item.id.startswith("base")
    }


def live(base: Path) -> None:
    """The life of a catalog. After each operation one line on standard output acknowledges it."""
    place, kept, drawn = base / "new" / "catalog", base / "new" / "kept", random.Random(3)
    first = second = {}

    def acknowledge(name: str, content: dict[str, Any]) -> None:
        line = json.dumps(
            {"acknowledged": name, "content": content, "kept": second if kept.exists() else None}
        )
        os.write(1, f"{line}\n".encode())

    catalog = Catalog.create(place, model(), settings=CatalogSettings(observe_after=2))
    acknowledge("create", listed(catalog))
    for number in range(3):
        catalog.add([NewItem(f"{number}{letter}", text_of(drawn), ("tag",)) for letter in "ab"])
        acknowledge("add", listed(catalog))
    for _ in range(2):
        clicked = catalog.click("0a", text_of(drawn))
        acknowledge("click", listed(catalog))
    catalog.undo(clicked.number)
    acknowledge("undo", listed(catalog))
    second = listed(catalog)
    catalog.snapshot(kept)
    acknowledge("snapshot", second)
    catalog.update("1a", text="word1 word2 word3")
    acknowledge("update", listed(catalog))
    catalog.delete(["1b", "2a"])
    first = listed(catalog)
    acknowledge("delete", first)
    catalog.close()
    acknowledge("close", first)
    with Catalog.open(place, model()) as catalog:
        catalog.add([NewItem("later", text_of(drawn))])
        first = listed(catalog)
        acknowledge("add after opening", first)
    acknowledge("close again", first)
    Catalog.restore(kept, place, **REPLACING)
    acknowledge("restore", second)
    with Catalog.open(place, model()) as catalog:
        catalog.add([NewItem("restored", text_of(drawn))])
        first = listed(catalog)
        acknowledge("add after restoring", first)
    migrate(place, model(4))
    acknowledge("migrate", first)
    catalog = Catalog.open(place, model(4))
    catalog.add([NewItem("migrated", text_of(drawn))])
    acknowledge("add after migrating", listed(catalog))
    os._exit(0)


def open_left(base: Path) -> Any:
    """What a power cut has left, opened in a child: the content of the catalog and of its snapshot."""
    place, kept = base / "new" / "catalog", base / "new" / "kept"

    def work(tell: Callable[[Any], None]) -> None:
        found: dict[str, Any] = {"content": None, "kept": None}
        if kept.exists():
            Catalog.restore(kept, base / "restored")
            with Catalog.open(base / "restored", model()) as catalog:
                found["kept"] = listed(catalog)
        if (place / "CURRENT").exists():
            for neighbours in (3, 4):
                try:
                    with Catalog.open(place, model(neighbours)) as catalog:
                        found["content"] = listed(catalog)
                        catalog.add([NewItem("afterwards", "word1 word2")])
                    break
                except MetaxcError as error:
                    if "another model" not in error.what:
                        raise
        else:
            Catalog.create(place, model()).close()
        tell(found)

    told, code = ask(work)
    return told[-1] if code == 0 and told else {"error": told[-1:], "code": code}


def cut_power(points: int, mixed: int) -> dict[str, Any]:
    """Record a life, and open what a power cut leaves at each sync."""
    folder = Path(tempfile.mkdtemp(prefix="metaxc-power-"))
    counts: Counter[str] = Counter()
    problems: list[str] = []
    try:
        base, log = folder / "base", folder / "log"
        base.mkdir()
        words = [sys.executable, __file__, "--record", str(base)]
        code = record(words, log, {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"})
        calls = list(calls_of(log))
        disk = RecordedDisk(base)
        lives = [_acknowledged(call) for call in calls]
        answers = [answer for answer in lives if answer]
        for call in calls:
            disk.apply(*call)
        missing = disk.differences(base)
        if code or missing or not answers or answers[-1]["acknowledged"] != "add after migrating":
            raise AssertionError(
                f"the recording is not complete: code {code}, {missing}, {len(answers)} answers"
            )
        moments = [place for place, call in enumerate(calls) if call[0] in ("fsync", "fdatasync")]
        chosen = set(moments) if len(moments) <= points else set(random.Random(0).sample(moments, points))
        disk, told = RecordedDisk(base), 0

        def judge(kind: str, place: int, drawn: random.Random | None) -> None:
            left = folder / "left"
            shutil.rmtree(left, ignore_errors=True)
            disk.write_out(left, drawn)
            found = open_left(left)
            counts[f"{kind}: replays"] += 1
            verdict = _judged(found, answers[:told], answers[told : told + 1])
            if verdict:
                counts[f"{kind}: {verdict}"] += 1
                done = answers[told - 1]["acknowledged"] if told else "nothing"
                problems.append(f"{kind}, call {place} after {done}: {verdict}: {str(found)[:200]}")

        for place, call in enumerate(calls):
            if place in chosen:
                for seed in range(mixed):
                    judge("mixed", place, random.Random(f"{place} {seed}"))
            disk.apply(*call)
            told += lives[place] is not None
            if place in chosen:
                judge("strict", place, None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"calls": len(calls), "syncs": len(moments), **dict(sorted(counts.items())), "problems": problems}


def _acknowledged(call: tuple[str, list[Any], int]) -> dict[str, Any] | None:
    name, arguments, _ = call
    if name == "write" and arguments[0] == 1 and arguments[1].startswith(b'{"acknowledged"'):
        answer: dict[str, Any] = json.loads(arguments[1])
        return answer
    return None


def _judged(found: dict[str, Any], before: list[Any], under_way: list[Any]) -> str | None:
    """What is wrong with what was found, or None."""
    if "error" in found:
        return "cannot be opened"
    allowed = [answer["content"] for answer in (*before[-1:], *under_way)]
    if not before:
        allowed.append(None)
    if found["content"] not in allowed:
        return "the catalog is lost" if found["content"] is None else "writes are lost or half there"
    if before and before[-1]["kept"] is not None and found["kept"] != before[-1]["kept"]:
        return "the snapshot is lost"
    return None


OPERATIONS: dict[str, tuple[Callable[[Catalog], Any], Callable[[dict[str, Any]], bool]]] = {
    "add": (lambda c: c.add([NewItem("added", "word1 word2")]), lambda f: "added" in f),
    "click": (lambda c: c.click("0", "word1"), lambda f: f["0"][2] == 1),
    "large add": (
        lambda c: c.add([NewItem(f"large{n}", f"word{n % 60}") for n in range(60)]),
        lambda f: "large0" in f,
    ),
    "update": (lambda c: c.update("1", text="word7 word8"), lambda f: f["1"][0] == "word7 word8"),
    "delete": (lambda c: c.delete(["2"]), lambda f: "2" not in f),
    "last add": (lambda c: c.add([NewItem("last", "word3")]), lambda f: "last" in f),
}
"""Each with what shows that it has happened."""


def fail_syncs(most: int) -> dict[str, Any]:
    """Let each sync of some writes fail."""
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    folder = Path(tempfile.mkdtemp(prefix="metaxc-syncs-"))
    counts: Counter[str] = Counter()
    problems: list[str] = []

    def prepare(tell: Callable[[Any], None]) -> None:
        with Catalog.create(folder / "start", model()) as catalog:
            catalog.add([NewItem(str(number), "word4 word5") for number in range(3)])

    def write(place: Path, number: int, lasting: bool, restart: bool) -> tuple[dict[str, str], int]:
        def work(tell: Callable[[Any], None]) -> None:
            library.arm(number, lasting)
            catalog = Catalog.open(place, model())
            for name, (operation, _) in OPERATIONS.items():
                try:
                    operation(catalog)
                    answer = "acknowledged"
                except UnknownOutcome:
                    answer = "unknown"
                except StorageError:
                    answer = "refused"
                tell([name, answer])
                if restart and answer != "acknowledged":
                    os._exit(0)
            tell(["syncs", library.count()])
            os._exit(0)

        told, _ = ask(work)
        answers = {line[0]: line[1] for line in told if isinstance(line, list)}
        return answers, int(answers.pop("syncs", 0))

    def look(place: Path) -> Any:
        def work(tell: Callable[[Any], None]) -> None:
            with Catalog.open(place, model()) as catalog:
                tell(listed(catalog))

        told, code = ask(work)
        return told[-1] if code == 0 else None

    try:
        ask(prepare)
        shutil.copytree(folder / "start", folder / "whole")
        _, syncs = write(folder / "whole", 0, False, False)
        faults = [
            (n, lasting, restart) for n in range(1, syncs + 1) for lasting in (0, 1) for restart in (0, 1)
        ]
        if len(faults) > most:
            faults = random.Random(0).sample(faults, most)
        for number, lasting, restart in faults:
            place = folder / "fault"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(folder / "start", place)
            answers, _ = write(place, number, bool(lasting), bool(restart))
            found = look(place)
            counts["faults"] += 1
            counts.update(f"answers: {answer}" for answer in answers.values())
            if found is None:
                problems.append(f"sync {number}: the catalog cannot be opened")
                continue
            for name, answer in answers.items():
                there = OPERATIONS[name][1](found)
                if answer == "acknowledged" and not there:
                    counts["acknowledged and lost"] += 1
                elif answer == "refused" and there:
                    counts["refused and there after a restart"] += 1
                else:
                    continue
                problems.append(f"sync {number} ({'lasting' if lasting else 'once'}): {name} was {answer}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"syncs": syncs, **dict(sorted(counts.items())), "problems": problems}


def _with_library() -> None:
    """Start again with the library that lets syncs fail, if it can be compiled."""
    if "METAXC_FAULTS" in os.environ or shutil.which("cc") is None:
        return
    folder = Path(tempfile.mkdtemp(prefix="metaxc-library-"))
    (folder / "failing_sync.c").write_text(FAILING_SYNC)
    library = folder / "failing_sync.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "failing_sync.c", "-ldl"], check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "METAXC_FAULTS": str(folder),
        "PYTHONPATH": SOURCE,
    }
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main() -> None:
    """Cut the power, fail the syncs, count and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=10_000, help="syncs at which the power is cut, at most")
    parser.add_argument("--mixed", type=int, default=3, help="mixed states per sync")
    parser.add_argument("--faults", type=int, default=10_000, help="failing syncs, at most")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    add_options(parser)
    options = parser.parse_args()
    if options.record is not None:
        live(options.record)
    _with_library()
    model(), model(4)
    found: dict[str, Any] = {
        "power cuts": "left out: strace is missing",
        "failing syncs": "left out: cc is missing",
    }
    problems: list[str] = []
    if shutil.which("strace") is not None:
        found["power cuts"] = cut_power(options.points, options.mixed)
        problems += found["power cuts"].pop("problems")
    if "METAXC_FAULTS" in os.environ:
        found["failing syncs"] = fail_syncs(options.faults)
        problems += found["failing syncs"].pop("problems")
        shutil.rmtree(os.environ["METAXC_FAULTS"])
    found["broken promises"] = len(problems)
    finish_run({**found, "problems": problems[:20]}, options)


if __name__ == "__main__":
    main()
