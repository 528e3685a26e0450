"""The demo: a real data set from start to end, as the command line does it. `make demo` runs it.

ICD-10-CM: clinical phrases as queries, headings of the code book as items, a tenth of the items novel.
What is already there is not made again; `make clean` starts afresh.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path("demo")
QUERIES = ("broken wrist after a fall", "high blood sugar during pregnancy", "stung by a wasp")


def metaxc(*arguments: str | Path) -> None:
    """Show a command and run it."""
    words = [str(argument) for argument in arguments]
    print("\n$ metaxc " + " ".join(f"'{word}'" if " " in word else word for word in words), flush=True)
    code = "from metaxc.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", code, *words], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    """Data, training, table, three queries, one explanation."""
    started = time.perf_counter()
    data, model, cache = FOLDER / "data", FOLDER / "model", ("--cache", FOLDER / "cache")
    if not (data / "novel.txt").exists():
        metaxc("data", "get", "icd10cm", data)
    metaxc(
        "train", data, "--out", model, "--folds", "1", *cache, "--overwrite"
    )  # one of three: a quick round
    metaxc("evaluate", model, data, *cache)
    metaxc("search", model, *QUERIES, "-k", "5", *cache)
    novel = (data / "novel.txt").read_text(encoding="utf-8").split()
    metaxc("explain", model, novel[0], *cache)
    print(f"\nThe whole took {time.perf_counter() - started:.0f} seconds. The model is in {model}.")


if __name__ == "__main__":
    main()
