"""The scripts that measure: all of them can be started."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IMPORT_ALL = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


@pytest.mark.parametrize("folder", ["benchmarks", "benchmarks/reliability"])
def test_every_script_finds_what_it_imports(folder, monkeypatch):
    names = sorted(file.stem for file in (ROOT / folder).glob("*.py"))
    assert len(names) > 10
    monkeypatch.setenv("PYTHONPATH", str(ROOT / folder))
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
