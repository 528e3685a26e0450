"""`metaxc plan`, and the estimate that `metaxc train` begins with."""

import json

import pytest
from commands import run

from metaxc.data.synthetic import SyntheticConfig, write_synthetic

NUMBERS = ("--items", "1e6", "--queries", "1.05e6", "--clicks", "3.8e6")


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_synthetic(folder, SyntheticConfig(items=200, queries=300, clicks=900))
    return folder


def test_a_plan_says_what_the_machine_can_do():
    large = run("plan", *NUMBERS, "--size", "fast", "--memory", "64")
    assert "tune (peak)" in large.stdout
    assert "This machine suffices: it has 64.0 GB" in large.stdout
    small = run("plan", *NUMBERS, "--memory", "12")
    assert "This machine is too small: it has 12.0 GB of memory. --size fast fits" in " ".join(
        small.stdout.split()
    )


def test_a_plan_of_a_folder_for_machines(data):
    facts = json.loads(run("plan", data, "--folds", "1", "--json").stdout)
    assert facts["workload"]["items"] == 200
    assert facts["fits"] is True
    assert facts["peak_memory"] == max(stage["memory"] for stage in facts["stages"].values())
    assert json.loads(run("plan", data, "--json", "--memory", "0.001").stdout)["fits"] is False


LARGE = ("--items", "1e8", "--queries", "1.25e8", "--clicks", "5e8", "--size", "fast")
MACHINE = ("--machine-gb", "64", "--machine-cores", "16")


def test_a_deployment_on_several_machines_with_its_cost():
    facts = json.loads(run("plan", *LARGE, *MACHINE, "--price-per-hour", "2", "--json").stdout)
    deployment = facts["deployment"]
    assert deployment["machine"] == {"memory": 64e9, "cores": 16, "price": 2.0}
    assert deployment["first_that_fits"] == "part"
    assert deployment["basis"].endswith(
        "Arithmetic: all figures above, from constants of those measurements."
    )
    way = deployment["ways"][-1]
    assert way["cost"] == pytest.approx(2 * way["machine_seconds"] / 3600)
    printed = " ".join(run("plan", *LARGE, *MACHINE, "--price-per-hour", "2").stdout.split())
    assert f"The first way that fits: part, {way['machines']} × 64 GB, " in printed
    assert f"cost {way['cost']:,.2f}." in printed
    assert "one machine: too small" in printed
    assert deployment["basis"] in printed
    assert "or a machine with 1,0" in printed
    assert "cost 0" not in " ".join(run("plan", *LARGE, *MACHINE).stdout.split())
    twenty = json.loads(run("plan", *LARGE, *MACHINE, "--machines", "20", "--json").stdout)
    assert twenty["deployment"]["ways"][-1]["machines"] == 20
    assert twenty["deployment"]["ways"][-1]["cost"] is None


def test_what_was_measured_is_not_called_arithmetic_as_a_whole():
    printed = " ".join(run("plan", *NUMBERS, "--size", "fast", *MACHINE).stdout.split())
    assert "Arithmetic: times on more cores, several machines, and cost." in printed
    assert "shards" not in printed
    nothing = " ".join(run("plan", *NUMBERS, "--size", "fast", "--machine-gb", "0.5").stdout.split())
    assert "No way fits machines of this size." in nothing


def test_a_plan_needs_a_folder_or_numbers(data):
    assert "There is nothing to plan for" in str(run("plan", "--items", "1e6").exception)
    assert "one of the two" in str(run("plan", data, "--items", "1e6").exception)
    assert "Unknown size" in str(run("plan", data, "--size", "huge").exception)


def test_training_is_refused_where_memory_does_not_suffice(data, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.scale.machine_memory", lambda: 500_000_000)
    refused = run("train", data, "--size", "fast", "--out", tmp_path / "model")
    assert "too little memory" in str(refused.exception)
    assert "or a machine with 2 GB, or several machines" in str(refused.exception)
    assert "--ignore-memory" in str(refused.exception)
    assert not (tmp_path / "model").exists()
    fitted = []
    monkeypatch.setattr("metaxc.irene.Irene.fit", lambda self, *_, **__: fitted.append(self) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("train", data, "--size", "fast", "--out", tmp_path / "model", "--ignore-memory")
    assert fitted
