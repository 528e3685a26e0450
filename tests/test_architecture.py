"""docs/architecture.md is true: every function of the walks exists, and the walks are short."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "metaxc"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_HOPS = {
    "metaxc train": 55,
    "metaxc represent": 22,
    "Emmett.search": 9,
    "POST /v1/items": 45,
    "metaxc bench main": 30,
}
"""The length of each walk before the code was consolidated: it must not grow back."""


def functions(file: Path) -> set[str]:
    """Names of a file's functions, `Class.method` for methods."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
            methods = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{one.name}" for one in methods}
    return found


@pytest.mark.parametrize("place", sorted(set(re.findall(r"`([\w/]+\.py:[\w.]+)`", PAGE))))
def test_every_place_exists(place):
    file, _, name = place.partition(":")
    assert name in functions(SOURCE / file)


def test_walks_are_shorter_than_they_were():
    walks = dict(re.findall(r"### `([^`]+)`\n\n((?:\d+\. .*\n)+)", PAGE))
    assert walks.keys() == MOST_HOPS.keys()
    for name, walk in walks.items():
        assert 0 < len(walk.splitlines()) < MOST_HOPS[name]


def test_every_package_is_described():
    described = set(re.findall(r"`(\w+)`", PAGE.split("## One place")[0]))
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages <= described


def test_module_names_are_unique_and_files_fit_on_a_few_screens():
    files = [file for file in SOURCE.rglob("*.py") if file.name != "__init__.py"]
    assert len({file.name for file in files}) == len(files)
    assert max(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 400
