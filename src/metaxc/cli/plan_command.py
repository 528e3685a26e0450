"""`metaxc plan`: what training and serving need, before the work begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxc.cli.config_options import config_option, given_options
from metaxc.cli.shared import Json, print_json, print_table, whole_number
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.scale import Plan, Workload


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
    size: Annotated[str, typer.Option(help="default or fast, as of train.")] = "default",
    encoder: Annotated[str | None, config_option("metaxc.irene.config:IreneConfig.encoder")] = None,
    folds: Annotated[int | None, config_option("metaxc.irene.config:IreneConfig.folds")] = None,
    expansion_queries: Annotated[
        int | None, config_option("metaxc.irene.config:IreneConfig.expansion_queries")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(help="GB of memory of the machine.  [default: that of this one]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate the memory, disk space and time of training and serving, and say what this machine can do.

    The estimate of memory is meant to be right within a fifth; that of time is for one thread, and rough.

    To try it:  metaxc plan DATA;  metaxc plan --items 1.3e6 --queries 2.2e6 --clicks 40e6 --size fast
    """
    from pydantic import ValidationError

    from metaxc.cli.shared import invalid_option
    from metaxc.irene import SIZES, IreneConfig
    from metaxc.scale import machine_memory, make_plan
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
    if as_json:
        print_json({**made.to_dict(), "machine_memory": available, "fits": fits, "what_fits": advice})
        return
    _print_plan(made)
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
