"""`metaxc data import`: a company's own files become a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metaxc.cli.check_output import print_changes, print_check
from metaxc.cli.shared import Json, Overwrite, print_json, print_status
from metaxc.output_claims import DATA_KIND, claim_folder

FILE = "CSV, TSV, JSON lines (.jsonl, .ndjson) or Parquet, plain or .gz"


def _option(name: str, help: str, metavar: str = "COLUMN") -> typer.models.OptionInfo:
    return typer.Option(name, help=help, metavar=metavar)  # type: ignore[no-any-return]


def import_data(
    items: Annotated[Path, _option("--items", f"File of items: {FILE}.", "FILE")],
    clicks: Annotated[Path, _option("--clicks", "File of click events, of the same kinds.", "FILE")],
    out: Annotated[Path, _option("--out", "Folder to write.", "DATA")],
    id: Annotated[str | None, _option("--id", "Items: the id.")] = None,
    text: Annotated[
        str | None, _option("--text", "Items: the text; several are joined: title,description.", "COLUMN,…")
    ] = None,
    tags: Annotated[
        str | None, _option("--tags", "Items: tags to filter by: brand,category.", "COLUMN,…")
    ] = None,
    fields: Annotated[
        str | None,
        _option(
            "--fields", "Items: fields to filter by, with the columns' names: price,in_stock.", "COLUMN,…"
        ),
    ] = None,
    first_seen: Annotated[str | None, _option("--first-seen", "Items: when the item appeared.")] = None,
    query: Annotated[str | None, _option("--query", "Clicks: the text of the query.")] = None,
    item: Annotated[str | None, _option("--item", "Clicks: the id of the clicked item.")] = None,
    time: Annotated[str | None, _option("--time", "Clicks: when; seconds since 1970 or ISO 8601.")] = None,
    count: Annotated[str | None, _option("--count", "Clicks: how many the row stands for.")] = None,
    queries: Annotated[
        Path | None,
        _option(
            "--queries", "File of query texts, where clicks have ids of queries (such as a UBI log).", "FILE"
        ),
    ] = None,
    query_id: Annotated[str | None, _option("--query-id", "Queries: the id.")] = None,
    query_text: Annotated[str | None, _option("--query-text", "Queries: the text.")] = None,
    action: Annotated[
        str | None,
        _option("--action", "UBI log: actions that count as clicks, such as click,add_to_cart.", "NAME,…"),
    ] = None,
    exclude_self: Annotated[
        bool,
        typer.Option(
            "--exclude-self",
            help="The queries are items themselves, by id or text (bought or read together): an item is never its own "
            "answer.",
        ),
    ] = False,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad",
            help="Leave out rows that cannot be used; DATA/left_out.tsv lists them, with the reason.",
        ),
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make a data set from your own files: products and search events.

    Columns that you do not name are guessed by their names and shown. To try it:

      metaxc data import --items products.csv --clicks events.csv --out DATA

      metaxc data import --items products.csv --id sku --text title,description --tags brand,category
      --fields price,in_stock --clicks events.parquet --query query --item product_id --time ts --out DATA

    Every row of clicks is a query that led to an item, with a time if you have it, so that `metaxc data split` can test
    on the latest ones. Bad rows are listed and nothing is written; with --skip-bad they are left out. Text in Latin-1,
    times in milliseconds and repeated headers are read as they were meant. Columns of a CSV file without a
    header are named by their numbers: --id 1 --text 2.

    UBI (user behavior insights) events are recognised: give ubi_events as --clicks and ubi_queries as --queries.
    """
    from metaxc.artifacts import atomic_folder
    from metaxc.data import write_folder
    from metaxc.data.import_columns import ImportColumns
    from metaxc.data.importing import import_tables
    from metaxc.data.repair import LIST_FILE

    sources = [items, clicks, *([] if queries is None else [queries])]
    claim_folder(out, DATA_KIND, overwrite=overwrite, sources=sources)
    columns = ImportColumns(
        id,
        _list(text),
        _list(tags),
        _list(fields),
        first_seen,
        query,
        item,
        time,
        count,
        query_id,
        query_text,
    )
    imported = import_tables(
        items,
        clicks,
        queries=queries,
        columns=columns,
        actions=_list(action),
        exclude_self=exclude_self,
        skip_bad=skip_bad,
        name=out.name,
        progress=True,
    )
    for line in imported.columns:
        print_status(line)
    if imported.actions:
        print_status("actions: " + ", ".join(f"{name} {many:,}" for name, many in imported.actions.items()))
    if imported.dataset is not None:
        with atomic_folder(out, DATA_KIND, overwrite=overwrite, sources=sources) as new:
            write_folder(imported.dataset, new)
            imported.listed.write(new / LIST_FILE)
    if as_json:
        facts = {"columns": imported.columns, "changes": imported.listed.count_kinds()}
        print_json(imported.report.to_dict() | facts | {"written": imported.dataset is not None})
    elif imported.dataset is None:
        print_check(imported.report, "The import was not written", "The import can be written")
        print("To leave these rows out, add --skip-bad.")
    else:
        print_changes(out, imported.dataset, imported.listed)
    if imported.dataset is None:
        raise typer.Exit(1)


def _list(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (names or "").split(",") if name.strip())
