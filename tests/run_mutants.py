"""Do the tests notice a mistake in the method? Mutants of its source code, made by cosmic-ray, in a bounded time.

    make test-mutants                # eight minutes; MINUTES=60 for more
    make test-mutants MINUTES=60 PACKAGES="tuning emmett" SEED=3

A mutant is a copy of the package with one small change inside a function: another operator, a number plus or minus one,
a condition that is always true. The tests of its package run on it, then the records of results (tests/golden); if one
of them fails, the mutant is killed. Mutants are drawn at random, the same ones for the same seed, until the time is
over. What survives is printed with its change, and the last line has the score. Only the copy is ever changed.

Not drawn: changes of constants and of defaults (numbers that are choices), and of types.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOT = Path(__file__).parents[1]
PACKAGES = ("generators", "classifiers", "selectors", "emmett", "tuning")
"""Packages whose functions decide what a model answers."""

EQUIVALENT = re.compile("BitOr|_Is(Not)?$")
"""Operators whose changes are hardly ever mistakes: of types (`Rows | None`), and `is` in place of `==`."""

TIMEOUT = 300.0
"""Seconds of a test run after which a mutant counts as killed: it does not come to an end."""


def copy_project(folder: Path) -> None:
    """What the tests read, so that the project itself is not changed."""
    for name in ("src", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)


def find_mutants(package: str) -> list[MutationSpec]:
    """All changes inside functions of a package; paths are relative to the project."""
    files = sorted(Path("src/metaxc", package).rglob("*.py"))
    specs = [item.mutations[0] for item in _all_work_items(files, {})]
    return [spec for spec in specs if is_inside_function(spec) and not EQUIVALENT.search(spec.operator_name)]


def is_inside_function(spec: MutationSpec) -> bool:
    """Whether a change concerns code that runs when it is called, and neither a class nor the module itself."""
    name = (spec.definition_name or "").split(".")[-1]
    return bool(name) and name.strip("_")[:1].islower()


def run(spec: MutationSpec, package: str, python: Path) -> tuple[bool, str]:
    """Whether a mutant is killed, and its change."""
    tests = [f"tests/{package}", "tests/golden/test_golden.py"]
    command = [str(python), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    result = mutate_and_test([spec], shlex.join(command), TIMEOUT)
    return result.test_outcome != TestOutcome.SURVIVED, result.diff or ""


def main() -> None:
    """Draw and test mutants until the time is over, and print the score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", default=list(PACKAGES), help="packages of metaxc")
    parser.add_argument("--minutes", type=float, default=8.0, help="no mutant is begun after that")
    parser.add_argument("--seed", type=int, default=0, help="draws the mutants")
    parser.add_argument(
        "--python", type=Path, required=True, help="of the environment with the tests' packages"
    )
    options = parser.parse_args()
    python = options.python.absolute()
    until = time.monotonic() + 60 * options.minutes
    killed = tested = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_project(Path(folder))
        os.chdir(folder)
        os.environ |= {"PYTHONPATH": str(Path(folder, "src")), "PYTHONDONTWRITEBYTECODE": "1"}
        draw = random.Random(options.seed)
        waiting = {package: find_mutants(package) for package in options.packages}
        counts = ", ".join(f"{len(specs):,} in {package}" for package, specs in waiting.items())
        print(f"mutants: {counts}", flush=True)
        for specs in waiting.values():
            draw.shuffle(specs)
        while time.monotonic() < until and any(waiting.values()):
            for package, specs in waiting.items():
                if not specs or time.monotonic() >= until:
                    continue
                spec = specs.pop()
                dead, change = run(spec, package, python)
                tested, killed = tested + 1, killed + dead
                place = f"{spec.module_path}:{spec.start_pos[0]} {spec.operator_name.split('/')[-1]}"
                print(f"{'killed  ' if dead else 'SURVIVED'} {place}", flush=True)
                if not dead:
                    print(change, flush=True)
    if not tested:
        sys.exit("no mutant was tested: give more --minutes")
    print(f"mutation score: {killed} of {tested} killed, {100 * killed / tested:.0f} %")


if __name__ == "__main__":
    main()
