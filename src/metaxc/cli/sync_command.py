"""`metaxc sync`: keep a vector store equal to a live catalog."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from metaxc.cli.catalog_options import Folder, open_store
from metaxc.cli.config_options import config_option, given_options
from metaxc.cli.shared import Json, invalid_option, load_model, print_json, print_status, set_threads
from metaxc.errors import ConfigError

SETTINGS = "metaxc.catalog.sync.sync_driver:SyncSettings"


def sync(
    catalog: Folder,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="postgresql://USER@HOST/DATABASE?table=NAME, milvus://HOST:PORT/NAME, qdrant://HOST:PORT/NAME, "
            "qdrant+local://FOLDER/NAME, lance://FOLDER/NAME or parquet://FOLDER; a folder that begins with a slash "
            "has three of them: lance:///data/items.",
        ),
    ],
    cutover: Annotated[
        bool,
        typer.Option(
            "--cutover",
            help="Build a new table beside the one in use, check its recall, then switch to it at once: for a new "
            "model, or another --index.",
        ),
    ] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Return to the table that the last cutover has replaced.")
    ] = False,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Compare the checksums of all rows, also where nothing seems to have changed."
        ),
    ] = False,
    index: Annotated[str | None, config_option(f"{SETTINGS}.index")] = None,
    min_recall: Annotated[float | None, config_option(f"{SETTINGS}.min_recall")] = None,
    sample: Annotated[int | None, config_option(f"{SETTINGS}.sample")] = None,
    seed: Annotated[int | None, config_option(f"{SETTINGS}.seed")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="The catalog's model: a cutover is then checked with queries of the catalog, and not with vectors of "
            "its items.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep a vector store equal to a live catalog: PostgreSQL, Milvus, Qdrant, Lance or Parquet files.

    Only what has changed since the last time is written. Run it as often as you like, beside a running service; when it
    is stopped, the next run resumes. Afterwards, metaxc search MODEL 'a query' --via URL searches there, and so does
    everything else that speaks to that vector store: the score is the inner product, the last number of an item's
    vector is its share of the exposure, that of a query's vector the exposure. docs/sync.md has examples.
    """
    from pydantic import ValidationError

    from metaxc.catalog.sync import SyncSettings, open_target, roll_back, sync_catalog

    if rollback and (cutover or compare):
        raise ConfigError(
            "--rollback stands alone",
            got="--rollback with --cutover or --compare",
            expected="one of them",
            fix="leave the other out",
        )
    try:
        settings = SyncSettings(**given_options(index=index, min_recall=min_recall, sample=sample, seed=seed))
    except ValidationError as error:
        raise invalid_option(error) from error
    with open_target(to) as target:
        if rollback:
            print_status(f"rolled back to {roll_back(target)}")
            return
        from tqdm import tqdm

        if model is not None:
            set_threads(0)
        trained = None if model is None else load_model(model, None, None, keeps_embeddings=False)
        with open_store(catalog) as store, tqdm(unit=" items", desc="sync", dynamic_ncols=True) as bar:

            def progress(done: int, total: int) -> None:
                bar.total, bar.n = total, done
                bar.refresh()

            report = sync_catalog(
                store, target, settings, progress, cutover=cutover, compare=compare, model=trained
            )
    if as_json:
        print_json(asdict(report))
        return
    recall = "" if report.recall is None else f"; recall@10 {report.recall:.3f}"
    compared = " after a comparison of all rows" if report.compared else ""
    print(
        f"{report.upserted:,} written, {report.deleted:,} deleted{compared}; {report.table} is equal to the catalog "
        f"as of write {report.sequence:,}{recall}"
    )
