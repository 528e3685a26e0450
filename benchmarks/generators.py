"""Which generator ranks pseudo-novel items best, each with its own settings.

    python benchmarks/generators.py DATA... --out benchmarks/results/generators.json

The encoder and the classifiers are fitted once without the pseudo-novel items, and every generator is trained
and validated on the same folds. No test query is used. The default of `IreneConfig.generator` follows.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pseudo_novel import compare


def searches(encoder: str) -> list[tuple[str, dict[str, Any]]]:
    """Every generator with its settings; the combine searches its own 288."""
    rows: list[tuple[str, dict[str, Any]]] = [("combine", {"generator": "combine"})]
    for k in (1, 3, 10):
        rows.append((f"sum, K {k}", {"generator": "sum", "neighbours": k}))
    for k, rate in ((3, 5e-3), (10, 5e-3)):
        training = {"epochs": 4, "learning_rate": rate}
        rows.append(
            (f"weighted sum, K {k}", {"generator": "weighted_sum", "neighbours": k, "training": training})
        )
    for epochs, rate, depth in ((2, 2e-5, 1), (4, 1e-4, 1), (4, 5e-4, 1), (4, 1e-4, 2)):
        training = {"epochs": epochs, "learning_rate": rate, "depth": depth}
        name = f"transformer, {epochs} epochs at {rate:g}, depth {depth}"
        rows.append((name, {"generator": "transformer", "training": training}))
    for k, epochs in ((3, 8), (3, 24)):
        training = {"epochs": epochs, "learning_rate": 5e-4}
        name = f"post-norm transformer, K {k}, {epochs} epochs"
        rows.append((name, {"generator": "post_norm", "neighbours": k, "training": training}))
    return [(f"{encoder}: {name}", {"encoder": encoder, **settings}) for name, settings in rows]


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--encoders", nargs="+", default=["adapted", "pretrained"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/generators.json"))
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--encoders-folder", type=Path, required=True, help="keeps adapted encoders")
    options = parser.parse_args()
    compare(
        options.data,
        [row for encoder in options.encoders for row in searches(encoder)],
        options.folds,
        options.encoders_folder,
        options.out,
    )


if __name__ == "__main__":
    main()
