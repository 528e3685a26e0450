"""Encoders with and without IRENE, within one budget of CPU time.

    python benchmarks/encoders.py DATA... --work FOLDER --out benchmarks/results/encoders
    python benchmarks/encoders.py --table --out benchmarks/results/encoders

Each encoder is evaluated on the test queries of each data set, alone (dense retrieval) and with IRENE, zero-shot and
generalized. DPR, ANCE, NGAME and MACLR fine-tune the transformer for as many steps as `--budget` CPU seconds allow (by
tokens per second; the row has the actual time). Trained encoders are saved in `--work` and reused; a row that is in the
result file with the same settings is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch

from metaxc import Dataset, Irene, IreneConfig, read_folder
from metaxc.artifacts import json_digest
from metaxc.data.clicks import training_clicks
from metaxc.encoders import EmbeddingCache, Encoder, Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.recipes import train_encoder
from metaxc.evaluation.protocol import Evaluation, evaluate
from metaxc.evaluation.searches import encoder_search, model_search

TOKENS_PER_SECOND = 900
"""Training speed of six layers of 384 dimensions in bfloat16 on one busy core."""

MAX_TOKENS = 64
SAMPLE = 2_000
TRAINED = {
    "dpr": {"recipe": "dpr"},
    "ance": {"recipe": "ance", "options": {"refreshes": 2}},
    "ngame": {"recipe": "ngame"},
    "maclr": {"recipe": "maclr"},
    "maclr + dpr": {"recipe": "maclr", "options": {"finetune": True}},
}
ROWS = ("pretrained", "static", "adapted", *TRAINED, "dpr + adapter")


def build_training(name: str, dataset: Dataset, budget: float, batch: int) -> EncoderTraining:
    """The training configuration with as many steps as the budget allows."""
    tokenizer = BagTokenizer(Pretrained().tokenizer_file, MAX_TOKENS, special_tokens=True)
    random = np.random.default_rng(0)

    def mean_tokens(texts: list[str]) -> float:
        some = random.choice(len(texts), min(SAMPLE, len(texts)), replace=False)
        return float(np.diff(tokenizer([texts[row] for row in some]).starts).mean())

    query = mean_tokens(list(dataset.train.queries.texts))
    item = mean_tokens(list(dataset.items.texts))
    pair = query + (2 if name == "ance" else 1) * item
    steps = max(20, int(budget * TOKENS_PER_SECOND / (pair * batch)))
    return EncoderTraining(batch=batch, max_tokens=MAX_TOKENS, steps=steps, **TRAINED[name])


def train_or_load(name: str, dataset: Dataset, options: argparse.Namespace) -> tuple[Path, dict]:
    """The folder of a trained encoder, trained now or reused, and its cost."""
    config = build_training(name, dataset, options.budget, options.batch)
    place = options.work / dataset.name / f"{config.recipe}-{json_digest([config.model_dump()])[:12]}"
    cost = place.with_suffix(".json")
    if not (place.is_dir() and cost.exists()):
        cache = EmbeddingCache(options.cache)
        if name in (
            "ance",
            "ngame",
        ):  # they start from frozen embeddings, which every row of the data set needs
            texts = [*dataset.items.texts, *dataset.train.queries.texts]
            frozen = Pretrained(cache=cache, backend="auto", texts=texts)
            frozen.encode_items(dataset.items.texts)
            frozen.encode_queries(dataset.train.queries.texts)
        started, wall = time.process_time(), time.perf_counter()
        record = train_encoder(
            dataset, config, place, cache=cache, report=lambda line: print("  " + line, flush=True)
        )
        facts = {
            "steps": config.steps,
            "pairs": config.steps * config.batch,
            "cpu_seconds": round(time.process_time() - started, 1),
            "seconds": round(time.perf_counter() - wall, 1),
            "validation": record.validation,
        }
        cost.write_text(json.dumps(facts) + "\n")
    return place, json.loads(cost.read_text())


def select_metrics(found: Evaluation) -> dict:
    """P@1 and R@10 of both settings, percent."""
    return {
        setting: {name: round(found[setting][name], 2) for name in ("P@1", "R@10")}
        for setting in ("zero_shot", "generalized")
    }


def run(name: str, folder: Path, options: argparse.Namespace) -> dict:
    """One row."""
    dataset = read_folder(folder)
    cache, cost, base = EmbeddingCache(options.cache), {}, None
    on = name.removesuffix(" + adapter")
    if on in TRAINED:
        base, cost = train_or_load(on, dataset, options)
    kind = name if name in ("pretrained", "static", "adapted") else "pretrained"
    if name.endswith(" + adapter"):
        kind = "adapted"
    config = IreneConfig(encoder=kind, **({"base": str(base)} if base else {}))
    started = time.process_time()
    kept = options.work / dataset.name / "encoders"
    recipe = Irene(config, cache=cache, encoder_cache=kept)
    model = recipe.fit(dataset, report=lambda line: print("  " + line, flush=True))
    learning = time.process_time() - started
    encoder: Encoder = model.encoder
    return {
        "row": name,
        "data": dataset.name,
        "budget": options.budget,
        "training": cost,
        "irene_cpu_seconds": round(learning, 1),
        "alone": select_metrics(evaluate(encoder_search(encoder, dataset), dataset)),
        "irene": select_metrics(evaluate(model_search(model, dataset), dataset)),
        "constants": model.about["constants"],
        "pseudo_novel": model.about["pseudo_novel"],
        "clicks": int(training_clicks(dataset)[2].nnz),
        "threads": torch.get_num_threads(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def read_rows(file: Path) -> list[dict]:
    """The rows of a result file; empty when there is no file."""
    return json.loads(file.read_text()) if file.exists() else []


def explain_no_gain(row: dict) -> str:
    """A remark on rows where IRENE does not improve R@10."""
    worse = [s for s in ("zero_shot", "generalized") if row["irene"][s]["R@10"] <= row["alone"][s]["R@10"]]
    if not worse:
        return ""
    strength = row["constants"]["strength"]
    if "zero_shot" in worse and strength == 0:
        return "neighbours have no weight: they did not help on pseudo-novel items"
    return "no gain in " + " and ".join(s.replace("_", "-") for s in worse)


def render_tables(out: Path) -> str:
    """All rows as Markdown."""
    lines = []
    for file in sorted(out.glob("*.json")):
        rows = {row["row"]: row for row in read_rows(file)}
        lines += [
            f"\n**{file.stem}**\n",
            "| encoder | CPU s to train | zero-shot alone | + IRENE | generalized alone | + IRENE | |",
            "|---|---|---|---|---|---|---|",
        ]
        for name in [name for name in ROWS if name in rows]:
            row = rows[name]
            cells = [
                f"{row[how][s]['P@1']:.1f} / {row[how][s]['R@10']:.1f}"
                for s in ("zero_shot", "generalized")
                for how in ("alone", "irene")
            ]
            spent = row["training"].get("cpu_seconds", "")
            lines.append(f"| {name} | {spent} | {' | '.join(cells)} | {explain_no_gain(row)} |")
    return "\n".join(lines)


def main() -> None:
    """Run all rows and write the result files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", nargs="*", type=Path, help="data set folders with a test part and a novel.txt"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/encoders"))
    parser.add_argument("--work", type=Path, help="folder for trained encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--budget", type=float, default=300.0, help="CPU seconds to fine-tune a transformer")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS)
    parser.add_argument("--only-train", action="store_true", help="train the encoders and stop")
    parser.add_argument("--table", action="store_true", help="print the result files as Markdown")
    options = parser.parse_args()
    if options.table:
        print(render_tables(options.out))
        return
    torch.set_num_threads(options.threads)
    for folder in options.data:
        for name in options.rows:
            on = name.removesuffix(" + adapter")
            if options.only_train:
                if on in TRAINED:
                    print(folder.name, name, train_or_load(on, read_folder(folder), options)[1], flush=True)
                continue
            file = options.out / f"{folder.name}.json"
            if any(row["row"] == name and row["budget"] == options.budget for row in read_rows(file)):
                continue
            row = run(name, folder, options)
            print(folder.name, name, row["alone"], row["irene"], flush=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            others = [
                row for row in read_rows(file) if row["row"] != name
            ]  # another process may have added some
            file.write_text(json.dumps([*others, row], indent=1) + "\n")


if __name__ == "__main__":
    main()
