"""Accuracy with default settings, beside the bare encoder's, and what training costs.

    python benchmarks/accuracy.py DATA... --out benchmarks/results/accuracy.json

For each data set folder: `metaxc train`, then `metaxc evaluate --baseline encoder`, both as a user would call
them, and the time of `SentenceTransformer.encode` (its own defaults) on a sample of the same texts in the same
run, so that cost is a ratio. A result file is merged: data sets not named keep their rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from metaxc import __version__, read_folder
from metaxc.data import Dataset

SHOWN = ("P@1", "R@10", "R@100", "nDCG@10", "PSP@1")
SAMPLE = 2_000


def metaxc(*arguments: str | Path) -> dict:
    """What the command prints with --json."""
    command = [sys.executable, "-c", "from metaxc.cli.main import run; run()", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def seconds_of_plain_encoding(dataset: Dataset, threads: int) -> float:
    """How long `SentenceTransformer.encode` would take for all training texts, from a random sample."""
    import torch
    from sentence_transformers import SentenceTransformer

    from metaxc.encoders import Pretrained

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(Pretrained().folder), device="cpu")
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    sample = [texts[row] for row in np.random.default_rng(0).choice(len(texts), SAMPLE)]
    model.encode(sample[:100], show_progress_bar=False)
    started = time.perf_counter()
    model.encode(sample, show_progress_bar=False)
    return (time.perf_counter() - started) * len(texts) / SAMPLE


def run(folder: Path, cache: Path | None, threads: int) -> dict:
    """One row: accuracy of the model and of the bare encoder, and the cost."""
    dataset = read_folder(folder)
    plain = seconds_of_plain_encoding(dataset, threads)
    with tempfile.TemporaryDirectory() as place:
        where = ["--cache", str(cache or Path(place) / "cache"), "--threads", str(threads)]
        trained = metaxc("train", folder, "--out", Path(place) / "model", *where)
        found = metaxc("evaluate", Path(place) / "model", folder, "--baseline", "encoder", *where)
    encoding = trained["stages"]["encode"]
    learning = trained["seconds"] - encoding
    return {
        "queries": len(dataset.train),
        "items": len(dataset.items),
        "novel": int(dataset.novel_mask.sum()),
        "data": dataset.fingerprint,
        "metaxc": {s: found[s] for s in ("zero_shot", "generalized")},
        "intervals": found["intervals"],
        "bare encoder": {s: found["baseline"][s] for s in ("zero_shot", "generalized")},
        "chosen": {**trained["pseudo_novel"], "constants": trained["constants"]},
        "seconds": {
            "encode": encoding,
            "learn": learning,
            "plain encode": plain,
            "stages": trained["stages"],
        },
        "embeddings were cached": encoding < plain / 3,
        "times plain encoding": (max(encoding, plain) + learning) / plain
        if encoding < plain / 3
        else (encoding + learning) / plain,
        "threads": threads,
        "version": __version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def show(name: str, row: dict) -> None:
    """Two lines per setting."""
    for setting in ("zero_shot", "generalized"):
        for who in ("bare encoder", "metaxc"):
            cells = "  ".join(f"{metric} {row[who][setting][metric]:5.1f}" for metric in SHOWN)
            print(f"{name:16} {setting:12} {who:13} {cells}")
    print(
        f"{name:16} train from text: {row['times plain encoding']:.2f} × SentenceTransformer.encode",
        flush=True,
    )


def table(results: dict) -> str:
    """The README's table, from a result file."""
    lines = [
        "| data set | | zero-shot P@1 | R@10 | generalized P@1 | R@10 | train ÷ encode |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(results.items()):
        for who in ("bare encoder", "metaxc"):
            cells = [f"{row[who][s][m]:.1f}" for s in ("zero_shot", "generalized") for m in ("P@1", "R@10")]
            if who == "metaxc":
                cells = [f"**{cell}**" for cell in cells]
            cost = f"{row['times plain encoding']:.1f} ×" if who == "metaxc" else ""
            lines.append(
                f"| {name if who == 'bare encoder' else ''} | {who} | {' | '.join(cells)} | {cost} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", nargs="*", type=Path, help="data set folders with a test part and a novel.txt"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/accuracy.json"))
    parser.add_argument("--cache", type=Path, help="reuse embeddings; encoding then counts as plain encoding")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true", help="print the result file as a Markdown table")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.out.read_text())))
        return
    for folder in options.data:
        row = run(folder, options.cache, options.threads)
        show(folder.name, row)
        results = json.loads(options.out.read_text()) if options.out.exists() else {}
        results[folder.name] = row
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
