"""`metaxc data synthetic`: a click log of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metaxc.cli.config_options import config_option, given_options
from metaxc.cli.shared import Json, Overwrite, invalid_option, print_json, print_status, whole_number
from metaxc.output_claims import DATA_KIND, claim_folder

CONFIG = "metaxc.data.synthetic:SyntheticConfig"


def count_option(field: str) -> Any:
    """An option for a count, which may be written as 1e6."""
    return config_option(f"{CONFIG}.{field}", parser=whole_number, metavar="COUNT")


def synthetic(
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    items: Annotated[int | None, count_option("items")] = None,
    queries: Annotated[int | None, count_option("queries")] = None,
    clicks: Annotated[int | None, count_option("clicks")] = None,
    zipf: Annotated[float | None, config_option(f"{CONFIG}.zipf")] = None,
    topics: Annotated[int | None, count_option("topics")] = None,
    off_topic: Annotated[float | None, config_option(f"{CONFIG}.off_topic")] = None,
    novel: Annotated[float | None, config_option(f"{CONFIG}.novel")] = None,
    test: Annotated[float | None, config_option(f"{CONFIG}.test")] = None,
    days: Annotated[int | None, config_option(f"{CONFIG}.days")] = None,
    seed: Annotated[int | None, config_option(f"{CONFIG}.seed")] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a synthetic click log, to measure time and memory at a size of your choice.

    Items and queries belong to topics, the popularity of items follows Zipf's law, and texts are made-up words from
    which encoders and neighbours can learn the topics. It says nothing about accuracy on real data.

    To try it:  metaxc data synthetic --items 1e5 --queries 1.25e5 --clicks 5e5 --out DATA
    """
    from pydantic import ValidationError

    from metaxc.artifacts import atomic_folder
    from metaxc.data.synthetic import SyntheticConfig, write_synthetic

    given = given_options(
        items=items,
        queries=queries,
        clicks=clicks,
        zipf=zipf,
        topics=topics,
        off_topic=off_topic,
        novel=novel,
        test=test,
        days=days,
        seed=seed,
    )
    try:
        config = SyntheticConfig.model_validate(given)
    except ValidationError as error:
        raise invalid_option(error) from error
    claim_folder(out, DATA_KIND, overwrite=overwrite, sources=[])
    with atomic_folder(out, DATA_KIND, overwrite=overwrite) as new:
        counts = write_synthetic(new, config)
    if as_json:
        print_json({"folder": str(out), "config": config.model_dump(), "counts": counts})
        return
    print_status(f"{out}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
