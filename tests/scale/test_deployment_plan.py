"""Ways to deploy: which of them fit, how work is divided by machines and cores, and what it costs."""

import json
from pathlib import Path

import pytest

from metaxc.errors import ConfigError
from metaxc.irene import SIZES, IreneConfig
from metaxc.scale import Machine, Workload, make_plan, plan_deployment
from metaxc.scale.deployment import MEASURED_ITEMS, PARALLEL_SHARE, on_cores

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "scale.json"
FAST = IreneConfig(**SIZES["fast"])
TEN = make_plan(Workload(10_000_000, 9_000_000, 12_500_000, 50_000_000), FAST)
HUNDRED = make_plan(Workload(100_000_000, 90_000_000, 125_000_000, 500_000_000), FAST)


DOCS = Path(__file__).parents[2] / "docs" / "scale.md"


def table_rows():
    """The table of docs/scale.md, as `metaxc plan` computes it."""
    for plan in (TEN, HUNDRED):
        for machine in (Machine(64e9, 16, 1.0), Machine(128e9, 32, 2.0), Machine(1.2e12, 64, 10.0)):
            for way in plan_deployment(plan, machine):
                cost = way.to_dict(machine)["cost"]
                large = "too small" if cost is None else f"{cost:,.2f}"
                cells = [
                    f"{plan.workload.items:,}",
                    f"{machine.memory / 1e9:,.0f} GB, {machine.cores} cores, {machine.price:g}",
                    way.name,
                    f"{way.machines}",
                    f"{way.memory / 1e9:,.0f} GB",
                    f"{way.seconds / 3600:.1f}",
                    large,
                    f"{way.serving_machines} × {way.serving_memory / 1e9:,.0f} GB",
                ]
                yield f"| {' | '.join(cells)} |"


def test_the_table_of_the_docs_is_what_the_command_computes():
    page = DOCS.read_text(encoding="utf-8")
    assert "\n".join(table_rows()) in page


def ways_of(plan, machine, machines=None):
    return {way.name: way for way in plan_deployment(plan, machine, machines)}


def test_the_parallel_share_is_that_of_the_measurements_with_two_threads():
    rows = [row for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if row["threads"] == 2]
    assert max(row["items"] for row in rows) == MEASURED_ITEMS
    for row in rows:
        divided = 2 * (1 - row["seconds"] / row["processor_seconds"])
        assert divided == pytest.approx(PARALLEL_SHARE, abs=0.03)
        assert on_cores(row["processor_seconds"], 2) == pytest.approx(row["seconds"], rel=0.05)


def test_one_machine_is_all_where_it_suffices():
    machine = Machine(TEN.peak.memory / 0.95 + 1, 4, 2.0)
    [way] = plan_deployment(TEN, machine)
    assert (way.name, way.machines, way.memory) == ("one machine", 1, TEN.peak.memory)
    assert way.seconds == pytest.approx(TEN.seconds * (0.3 + 0.7 / 4))
    assert way.to_dict(machine)["cost"] == pytest.approx(2 * way.seconds / 3600)
    assert list(ways_of(TEN, machine, machines=3)) == ["one machine", "shards", "part"]


def test_a_hundred_million_items_fit_small_machines_as_a_part_alone():
    machine = Machine(64e9, 16, 1.5)
    ways = ways_of(HUNDRED, machine)
    assert {name: way.fits(machine) for name, way in ways.items()} == {
        "one machine": False,
        "shards": False,
        "part": True,
    }
    part = ways["part"]
    assert (
        part.steps[0].memory
        == make_plan(Workload(1_000_000, 900_000, 1_250_000, 5_000_000), FAST).peak.memory
    )
    # Vectors of 385 numbers with an index and texts, beside the model of the part, fill the machines but not more.
    vectors = 1e8 * (385 * 4 * 1.27 + 460)
    each = part.serving_memory - vectors / part.serving_machines
    assert part.serving_memory <= 0.95 * 64e9 < each + vectors / (part.serving_machines - 1)
    facts = part.to_dict(machine)
    paid = part.steps[0].seconds + part.steps[1].seconds * part.serving_machines
    assert facts["cost"] == pytest.approx(1.5 * paid / 3600)
    assert facts["serving_cost_per_hour"] == 1.5 * part.serving_machines
    assert ways["shards"].to_dict(machine)["cost"] is None  # it does not fit
    assert part.to_dict(Machine(64e9, 16))["cost"] is None  # no price


def test_work_is_divided_by_machines_but_for_what_one_machine_does():
    machine = Machine(2e12, 8)
    few, many = (ways_of(HUNDRED, machine, machines=count) for count in (2, 20))
    for name in ("shards", "part"):
        steps = list(zip(few[name].steps, many[name].steps, strict=True))
        for one, other in steps:
            if one.machines == 1:
                assert one == other
            elif one.name == "neighbours":  # every item is searched for in every shard
                assert other.seconds == pytest.approx(one.seconds)
                assert other.memory <= one.memory
            else:
                assert other.seconds == pytest.approx(one.seconds / 10)
    stages = {stage.name: stage.memory for stage in HUNDRED.stages}
    assert few["shards"].memory == max(stages["index"], stages["save"])


def test_workers_are_no_more_than_memory_holds():
    part = make_plan(Workload(1_000_000, 900_000, 1_250_000, 5_000_000), FAST)
    for memory, workers in ((40e9, 4), (400e9, 16)):
        represent = ways_of(HUNDRED, Machine(memory, 16), machines=3)["part"].steps[1]
        assert represent.memory == pytest.approx(workers * part.serving, rel=1e-6)
        assert represent.memory <= 0.95 * memory


def test_a_machine_that_holds_nothing():
    machine = Machine(5e8, 2, 1.0)
    [way] = plan_deployment(HUNDRED, machine)
    assert not way.fits(machine)
    for wrong in ((Machine(0), None), (Machine(1e9, 0), None), (Machine(1e9), 0)):
        with pytest.raises(ConfigError, match="memory and cores"):
            plan_deployment(TEN, *wrong)
