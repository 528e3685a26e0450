"""Short versions of the reliability benchmarks; `benchmarks/reliability` has the full ones and their results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "reliability"


def run_script(tmp_path, script, *options):
    """Run a benchmark that must succeed, and load its result."""
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), "--out", str(tmp_path / "found.json"), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads((tmp_path / "found.json").read_text())


@pytest.mark.slow
def test_killing_the_process_loses_no_acknowledged_write_and_adds_none(tmp_path):
    found = run_script(tmp_path, "kills", "--kills", "25")
    assert (found["kills"], found["lost"], found["ghosts"], found["errors"]) == (25, 0, 0, 0)
    assert found["acknowledged"] > 25


@pytest.mark.slow
def test_switching_models_under_load_and_under_kills_loses_nothing_and_fails_no_search(tmp_path):
    found = run_script(tmp_path, "switch", "--switches", "6", "--kills", "6")
    loaded, killed = found["under load"], found["kills"]
    assert loaded["switches"] == killed["kills"] == 6
    assert loaded["acknowledged writes"] > 0
    assert loaded["statuses"]["search 200"] > 0
    assert [loaded[name] for name in ("lost", "ghosts", "other texts", "other clicks", "5xx")] == [0] * 5
    assert (killed["lost"], killed["ghosts"], killed["errors"]) == (0, 0, 0)


@pytest.mark.slow
def test_damaged_files_are_detected_and_never_cause_a_crash_or_a_wrong_result(tmp_path):
    found = run_script(tmp_path, "corruption", "--rounds", "2")
    assert found["refused"] > 150
    assert found["damages"] == found["refused"] + found["rebuilt and said so"] + found["same answers"]


@pytest.mark.slow
@pytest.mark.nightly
def test_after_a_kill_at_any_point_an_operation_is_complete_or_absent(tmp_path):
    found = run_script(tmp_path, "crash_points", "--points", "8")
    assert found["points"] == found["as before"] + found["as after"] >= 50


@pytest.mark.slow
def test_a_full_disk_rejects_writes_while_reads_continue(tmp_path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path / ".")], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    subprocess.run(["umount", str(tmp_path / ".")], check=True)
    assert run_script(tmp_path, "full_disk")["refused"] >= 5


@pytest.mark.slow
def test_after_a_power_cut_or_a_failing_sync_what_was_acknowledged_is_there_and_nothing_refused(tmp_path):
    found = run_script(tmp_path, "powerloss", "--points", "20", "--mixed", "1", "--faults", "12")
    assert found["broken promises"] == 0
    if isinstance(found["power cuts"], dict):  # strace is there
        assert found["power cuts"]["strict: replays"] == 20
    if isinstance(found["failing syncs"], dict):  # a C compiler is there
        assert found["failing syncs"]["faults"] == 12


@pytest.mark.slow
@pytest.mark.nightly
def test_no_slip_of_an_operator_costs_data(tmp_path):
    found = run_script(tmp_path, "operators", "--quick")
    assert found["broken promises"] == 0
    assert found["outputs"]["snapshot"] == {"kept": 20, "refused": 20}


@pytest.mark.slow
@pytest.mark.nightly
def test_files_of_somebody_else_are_refused_without_code_crash_or_a_full_memory(tmp_path):
    attacks = run_script(tmp_path, "inputs", "--quick")["attacks"]
    assert len(attacks) == 6
    assert all(one["after"]["held"] for one in attacks.values())
    assert attacks["model folders changed in every way"]["after"]["refused"] > 30


@pytest.mark.slow
def test_a_killed_sync_leaves_no_difference_between_vector_store_and_catalog(tmp_path):
    """The vector stores whose packages are installed; Parquet needs none."""
    found = run_script(tmp_path, "sync", "--kills", "3", "--rows", "500")
    parquet = found["targets"]["parquet"]
    assert parquet["kills"] == 3
    assert parquet["completed"] >= 3
    for kind, target in found["targets"].items():
        if isinstance(target, dict):
            assert target["kills"] == 3, kind
            assert target["speed"]["recall@10"] >= 0.95
            assert target["speed"]["rows of a sync without changes"] == 0
