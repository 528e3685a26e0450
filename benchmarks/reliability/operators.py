"""Slips of an operator: a command pointed at the wrong place, a deleted lock file, a migration under a running reader,
a read-only disk. None of them may cost data, and none may leave a service that says it is ready and is not.

    python benchmarks/reliability/operators.py --out benchmarks/results/reliability/operators.json

Outputs: every command that writes a folder or file is pointed at a catalog, at its own source, into or around it, at
notes that metaxc has not written, and at links to all of these, with and without --overwrite. Nothing that was there
may change. Lock: the lock file of a served catalog is deleted; a second writer must be refused. Readers: a catalog is
migrated while `serve --read-only` answers; whenever /readyz is 200 before and after a search, the search must be
answered, and no lookup may come from the old generation. Read-only disk: a catalog is read from one, and refused for
writing with advice and without a traceback.

`--quick` leaves out what trains or draws. Mounting needs the rights for it; without them those attacks are left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proof_run import add_options, finish_run, use_source

SOURCE = use_source()

import httpx  # noqa: E402
import torch  # noqa: E402
from world import ask, dataset  # noqa: E402

from metaxc import Irene, IreneConfig  # noqa: E402
from metaxc.catalog import Catalog, NewItem  # noqa: E402
from metaxc.cli import main as command_line  # noqa: E402
from metaxc.data import write_folder  # noqa: E402
from metaxc.emmett import Emmett  # noqa: E402

KNOWS_OVERWRITE = find_spec("metaxc.output_claims") is not None
PATIENCE = 120.0
"""Seconds to wait for a service."""


class World:
    """What an operator has: models, data, catalogs, a snapshot, notes.

    Args:
        folder: Where all of it is.
        models: Two model folders to copy.
    """

    def __init__(self, folder: Path, models: Sequence[Path]):
        self.folder = folder
        shutil.copytree(models[0], folder / "model")
        shutil.copytree(models[1], folder / "other-model")
        shutil.copytree(models[0], folder / "noted-model")
        write_folder(dataset(), folder / "data")
        for name in ("catalog", "other-catalog"):
            with Catalog.create(folder / name, Emmett.load(folder / "model")) as catalog:
                catalog.add([NewItem("new", "word1 word2")])
                if name == "catalog":
                    catalog.snapshot(folder / "snapshot")
        for name in ("notes/thesis.txt", "notes/items.jsonl", "gens/gen-5/thesis.txt"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("years of work\n")
        (folder / "notes.npy").write_text("years of work\n")
        (folder / "noted-model" / "notes.txt").write_text("how this model was made\n")
        for name in ("catalog", "notes", "data"):
            (folder / f"link-to-{name}").symlink_to(folder / name)

    def content(self) -> dict[str, Any]:
        """Every file, and every link."""
        return {
            str(path.relative_to(self.folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if (path.is_symlink() or path.is_file()) and not path.name.endswith(("-wal", "-shm"))
        }


def run_command(words: Sequence[Any], folder: Path) -> tuple[int, str]:
    """The exit code of a metaxc command in a child process, and what it printed on standard error."""
    log = folder.parent / ".stderr"  # a slip may take the folder itself

    def work(tell: Callable[[Any], None]) -> None:
        with log.open("w") as file:
            os.dup2(file.fileno(), 2)
            os.dup2(file.fileno(), 1)
        sys.argv = ["metaxc", *map(str, words)]
        try:
            command_line.run()
        except SystemExit as ended:
            tell(ended.code or 0)

    told, code = ask(work)
    said = log.read_text()
    log.unlink()
    if told and isinstance(told[-1], dict):
        said += f"Traceback of a {told[-1]['error']}: {told[-1]['says']}"
    return int(told[-1]) if told and isinstance(told[-1], int) else code, said


def slips(quick: bool) -> Iterator[tuple[str, list[str]]]:
    """Commands that would destroy something; @ stands before a name in the world."""
    places = [
        "catalog",
        "catalog/gen-1",
        "catalog/inside",
        "other-catalog",
        "notes",
        "data",
        "noted-model",
        "link-to-catalog",
        "link-to-notes",
        ".",
    ]
    for place in places:
        yield "snapshot", ["catalog", "snapshot", "@catalog", f"@{place}"]
        yield "export", ["catalog", "export", "@catalog", f"@{place}", "--format", "npy"]
    for place in ("catalog", "notes", "gens", "noted-model"):
        yield "restore", ["catalog", "restore", "@snapshot", f"@{place}"]
    for place in ("catalog", "gens"):
        yield "create", ["catalog", "create", f"@{place}", "@model"]
    for place in ("data", "link-to-data", "notes", "catalog"):
        yield "data split", ["data", "split", "@data", f"@{place}"]
        yield "data convert", ["data", "convert", "@data", f"@{place}", "--from", "metaxc", "--to", "xc"]
    for place in ("notes.npy", "model/config.json"):
        yield "represent", ["represent", "@model", "word1", "--out", f"@{place}"]
    if not quick:
        for place in ("data", "notes", "noted-model", "catalog", "link-to-notes"):
            yield "train", ["train", "@data", "--size", "fast", "--encoder", "static", "--out", f"@{place}"]
        yield "report", ["report", "@model", "@data", "--out", "@notes/thesis.txt"]


def try_slips(models: Sequence[Path], scratch: Path, quick: bool) -> dict[str, Any]:
    """Make every slip, with and without --overwrite."""
    counts: dict[str, Counter[str]] = {}
    problems: list[str] = []
    place = scratch / "world"
    World(scratch / "start", models)
    for name, words in slips(quick):
        may_overwrite = KNOWS_OVERWRITE and not name.startswith("create")
        for more in ([], ["--overwrite"]) if may_overwrite or name == "train" else ([],):
            if name == "restore" and words[-1] == "@catalog" and more:
                continue  # that is what --overwrite is for
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(scratch / "start", place, symlinks=True)
            for link in place.glob("link-*"):
                target = Path(os.readlink(link)).name
                link.unlink()
                link.symlink_to(place / target)
            world = World.__new__(World)
            world.folder = place
            before = world.content()
            here = [str(place / word[1:]) if word.startswith("@") else word for word in words]
            code, said = run_command([*here, *more], place)
            if "Usage:" in said:
                raise AssertionError(f"not a command: {words}: {said}")
            after = world.content()
            lost = sorted(name for name in before if after.get(name) != before[name])
            kept = "kept" if not lost else "LOST"
            refused = "refused" if code else "done"
            counts.setdefault(name, Counter()).update([kept, refused])
            if lost:
                problems.append(f"{' '.join([*words, *more])}: {len(lost)} files changed, such as {lost[0]}")
            if "Traceback" in said:
                counts[name]["traceback"] += 1
                problems.append(f"{' '.join([*words, *more])}: {said.strip().splitlines()[-1][:200]}")
    for words in (
        ["catalog", "snapshot", place / "catalog", place / "fresh"],
        ["catalog", "export", place / "catalog", place / "exported"],
        [
            "catalog",
            "snapshot",
            place / "catalog",
            place / "fresh",
            *(["--overwrite"] if KNOWS_OVERWRITE else []),
        ],
    ):
        if run_command(words, place)[0]:
            problems.append(f"refused without a reason: {' '.join(map(str, words[:2]))}")
    return {"outputs": {name: dict(found) for name, found in counts.items()}, "problems": problems}


@contextmanager
def serving(*words: Any) -> Iterator[httpx.Client]:
    """A client of `metaxc serve` in a process of its own."""
    code = "from metaxc.cli.main import run; run()"
    command = [sys.executable, "-c", code, "serve", *map(str, words), "--port", "0", "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("ready: "):
                errors.seek(0)
                raise RuntimeError(errors.read().decode()[-500:])
            with httpx.Client(base_url=line.split()[1], timeout=PATIENCE) as client:
                yield client
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


def search(client: httpx.Client) -> int:
    """The status of a search."""
    return client.post("/v1/search", json={"queries": ["word1"]}).status_code


def delete_lock(models: Sequence[Path], scratch: Path) -> dict[str, Any]:
    """Delete the lock file of a catalog that is served, snapshot it onto itself, and try to write beside it."""
    world = World(scratch / "locked", models)
    place, found = world.folder, {}
    with serving(place / "model", "--catalog", place / "catalog") as client:
        found["snapshot onto itself"] = run_command(
            ["catalog", "snapshot", place / "catalog", place / "catalog"], place
        )[0]
        found["the catalog is there afterwards"] = (place / "catalog" / "CURRENT").is_file()
        added = client.post("/v1/items", json={"items": [{"id": "served", "text": "word3"}]})
        found["the service writes afterwards"] = added.status_code
        (place / "catalog" / "writer.lock").unlink(missing_ok=True)
        more = ["--overwrite"] if KNOWS_OVERWRITE else []
        for name, words in {
            "add": ["catalog", "add", place / "catalog", place / "model", "word1", "--id", "second"],
            "restore": ["catalog", "restore", place / "snapshot", place / "catalog", *more],
            "migrate": ["catalog", "migrate", place / "catalog", place / "other-model"],
        }.items():
            found[f"{name} without the lock file"] = run_command(words, place)[0]
        looked = client.get("/v1/items/served").status_code
    told, _ = ask(
        lambda tell: tell("served" in Catalog.open(place / "catalog", Emmett.load(place / "model")))
    )
    found["the acknowledged item is there"] = (looked, told[-1:]) == (200, [True])
    expected = {
        "snapshot onto itself": 2,
        "the service writes afterwards": 200,
        "add without the lock file": 2,
        "restore without the lock file": 2,
        "migrate without the lock file": 2,
    }
    problems = [
        f"lock: {name}: {value}" for name, value in found.items() if value != expected.get(name, True)
    ]
    return {"lock": found, "problems": problems}


def migrate_under_a_reader(models: Sequence[Path], scratch: Path) -> dict[str, Any]:
    """Migrate a catalog under `serve --read-only`, and write to the new generation."""
    world = World(scratch / "read", models)
    place, counts = world.folder, Counter[str]()
    problems: list[str] = []
    with serving(place / "model", "--catalog", place / "catalog", "--read-only") as client:

        def look(expected: str | None) -> bool:
            before, status, after = (
                client.get("/readyz").status_code,
                search(client),
                client.get("/readyz").status_code,
            )
            counts["polls"] += 1
            if before == after == 200 and status != 200:
                counts["ready and no search"] += 1
            if expected is not None and client.get(f"/v1/items/{expected}").status_code == 404:
                counts["looked up in the removed generation"] += 1
            return status == 200

        look(None)
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        words = ["catalog", "migrate", place / "catalog", place / "other-model"]
        migration = subprocess.Popen(
            [sys.executable, "-c", "from metaxc.cli.main import run; run()", *words],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        while migration.poll() is None:
            look(None)
            time.sleep(0.05)

        def write(tell: Callable[[Any], None]) -> None:
            with Catalog.open(place / "catalog", Emmett.load(place / "other-model")) as catalog:
                catalog.add([NewItem("younger", "word5 word6")])

        ask(write)
        started = time.monotonic()
        while not (answered := look("younger")) and time.monotonic() - started < 30:
            time.sleep(0.1)
        found = {
            "searches after the migration": answered,
            "seconds until then": round(time.monotonic() - started, 1),
        }
        if not answered:
            problems.append("a reader does not answer searches after a migration")
        look("younger")
    for name in ("ready and no search", "looked up in the removed generation"):
        if counts[name]:
            problems.append(f"{name}: {counts[name]} of {counts['polls']} polls")
    return {"reader": {**counts, **found}, "problems": problems}


def read_only_disk(models: Sequence[Path], scratch: Path) -> dict[str, Any]:
    """Read a closed and a killed catalog on a read-only disk, and try to write; snapshot through a link to a mount."""
    world, found = World(scratch / "frozen", models), {}
    place, disk = world.folder, scratch / "disk"
    problems: list[str] = []
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], capture_output=True).returncode:
        return {"read-only disk": "left out: nothing can be mounted here", "problems": []}
    try:
        (place / "link-to-mount").symlink_to(disk)
        code, said = run_command(["catalog", "snapshot", place / "catalog", place / "link-to-mount"], place)
        stays = (place / "link-to-mount").is_symlink()
        found["snapshot to a link to a mount"] = f"code {code}, the link {'stays' if stays else 'is GONE'}"
        if not stays or "Traceback" in said:
            problems.append(f"snapshot to a link to a mount: {said[-200:]}")
        shutil.copytree(place / "catalog", disk / "closed")

        def kill(tell: Callable[[Any], None]) -> None:
            catalog = Catalog.open(place / "catalog", Emmett.load(place / "model"))
            catalog.add([NewItem("logged", "word7")])
            shutil.copytree(place / "catalog", disk / "killed")
            os._exit(0)

        ask(kill)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for name in ("closed", "killed"):
            for what, words, expected in (
                ("search", ["catalog", "search", disk / name, place / "model", "word1"], 0),
                ("add", ["catalog", "add", disk / name, place / "model", "word1", "--id", "x"], 2),
                ("snapshot", ["catalog", "snapshot", disk / name, disk / "out"], 2),
            ):
                code, said = run_command(words, place)
                clear = "Traceback" not in said and "free some space" not in said
                found[f"{what}, {name}"] = f"code {code}{'' if clear else ', wrong advice or a traceback'}"
                if code != expected or not clear:
                    problems.append(f"read-only disk: {what} of a {name} catalog: code {code}: {said[-200:]}")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    return {"read-only disk": found, "problems": problems}


def main() -> None:
    """Slip, look and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out what trains or draws")
    parser.add_argument("--only", nargs="*", choices=["outputs", "lock", "reader", "disk"])
    add_options(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    scratch = Path(tempfile.mkdtemp(prefix="metaxc-operators-"))
    attacks: dict[str, Callable[[Sequence[Path], Path], dict[str, Any]]] = {
        "outputs": lambda models, place: try_slips(models, place, options.quick),
        "lock": delete_lock,
        "reader": migrate_under_a_reader,
        "disk": read_only_disk,
    }
    found: dict[str, Any] = {"problems": []}
    try:
        models = [scratch / "first", scratch / "second"]
        for folder, neighbours in zip(models, (3, 4), strict=True):
            config = IreneConfig(encoder="static", adapter={"epochs": 2}, neighbours=neighbours, folds=0)
            Irene(config).fit(dataset()).save(folder)
        for name in options.only or attacks:
            result = attacks[name](models, scratch)
            found["problems"] += result.pop("problems")
            found |= result
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found["broken promises"] = len(found["problems"])
    finish_run(found, options)


if __name__ == "__main__":
    main()
