"""The proofs of reliability in a short form; `benchmarks/reliability` has the long one and its figures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "reliability"


def ran(tmp_path, script, *options):
    """The result of a script that found no problem."""
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), "--out", str(tmp_path / "found.json"), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads((tmp_path / "found.json").read_text())


@pytest.mark.slow
def test_kills_lose_nothing_and_leave_no_ghosts(tmp_path):
    found = ran(tmp_path, "kills", "--kills", "25")
    assert (found["kills"], found["lost"], found["ghosts"], found["errors"]) == (25, 0, 0, 0)
    assert found["acknowledged"] > 25


@pytest.mark.slow
def test_damage_is_told_and_never_a_crash_or_a_wrong_answer(tmp_path):
    found = ran(tmp_path, "corruption", "--rounds", "2")
    assert found["refused"] > 150
    assert found["damages"] == found["refused"] + found["rebuilt and said so"] + found["same answers"]


@pytest.mark.slow
def test_killed_at_any_point_it_is_as_before_or_as_after(tmp_path):
    found = ran(tmp_path, "crash_points", "--points", "8")
    assert found["points"] == found["as before"] + found["as after"] >= 50


@pytest.mark.slow
def test_a_full_disk_refuses_writes_and_goes_on_to_read(tmp_path):
    may = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path / ".")], capture_output=True)
    if may.returncode:
        pytest.skip("a small disk cannot be mounted here")
    subprocess.run(["umount", str(tmp_path / ".")], check=True)
    assert ran(tmp_path, "full_disk")["refused"] >= 5
