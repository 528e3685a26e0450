"""A disk without room: are writes refused, do reads go on, and does all go on when there is room again?

    python benchmarks/reliability/full_disk.py --out benchmarks/results/reliability/full_disk.json

Needs the right to mount a small tmpfs, or a folder on a small disk (`--folder`).
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proof_run import write_result
from world import ask, content_of, model, text_of

from metaxc.catalog import Catalog, NewItem, StorageError

MEGABYTES = 6


@contextmanager
def small_disk(given: Path | None):
    """A folder on a disk of a few megabytes."""
    if given is not None:
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="metaxc-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def run(disk: Path) -> dict[str, Any]:
    """Fill the disk, in several ways."""
    found: dict[str, Any] = {"acknowledged": 0, "refused": 0, "problems": []}
    place, ballast, drawn = disk / "catalog", disk / "ballast", random.Random(1)
    known: dict[str, str] = {}
    ballast.write_bytes(bytes(1_000_000))
    catalog = Catalog.create(place, model())

    def add(number: int) -> bool:
        text = text_of(drawn)
        try:
            catalog.add([NewItem(f"new{number}", text)])
        except StorageError:
            found["refused"] += 1
            return False
        known[f"new{number}"] = text
        found["acknowledged"] += 1
        return True

    def promise(name: str, kept: bool) -> None:
        found[name] = kept
        if not kept:
            found["problems"].append(name)

    def reads(name: str) -> None:
        hits = catalog.search([text_of(random.Random(2))], 5)[0]
        there = {one: facts[0] for one, facts in content_of(catalog).items()}
        promise(name, len(hits) == 5 and there == known)

    number = 0
    while number < 20_000 and add(number):
        number += 1
    promise("writes are refused on a full disk", found["refused"] == 1)
    reads("reads go on, with every acknowledged write")
    for more in range(number + 1, number + 6):
        add(more)
    promise("and go on to be refused", found["refused"] >= 5)
    try:
        catalog.snapshot(disk / "kept")
        found["problems"].append("a snapshot was written to a full disk")
    except (StorageError, OSError) as error:
        found["snapshot refused"] = type(error).__name__
    promise("half a snapshot is not left", not (disk / "kept").exists() and not list(disk.glob(".kept*")))
    ballast.unlink()
    promise("writes go on when there is room", all(add(90_000 + one) for one in range(20)))
    reads("reads after that")
    catalog.close()
    catalog = Catalog.open(place, model())
    reads("reads after opening again")
    while add(number := number + 100_000):
        pass
    catalog.close()  # on a full disk: the index and the checksum find no room
    told, code = ask(lambda tell: _open_full(place, known, tell))
    promise(
        "a catalog closed on a full disk opens, with every acknowledged write", code == 0 and told == ["same"]
    )
    return found


def _open_full(place: Path, known: dict[str, str], tell) -> None:
    with Catalog.open(place, model(), read_only=True) as catalog:
        there = {name: facts[0] for name, facts in content_of(catalog).items()}
        tell("same" if there == known else "other")


def main() -> None:
    """Fill, look and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, help="a folder on a small disk, in place of a tmpfs mounted now"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model()
    with small_disk(options.folder) as disk:
        found = run(disk)
    write_result(found, options.out)


if __name__ == "__main__":
    main()
