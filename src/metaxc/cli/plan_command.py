"""`metaxc plan`: what training and serving need, before the work begins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxc.cli.config_options import config_option, given_options
from metaxc.cli.shared import Json, print_json, print_table, whole_number
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.scale import Machine, Plan, Way, Workload


def plan(
    data: Annotated[
        Path | None, typer.Argument(help="Data set folder; or give the numbers.", metavar="[DATA]")
    ] = None,
    items: Annotated[
        int | None, typer.Option(help="Number of items, such as 1.3e6.", parser=whole_number, metavar="COUNT")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="Number of training queries.", parser=whole_number, metavar="COUNT")
    ] = None,
    clicks: Annotated[
        int | None, typer.Option(help="Number of training clicks.", parser=whole_number, metavar="COUNT")
    ] = None,
    novel: Annotated[float, typer.Option(help="Share of the items that are novel; with --items.")] = 0.1,
    dim: Annotated[int, typer.Option(min=1, help="Dimensions of the encoder.")] = 384,
    size: Annotated[str, typer.Option(help="fast, default or best, as of train.")] = "default",
    encoder: Annotated[str | None, config_option("metaxc.irene.config:IreneConfig.encoder")] = None,
    folds: Annotated[int | None, config_option("metaxc.irene.config:IreneConfig.folds")] = None,
    expansion_queries: Annotated[
        int | None, config_option("metaxc.irene.config:IreneConfig.expansion_queries")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            "--machine-gb", "--memory", help="GB of memory of a machine.  [default: that of this one]"
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option("--machine-cores", min=1, help="Cores of a machine.  [default: those of this one]"),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(
            "--price-per-hour", min=0, help="Of a machine, in any currency; adds the cost.  [default: none]"
        ),
    ] = None,
    machines: Annotated[
        int | None,
        typer.Option(
            min=1, help="Machines that work at once on several.  [default: as few as hold the vectors]"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate the memory, disk space, time and cost of training and serving, and say what a machine can do.

    The estimate of memory is meant to be right within a fifth; that of time is for one thread, and rough. Where one
    machine is too small, ways with several are listed: how many, the memory of each, hours and cost. Beyond a million
    items, and for several machines, all figures are arithmetic on what was measured.

    To try it:  metaxc plan DATA;  metaxc plan --items 1e7 --queries 1.25e7 --clicks 5e7 --size fast --machine-gb 64
    --machine-cores 16 --price-per-hour 1
    """
    from pydantic import ValidationError

    from metaxc.cli.shared import invalid_option
    from metaxc.irene import SIZES, IreneConfig
    from metaxc.scale import Machine, machine_memory, make_plan, plan_deployment
    from metaxc.scale.planning import ENOUGH, GIGABYTE, describe_what_fits

    if size not in SIZES:
        raise ConfigError("Unknown size", got=size, expected=" or ".join(SIZES))
    given = given_options(encoder=encoder, folds=folds, expansion_queries=expansion_queries)
    try:
        config = IreneConfig.model_validate({**SIZES[size], **given})
    except ValidationError as error:
        raise invalid_option(error) from error
    made = make_plan(_workload(data, items, queries, clicks, novel, dim), config)
    available = machine_memory() if memory is None else memory * GIGABYTE
    fits = made.peak.memory <= ENOUGH * available
    advice = None if fits else describe_what_fits(made, available)
    machine = Machine(available, cores or os.cpu_count() or 1, price)
    ways = plan_deployment(made, machine, machines)
    if as_json:
        facts = {"machine_memory": available, "fits": fits, "what_fits": advice}
        deployment = {
            "machine": vars(machine),
            "basis": _describe_basis(made),
            "first_that_fits": next((way.name for way in ways if way.fits(machine)), None),
            "ways": [way.to_dict(machine) for way in ways],
        }
        print_json({**made.to_dict(), **facts, "deployment": deployment})
        return
    _print_plan(made)
    _print_ways(ways, machine)
    print(_describe_basis(made))
    if fits:
        print(f"This machine suffices: it has {available / GIGABYTE:.1f} GB of memory.")
    else:
        print(f"This machine is too small: it has {available / GIGABYTE:.1f} GB of memory. {advice}.")


def _workload(
    data: Path | None, items: int | None, queries: int | None, clicks: int | None, novel: float, dim: int
) -> Workload:
    from metaxc.data import read_folder
    from metaxc.scale import Workload

    numbers = [items, queries, clicks]
    if data is not None and any(number is not None for number in numbers):
        raise ConfigError(
            "The numbers of a data set are those of its folder",
            got=f"{data} and --items, --queries or --clicks",
            expected="one of the two",
        )
    if data is not None:
        return Workload.of(read_folder(data), dim)
    if items is None or queries is None or clicks is None:
        raise ConfigError(
            "There is nothing to plan for",
            got="neither DATA nor all of --items, --queries and --clicks",
            expected="metaxc plan DATA, or metaxc plan --items 1e6 --queries 1.25e6 --clicks 5e6",
        )
    return Workload(items, int((1 - novel) * items), queries, clicks, dim)


def _print_plan(made: Plan) -> None:
    from metaxc.scale.planning import GIGABYTE, format_seconds

    workload = made.workload
    title = (
        f"{workload.items:,} items ({workload.observed:,} observed), {workload.queries:,} training queries, "
        f"{workload.clicks:,} clicks, {workload.dim} dimensions; encoder {made.config.encoder}, "
        f"folds {made.config.folds}"
    )
    rows = [
        [
            f"{stage.name}{' (peak)' if stage is made.peak else ''}",
            f"{stage.memory / GIGABYTE:.1f}",
            format_seconds(stage.seconds),
        ]
        for stage in made.stages
    ]
    print_table(title, ["stage", "memory, GB", "time, one thread"], rows)
    print(f"Training: {made}.")
    memory, disk = made.serving / GIGABYTE, made.model / GIGABYTE
    print(f"Serving: about {memory:.1f} GB of memory; the model takes {disk:.1f} GB of disk space.")


def _print_ways(ways: Sequence[Way], machine: Machine) -> None:
    from metaxc.scale.planning import GIGABYTE, format_seconds

    rows = []
    for way in ways:
        facts = way.to_dict(machine)
        large = "" if way.fits(machine) else ": too small"
        rows.append([way.name + large, "", "", "", ""])
        for step in way.steps:
            memory, time = f"{step.memory / GIGABYTE:.1f}", format_seconds(step.seconds)
            rows.append([f"  {step.name}", f"{step.machines:,}", memory, time, ""])
        cost = "" if facts["cost"] is None else f"{facts['cost']:,.2f}"
        rows.append(
            [
                "  all steps",
                f"{way.machines:,}",
                f"{way.memory / GIGABYTE:.1f}",
                format_seconds(way.seconds),
                cost,
            ]
        )
        memory, hourly = f"{way.serving_memory / GIGABYTE:.1f}", facts["serving_cost_per_hour"]
        cost = "" if hourly is None else f"{hourly:,.2f} an hour"
        rows.append(["  serve", f"{way.serving_machines:,}", memory, "", cost])
    title = f"ways to deploy, on machines with {machine.memory / GIGABYTE:.0f} GB and {machine.cores:,} cores"
    print_table(title, ["way", "machines", "GB of each", "time", "cost"], rows)
    for way in ways[1:]:
        print(f"{way.name}: {way.loss}.")
    chosen = next((way for way in ways if way.fits(machine)), None)
    if chosen is None:
        print("No way fits machines of this size.")
        return
    cost = chosen.to_dict(machine)["cost"]
    print(
        f"The first way that fits: {chosen.name}, {chosen.machines:,} × {machine.memory / GIGABYTE:.0f} GB, "
        f"{chosen.seconds / 3600:.1f} hours, {chosen.machine_seconds / 3600:.1f} machine-hours"
        f"{'' if cost is None else f', cost {cost:,.2f}'}."
    )


def _describe_basis(made: Plan) -> str:
    """Which figures were measured, and which are arithmetic."""
    from metaxc.scale.deployment import MEASURED_ITEMS

    fast = made.config.encoder == "static"
    beyond = made.workload.items > MEASURED_ITEMS
    measured = (
        f"Measured: training with --size fast on up to {MEASURED_ITEMS:,} items, with one and two threads."
    )
    if beyond or not fast:
        return f"{measured} Arithmetic: all figures above, from constants of those measurements."
    return f"{measured} Arithmetic: times on more cores, several machines, and cost."
