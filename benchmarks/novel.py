"""Are novel items found among all the others? Default settings, beside the adapted and the bare encoder alone.

    python benchmarks/novel.py DATA... --out benchmarks/results/novel.json
    python benchmarks/novel.py DATA --model MODEL --out FILE      # evaluates a model that is there, of older code too
    python benchmarks/novel.py DATA --size fast --out FILE        # another size of `metaxc train`
    python benchmarks/novel.py DATA --exposure-cost 1 --out FILE  # points of accuracy that may be given for novel items
    python benchmarks/novel.py --table summary                    # the result file as the README's table
    python benchmarks/novel.py --table details                    # and as those of docs/results.md

For each data set folder this trains as `metaxc train` does, runs `metaxc evaluate`, and measures the time of
`SentenceTransformer.encode` (with its defaults) on a sample of the same texts in the same run, so that the cost of
training is a ratio. Rows of other data sets in the result file stay. Each row names the commit, the seed, the
fingerprint of the data and the command. With `--cache` or `--encoders` what earlier runs have computed is found again;
then there is no cost of training.
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
import torch

import metaxc as package
from metaxc import EmbeddingCache, Irene, Pretrained, __version__, read_folder
from metaxc.data import Dataset
from metaxc.irene import SIZES
from metaxc.metrics import CLICK_SLICES
from metaxc.research.bench.results import find_metric
from metaxc.research.code_version import git_commit
from metaxc.research.latency import time_call

SAMPLE = 2_000
MODEL, ADAPTED, BARE = "metaxc", "adapted encoder alone", "bare encoder"


def metaxc(*arguments: str | Path) -> dict:
    """The output of a metaxc command with --json."""
    command = [sys.executable, "-c", "from metaxc.cli.main import run; run()", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure_plain_encoding(dataset: Dataset) -> float:
    """The seconds that `SentenceTransformer.encode` would take for all training texts, estimated from a sample."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(Pretrained().folder), device="cpu")
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    sample = [texts[row] for row in np.random.default_rng(0).choice(len(texts), SAMPLE)]
    model.encode(sample[:100], show_progress_bar=False)
    seconds, _ = time_call(lambda: model.encode(sample, show_progress_bar=False))
    return seconds * len(texts) / SAMPLE


def evaluate(model: Path, folder: Path, options: list[str]) -> dict:
    """The accuracy of a model and of its encoder, by system."""
    found = metaxc("evaluate", model, folder, *options)
    systems = {MODEL: found, **found["baselines"]}
    kept = ("zero_shot", "generalized", "intervals", "model_minus_baseline")
    return {name: {key: one[key] for key in kept if key in one} for name, one in systems.items()}


def train(
    dataset: Dataset, out: Path, cache: Path, encoders: Path | None, options: dict
) -> tuple[dict, dict[str, float]]:
    """Train with these settings; what was chosen, and the seconds of each stage."""
    irene = Irene(cache=EmbeddingCache(cache), encoder_cache=encoders, **options)
    model = irene.fit(dataset, report=lambda line: print(dataset.name, line, file=sys.stderr, flush=True))
    model.save(out)
    return {"constants": model.about["constants"], **model.about["pseudo_novel"]}, irene.seconds


def run(
    folder: Path,
    cache: Path | None,
    encoders: Path | None,
    threads: int,
    model: Path | None,
    size: str,
    test_queries: int | None = None,
    exposure_cost: float | None = None,
) -> dict:
    """One row: accuracy of the model and of its encoder alone, and, where the model is trained here, the cost."""
    dataset = read_folder(folder)
    row: dict = {
        "queries": len(dataset.train),
        "items": len(dataset.items),
        "novel": int(dataset.novel_mask.sum()),
        "data": dataset.fingerprint,
        "commit": git_commit(Path(package.__file__).parent),
        "command": f"python benchmarks/novel.py {folder.name} --size {size}"
        + (" --model MODEL" if model else ""),
        "size": size,
        "seed": 0,
        "threads": threads,
        "version": __version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    settings = dict(SIZES[size])
    if exposure_cost is not None:
        row["command"] += f" --exposure-cost {exposure_cost:g}"
        settings["exposure_cost"] = exposure_cost
    with tempfile.TemporaryDirectory() as temporary:
        fresh = cache is None and encoders is None
        cache = cache or Path(temporary) / "cache"
        options = ["--cache", str(cache), "--threads", str(threads)]
        if test_queries is not None:
            row["command"] += f" --test-queries {test_queries}"
            options += ["--test-queries", str(test_queries)]
        if model is None:
            torch.set_num_threads(threads)
            model = Path(temporary) / "model"
            row["chosen"], seconds = train(dataset, model, cache, encoders, settings)
            row["seconds"] = seconds
            if fresh:
                row["times plain encoding"] = sum(seconds.values()) / measure_plain_encoding(dataset)
        row["systems"] = evaluate(model, folder, options)
    return row


SUMMARY_COLUMNS = {
    "zero-shot R@10": ("zero_shot", "R@10"),
    "all items P@1": ("generalized", "P@1"),
    "all items R@10": ("generalized", "R@10"),
    "novel R@10": ("generalized", "novel", "R@10"),
    "observed R@10": ("generalized", "observed", "R@10"),
    "H": ("generalized", "H"),
}


def render_summary(results: dict) -> str:
    """The result file as the README's table: in each cell the bare encoder, the adapted one and metaxc."""
    lines = [f"| data set | {' | '.join(SUMMARY_COLUMNS)} |", "|---" * (len(SUMMARY_COLUMNS) + 1) + "|"]
    for name, row in sorted(results.items()):
        cells = []
        for path in SUMMARY_COLUMNS.values():
            bare, adapted, model = (
                f"{find_metric(row['systems'][one], path):.1f}" for one in (BARE, ADAPTED, MODEL)
            )
            cells.append(f"{bare} → {adapted} → **{model}**")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def render_details(results: dict) -> str:
    """The result file as the tables of docs/results.md."""
    timed = any("times plain encoding" in row for row in results.values())
    columns = ["zero-shot P@1", "R@10", "all items P@1", "R@10", "novel R@10", "observed R@10", "H"]
    columns += ["train ÷ encode"] if timed else []
    lines = [f"| data set | | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for name, row in sorted(results.items()):
        for system in (BARE, ADAPTED, MODEL):
            if system not in row["systems"]:
                continue
            zero_shot, mixed = (row["systems"][system][setting] for setting in ("zero_shot", "generalized"))
            figures = [zero_shot["P@1"], zero_shot["R@10"], mixed["P@1"], mixed["R@10"]]
            figures += [mixed["novel"]["R@10"], mixed["observed"]["R@10"], mixed["H"]]
            mark = "**" if system == MODEL else ""
            cells = [f"{mark}{figure:.1f}{mark}" for figure in figures]
            if timed:
                known = system == MODEL and "times plain encoding" in row
                cells.append(f"{row['times plain encoding']:.1f} ×" if known else "")
            lines.append(f"| {name if system == BARE else ''} | {system} | {' | '.join(cells)} |")
    parts = [
        lines,
        [
            "Metaxc minus the adapted encoder alone, with 95 % intervals of a paired bootstrap over the test queries:"
        ],
        render_differences(results),
        ["Recall of relevant query-item pairs at 10 by the item's number of training clicks:"],
        render_clicks(results),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


DIFFERENCE_COLUMNS = {
    "zero-shot P@1": ("zero_shot", "P@1"),
    "zero-shot R@10": ("zero_shot", "R@10"),
    "all items P@1": ("generalized", "P@1"),
    "all items R@10": ("generalized", "R@10"),
    "novel P@1": ("novel", "P@1"),
    "novel R@10": ("novel", "R@10"),
    "observed R@10": ("observed", "R@10"),
}


def render_differences(results: dict) -> list[str]:
    """What the model adds to its own encoder, as a Markdown table; bold where the interval excludes 0."""
    columns = DIFFERENCE_COLUMNS
    lines = [f"| data set | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in sorted(results.items()):
        cells = []
        for path in columns.values():
            one = find_metric(row["systems"][ADAPTED]["model_minus_baseline"], path)
            mark = "**" if one["significant"] else ""
            cells.append(f"{mark}{one['difference']:+.1f} ({one['low']:.1f} to {one['high']:.1f}){mark}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def render_clicks(results: dict) -> list[str]:
    """Recall by training clicks of the item, as a Markdown table."""
    lines = [f"| data set | | {' | '.join(CLICK_SLICES)} |", "|---" * (len(CLICK_SLICES) + 2) + "|"]
    for name, row in sorted(results.items()):
        for system in (ADAPTED, MODEL):
            if system in row["systems"]:
                found = row["systems"][system]["generalized"]["by_clicks"]
                values = [found[one]["value"] for one in CLICK_SLICES]
                cells = ["" if value is None else f"{value:.1f}" for value in values]
                lines.append(f"| {name if system == ADAPTED else ''} | {system} | {' | '.join(cells)} |")
    return lines


TABLES = {"summary": render_summary, "details": render_details}


def main() -> None:
    """Run the data sets and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", nargs="*", type=Path, help="data set folders with a test part and a novel.txt"
    )
    parser.add_argument("--model", type=Path, help="evaluate this model instead of training one")
    parser.add_argument("--size", choices=list(SIZES), default="default", help="of `metaxc train`")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/novel.json"))
    parser.add_argument(
        "--cache", type=Path, help="folder for embeddings; cached ones count as plain encoding"
    )
    parser.add_argument("--encoders", type=Path, help="folder that keeps adapted encoders")
    parser.add_argument("--test-queries", type=int, help="evaluate on so many of the test queries")
    parser.add_argument("--exposure-cost", type=float, help="of `metaxc train`")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--table", choices=list(TABLES), help="print the result file as Markdown")
    options = parser.parse_args()
    for folder in options.data:
        row = run(
            folder,
            options.cache,
            options.encoders,
            options.threads,
            options.model,
            options.size,
            options.test_queries,
            options.exposure_cost,
        )
        results = json.loads(options.out.read_text()) if options.out.exists() else {}
        results[folder.name] = row
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        print(render_details({folder.name: row}), flush=True)
    if options.table:
        print(TABLES[options.table](json.loads(options.out.read_text())))


if __name__ == "__main__":
    main()
