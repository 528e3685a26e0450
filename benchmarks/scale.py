"""How the time, memory and disk space of training grow: synthetic click logs of several sizes, each in its own process.

    python benchmarks/scale.py --items 3e3 1e4 3e4 --out benchmarks/results/scale.json
    python benchmarks/scale.py --items 1e5 1e6 --add --out benchmarks/results/scale.json
    python benchmarks/scale.py --items 1e4 --train "--size default" --add --out benchmarks/results/scale.json
    python benchmarks/scale.py --items 1e6 --keep models             # keeps them, for catalog_millions.py
    python benchmarks/scale.py --table benchmarks/results/scale.json      # Markdown, with the exponents of growth

Each log has 1.25 queries and 5 clicks per item (`metaxc data synthetic`, --seed) and is trained by `metaxc train` on
one thread, or --threads. By stage it records seconds of wall-clock and of processor time, and the peak of resident
memory, which Linux keeps for a process (VmHWM in /proc) and which is reset after each stage. On a busy machine the
processor time is the figure to compare. With --add, rows of the same size and options are replaced and others are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import metaxc as package
from metaxc import __version__
from metaxc.research.code_version import git_commit

QUERIES, CLICKS = 1.25, 5.0
"""Per item: as in the largest log that the project has to train (1,000,000 items, 5,000,000 clicks)."""

STAGES = ("encode", "tune", "encoder", "embeddings", "classifiers", "neighbours", "generator", "index")
"""In the order in which `metaxc train` reports them; what comes before `encode` is `read`, what comes after `index` is
`save`."""

GIGABYTE = 1e9


def peak_memory(process: int) -> float:
    """Bytes of resident memory at the most since the last `forget_peak`; 0 where the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0.0)


def forget_peak(process: int) -> None:
    """Set the peak to the present resident memory."""
    with suppress(OSError):  # the process has ended
        Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")


def processor_seconds(process: int) -> float:
    """Seconds of user and system time so far; 0 where the process has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def folder_bytes(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def train(data: Path, out: Path, options: list[str], cache: Path, threads: int) -> dict[str, Any]:
    """Train in a process of its own; seconds, processor seconds and peak memory by stage."""
    command = [sys.executable, "-m", "metaxc", "train", str(data), "--out", str(out)]
    command += ["--threads", str(threads), "--cache", str(cache), "--ignore-memory", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    started = mark = time.perf_counter()
    used = 0.0
    stages: dict[str, dict[str, float]] = {}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        messages = []

        def close(name: str) -> None:
            nonlocal mark, used
            now, spent = time.perf_counter(), processor_seconds(process.pid)
            stages[name] = {
                "seconds": round(now - mark, 2),
                "processor_seconds": round(max(spent - used, 0.0), 2),
                "peak_gb": round(peak_memory(process.pid) / GIGABYTE, 4),
            }
            mark, used = now, spent
            forget_peak(process.pid)

        for line in process.stderr:
            messages.append(line)
            name = line.split(":")[0].split(" (")[0]
            if line.startswith("learn from"):
                close("read")
            elif name in STAGES:
                close(name)
            elif line.startswith(f"{out}: written"):
                close("save")
        if process.wait():
            raise SystemExit("".join(messages[-20:]))
    return {
        "stages": stages,
        "seconds": round(time.perf_counter() - started, 2),
        "processor_seconds": round(sum(stage["processor_seconds"] for stage in stages.values()), 2),
        "peak_gb": max(stage["peak_gb"] for stage in stages.values()),
        "model_bytes": folder_bytes(out),
    }


def measure(
    items: int, options: list[str], seed: int, threads: int, work: Path, keep: Path | None
) -> dict[str, Any]:
    """One row: a log of this size, made and trained; both are kept in `keep`, if given, as data-N and model-N."""
    data, out = work / "data", work / "model"
    sizes = {"items": items, "queries": round(QUERIES * items), "clicks": round(CLICKS * items)}
    command = [
        sys.executable,
        "-m",
        "metaxc",
        "data",
        "synthetic",
        "--out",
        str(data),
        "--seed",
        str(seed),
        "--json",
    ]
    command += [text for name, count in sizes.items() for text in (f"--{name}", str(count))]
    started = time.perf_counter()
    made = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    generated = time.perf_counter() - started
    row = {
        **sizes,
        "written": made["counts"],
        "train": options,
        "seed": seed,
        "commit": git_commit(Path(package.__file__).parent),
        "command": f"python benchmarks/scale.py --items {items} --train '{' '.join(options)}' --seed {seed} "
        f"--threads {threads}",
        "threads": threads,
        "version": __version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "generate_seconds": round(generated, 2),
        "data_bytes": folder_bytes(data),
        **train(data, out, options, work / "cache", threads),
    }
    for folder in (data, out):
        if keep is None:
            shutil.rmtree(folder)
        else:
            shutil.move(folder, keep / f"{folder.name}-{items}")
    return row


def growth_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: processor seconds and memory by stage and size, and the exponent of growth from the last size but one
    to the last: 1 is in proportion to the items."""
    rows = sorted(rows, key=lambda row: row["items"])
    ratio = math.log(rows[-1]["items"] / rows[-2]["items"])

    def exponent(values: list[float]) -> str:
        return f"{math.log(values[-1] / values[-2]) / ratio:.2f}" if min(values[-2:]) >= 1 else ""

    head = ["stage", *(f"{row['items']:,} items" for row in rows), "exponent of seconds", "of memory"]
    table = [head, ["---"] * len(head)]
    for name in rows[-1]["stages"]:
        seconds, memory = (
            [row["stages"][name][of] for row in rows] for of in ("processor_seconds", "peak_gb")
        )
        cells = [f"{one:,.0f} s, {size:.1f} GB" for one, size in zip(seconds, memory, strict=True)]
        table.append([name, *cells, exponent(seconds), exponent(memory)])
    for name, of in (("all, wall-clock", "seconds"), ("all, processor", "processor_seconds")):
        seconds = [row[of] for row in rows]
        table.append([f"**{name}**", *(f"{one:,.0f} s" for one in seconds), exponent(seconds), ""])
    memory = [row["peak_gb"] for row in rows]
    table.append(["**peak of memory**", *(f"{one:.1f} GB" for one in memory), "", exponent(memory)])
    sizes = [f"{row['data_bytes'] / 1e6:,.0f} MB, {row['model_bytes'] / 1e9:.2f} GB" for row in rows]
    table.append(["data, model on disk", *sizes, "", ""])
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def main() -> None:
    """Run all sizes; the result file is written after each of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", nargs="+", type=float, default=[3e3, 1e4, 3e4])
    parser.add_argument("--train", default="--size fast", help="options of `metaxc train`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", type=Path, help="folder for logs and models; by default a temporary one")
    parser.add_argument("--keep", type=Path, help="an existing folder to move logs and models to")
    parser.add_argument("--add", action="store_true", help="keep the other rows of the result file")
    parser.add_argument("--table", type=Path, help="only print the growth in this result file, as Markdown")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.table:
        rows = json.loads(options.table.read_text(encoding="utf-8"))["rows"]
        options = rows[-1]["train"], rows[-1]["threads"]
        print(growth_table([row for row in rows if (row["train"], row["threads"]) == options]))
        return
    chosen = options.train.split()
    rows: list[dict[str, Any]] = []
    if options.add and options.out and options.out.exists():
        rows = json.loads(options.out.read_text(encoding="utf-8"))["rows"]
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        for count in options.items:
            row = measure(int(count), chosen, options.seed, options.threads, Path(work), options.keep)
            print(json.dumps(row), flush=True)
            key = (row["train"], row["threads"], row["items"])
            rows = [one for one in rows if (one["train"], one["threads"], one["items"]) != key] + [row]
            rows.sort(key=lambda one: (one["train"], one["threads"], one["items"]))
            if options.out:
                options.out.write_text(json.dumps({"rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
