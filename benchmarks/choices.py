"""How the encoder's and the classifiers' defaults were chosen, on pseudo-novel items.

    python benchmarks/choices.py DATA... --out benchmarks/results/choices.json

One row per choice, everything else at its default, each with its own constants. No test query is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from pseudo_novel import compare

ROWS: list[tuple[str, dict[str, Any]]] = [
    ("default", {}),
    ("no bigrams", {"adapter": {"bigrams": 0}}),
    ("no logQ correction, scale 20", {"adapter": {"logq_correction": 0.0, "scale": 20.0}}),
    ("no logQ correction, scale 12", {"adapter": {"logq_correction": 0.0}}),
    ("logQ correction 1, scale 12", {"adapter": {"logq_correction": 1.0}}),
    ("2 epochs", {"adapter": {"epochs": 2}}),
    ("10 epochs", {"adapter": {"epochs": 10}}),
    ("centroids for ridge", {"classifiers": "centroid"}),
    ("one-vs-all for ridge", {"classifiers": "one_vs_all"}),
    ("static encoder", {"encoder": "static"}),
    ("frozen encoder", {"encoder": "pretrained"}),
]


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--rows", nargs="+", help="only these rows")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/choices.json"))
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--encoders-folder", type=Path, required=True, help="keeps adapted encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row for row in ROWS if not options.rows or row[0] in options.rows]
    compare(options.data, rows, options.folds, options.encoders_folder, options.out, options.cache)


if __name__ == "__main__":
    main()
