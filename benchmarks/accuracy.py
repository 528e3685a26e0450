"""Accuracy with default settings, compared with the bare encoder, and the cost of training.

    python benchmarks/accuracy.py DATA... --out benchmarks/results/accuracy.json

For each data set folder this runs `metaxc train`, then `metaxc evaluate --baseline encoder`, and measures the time of
`SentenceTransformer.encode` (with its defaults) on a sample of the same texts in the same run, so that the cost is a
ratio. Rows of other data sets in the result file stay.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from metaxc import __version__, read_folder
from metaxc.data import Dataset
from metaxc.research.latency import time_call

SHOWN = ("P@1", "R@10", "R@100", "nDCG@10", "PSP@1")
SAMPLE = 2_000


def metaxc(*arguments: str | Path) -> dict:
    """The output of a metaxc command with --json."""
    command = [sys.executable, "-c", "from metaxc.cli.main import run; run()", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure_plain_encoding(dataset: Dataset, threads: int) -> float:
    """The seconds that `SentenceTransformer.encode` would take for all training texts, estimated from a sample."""
    import torch
    from sentence_transformers import SentenceTransformer

    from metaxc.encoders import Pretrained

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(Pretrained().folder), device="cpu")
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    sample = [texts[row] for row in np.random.default_rng(0).choice(len(texts), SAMPLE)]
    model.encode(sample[:100], show_progress_bar=False)
    seconds, _ = time_call(lambda: model.encode(sample, show_progress_bar=False))
    return seconds * len(texts) / SAMPLE


def run(folder: Path, cache: Path | None, threads: int) -> dict:
    """One row: accuracy of the model and of the bare encoder, and the cost."""
    dataset = read_folder(folder)
    plain = measure_plain_encoding(dataset, threads)
    with tempfile.TemporaryDirectory() as temporary:
        model = Path(temporary) / "model"
        options = ["--cache", str(cache or Path(temporary) / "cache"), "--threads", str(threads)]
        trained = metaxc("train", folder, "--out", model, *options)
        found = metaxc("evaluate", model, folder, "--baseline", "encoder", *options)
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


def print_row(name: str, row: dict) -> None:
    """Print two lines per setting."""
    for setting in ("zero_shot", "generalized"):
        for system in ("bare encoder", "metaxc"):
            cells = "  ".join(f"{metric} {row[system][setting][metric]:5.1f}" for metric in SHOWN)
            print(f"{name:16} {setting:12} {system:13} {cells}")
    print(
        f"{name:16} train from text: {row['times plain encoding']:.2f} × SentenceTransformer.encode",
        flush=True,
    )


def render_table(results: dict) -> str:
    """The result file as the README's table."""
    lines = [
        "| data set | | zero-shot P@1 | R@10 | generalized P@1 | R@10 | train ÷ encode |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(results.items()):
        for system in ("bare encoder", "metaxc"):
            cells = [
                f"{row[system][s][m]:.1f}" for s in ("zero_shot", "generalized") for m in ("P@1", "R@10")
            ]
            if system == "metaxc":
                cells = [f"**{cell}**" for cell in cells]
            cost = f"{row['times plain encoding']:.1f} ×" if system == "metaxc" else ""
            lines.append(
                f"| {name if system == 'bare encoder' else ''} | {system} | {' | '.join(cells)} | {cost} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run the data sets and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", nargs="*", type=Path, help="data set folders with a test part and a novel.txt"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/accuracy.json"))
    parser.add_argument(
        "--cache", type=Path, help="folder for embeddings; cached ones count as plain encoding"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true", help="print the result file as a Markdown table")
    options = parser.parse_args()
    if options.table:
        print(render_table(json.loads(options.out.read_text())))
        return
    for folder in options.data:
        row = run(folder, options.cache, options.threads)
        print_row(folder.name, row)
        results = json.loads(options.out.read_text()) if options.out.exists() else {}
        results[folder.name] = row
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
