"""Every file of a catalog, a snapshot and a model, damaged in every way: is it told, always, without a crash?

    python benchmarks/reliability/corruption.py --rounds 20 --out benchmarks/results/reliability/corruption.json

A child opens what was damaged and reads all of it. It may refuse with a clear error, it may rebuild what can be
rebuilt and say so, or it may answer exactly as before where the damage hit nothing that counts (free pages of a
record that was not closed). It must not answer anything else, and must not crash.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proof_run import write_result
from world import Child, Hashed, ask, content_of, model, text_of

from metaxc import Emmett
from metaxc.catalog import Catalog, CatalogSettings, NewItem
from metaxc.encoders import Vectors
from metaxc.errors import MetaxcError


def damages(
    content: bytes, other: bytes, drawn: random.Random, rounds: int
) -> Iterator[tuple[str, bytes | None]]:
    """The content in many wrong forms; None where the file is gone."""
    yield "gone", None
    yield "empty", b""
    yield "half", content[: len(content) // 2]
    yield "one byte short", content[:-1]
    yield "one byte more", content + b"\0"
    yield "zeros", bytes(len(content))
    yield "another catalog's", other
    for _ in range(rounds):
        place, flipped = drawn.randrange(len(content)), bytearray(content)
        flipped[place] ^= 1 << drawn.randrange(8)
        yield "flipped bit", bytes(flipped)
    for _ in range(rounds):
        start, zeroed = drawn.randrange(len(content)), bytearray(content)
        long = drawn.choice([16, 512, 4096])
        zeroed[start : start + long] = bytes(len(zeroed[start : start + long]))
        yield "zeroed part", bytes(zeroed)


def filled(place: Path, seed: int, close: bool) -> None:
    """A catalog with a life behind it; one that is not closed was killed."""

    def work(tell) -> None:
        drawn = random.Random(seed)
        catalog = Catalog.create(place, model(), settings=CatalogSettings(observe_after=2))
        for number in range(40):
            catalog.add([NewItem(f"{seed}-{number}", text_of(drawn), ("tag",))])
            catalog.click(f"{seed}-{drawn.randint(0, number)}", text_of(drawn))
        catalog.delete([f"{seed}-3"])
        if close:
            catalog.close()
        tell("ready")
        if not close:
            signal.pause()

    child = Child(work)
    next(child.lines())
    if not close:
        os.kill(child.pid, signal.SIGKILL)
    child.wait()


def look_at_catalog(place: Path) -> Any:
    """The child's work: open, read all, tell it, and what was logged on the way."""

    def work(tell) -> None:
        logged: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("metaxc").addHandler(handler)
        try:
            with Catalog.open(place, model()) as catalog:
                tell({"content": content_of(catalog), "logged": logged})
        except MetaxcError as error:
            tell({"refused": error.what, "got": str(error.got)})

    return work


def look_at_snapshot(place: Path, scratch: Path) -> Any:
    """Restore a snapshot and read all of it."""

    def work(tell) -> None:
        try:
            Catalog.restore(place, scratch / "restored")
        except MetaxcError as error:
            tell({"refused": error.what, "got": str(error.got)})
            return
        look_at_catalog(scratch / "restored")(tell)

    return work


def look_at_model(place: Path) -> Any:
    """Load a model and tell its vectors."""

    def work(tell) -> None:
        try:
            loaded = Emmett.load(place)
            tell({"content": loaded.vectors.tobytes().hex()[:4000], "logged": []})
        except MetaxcError as error:
            tell({"refused": error.what, "got": str(error.got)})

    return work


def judged(work: Any, expected: Any) -> str:
    """How a damaged thing was met."""
    told, code = ask(work)
    if code < 0:
        return f"CRASHED with signal {-code}"
    if not told or "error" in told[-1]:
        return f"CRASHED: {told[-1:]}"
    if "refused" in told[-1]:
        return "refused"
    if told[-1]["content"] != expected:
        return "WRONG ANSWER"
    return "rebuilt and said so" if told[-1]["logged"] else "same answers"


def subjects(folder: Path) -> Iterator[tuple[str, Path, Path, Any]]:
    """Name, the thing, another of its kind, and how to look at it."""
    for name, closed in (("closed catalog", True), ("killed catalog", False)):
        filled(folder / name / "one", 1, closed)
        filled(folder / name / "two", 2, closed)
        yield name, folder / name / "one", folder / name / "two", look_at_catalog
    for number, source in ((1, "one"), (2, "two")):
        with Catalog.open(folder / "closed catalog" / source, model(), read_only=True) as catalog:
            catalog.snapshot(folder / f"snapshot {number}")
    yield (
        "snapshot",
        folder / "snapshot 1",
        folder / "snapshot 2",
        lambda place: look_at_snapshot(place, place.parent),
    )
    for number in (1, 2):
        saved(number).save(folder / f"model {number}")
    yield "model", folder / "model 1", folder / "model 2", look_at_model


def saved(number: int) -> Emmett:
    """A model that can be saved: its texts' vectors come along."""
    made = model(2 + number)
    texts = list(made.items.texts)
    made.encoder = Vectors(["query"], Hashed().encode_queries(["query"]), texts, Hashed().encode_items(texts))
    return made


def run(rounds: int, seed: int) -> dict[str, Any]:
    """Damage everything, one file at a time."""
    folder, drawn = Path(tempfile.mkdtemp(prefix="metaxc-damage-")), random.Random(seed)
    counts: dict[str, Counter] = {}
    problems: list[str] = []
    try:
        for name, thing, other, look in subjects(folder):
            copy = folder / "damaged" / "one"
            shutil.rmtree(copy.parent, ignore_errors=True)
            shutil.copytree(thing, copy)
            expected = ask(look(copy))[0][-1]["content"]
            for file in sorted(path for path in thing.rglob("*") if path.is_file() and path.stat().st_size):
                inside = file.relative_to(thing)
                theirs = other / inside
                for kind, content in damages(
                    file.read_bytes(), theirs.read_bytes() if theirs.exists() else b"other", drawn, rounds
                ):
                    if content == file.read_bytes():
                        continue
                    shutil.rmtree(copy.parent)
                    shutil.copytree(thing, copy)
                    (copy / inside).unlink()
                    if content is not None:
                        (copy / inside).write_bytes(content)
                    answer = judged(look(copy), expected)
                    counts.setdefault(f"{name}: {inside}", Counter())[answer] += 1
                    if answer.startswith(("CRASHED", "WRONG")):
                        problems.append(f"{name}: {inside}, {kind}: {answer}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    total = sum(counts.values(), Counter())
    return {
        "damages": total.total(),
        **total,
        "files": {k: dict(v) for k, v in counts.items()},
        "problems": problems,
    }


def main() -> None:
    """Damage, count and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=20, help="random flips, and random zeroed parts, of each file"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model()
    found = run(options.rounds, options.seed)
    write_result(found, options.out)


if __name__ == "__main__":
    main()
