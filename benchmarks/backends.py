"""The accuracy of each backend: the default model trained and evaluated on each.

    python benchmarks/backends.py DATA... --work WORK --out benchmarks/results/backends.json

For each data set folder and backend this runs `metaxc train` and `metaxc evaluate`. Models stay in WORK and are reused.
Rows of other data sets in the result file stay.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from novel import metaxc

import metaxc as package
from metaxc.research.code_version import git_commit

SHOWN = ("P@1", "R@10", "R@100")


def evaluate_backend(data: Path, backend: str, work: Path, threads: int) -> dict:
    """The accuracy of one model."""
    model = work / f"{data.resolve().name}.{backend}"
    options = ["--cache", work / "cache", "--threads", str(threads)]
    metaxc("train", data, "--out", model, "--backend", backend, *options)
    found = metaxc("evaluate", model, data, *options)
    settings = ("zero_shot", "generalized")
    return {name: {metric: round(found[name][metric], 2) for metric in SHOWN} for name in settings} | {
        "counts": found["counts"]
    }


def main() -> None:
    """Run the data sets and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="+", help="data set folders")
    parser.add_argument("--backends", nargs="+", default=["torch", "onnx-int8"])
    parser.add_argument("--work", type=Path, required=True, help="folder for models and embeddings")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    for data in options.data:
        found = {
            name: evaluate_backend(data, name, options.work, options.threads) for name in options.backends
        }
        name = data.resolve().name
        results[name] = {
            "commit": git_commit(Path(package.__file__).parent),
            "command": f"python benchmarks/backends.py {name}",
            **found,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        print(json.dumps({data.name: found}, indent=2), flush=True)


if __name__ == "__main__":
    main()
