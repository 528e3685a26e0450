"""`metaxc bench`: the paper's tables for your own data set, row by row; an interrupted run can be continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxc.cli.config_options import ConfigCommand, config_option, given_options
from metaxc.cli.shared import (
    Cache,
    Json,
    Threads,
    invalid_option,
    print_json,
    print_status,
    print_table,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.research.bench import Context, Record, Table

IRENE = "metaxc.irene.config:IreneConfig"

HELP = {
    "main": (
        "Compare metaxc with TF-IDF, BM25, ZestXML and SemSup-XC; with dense retrieval, NGAME as served, DEXA, ESZSL "
        "and a neighbour kernel, each on the frozen and on the adapted encoder; with IRENE as in the paper; and with "
        "two oracles that use the novel items' own clicks.\n\n"
        "Cost: a `metaxc train` with default settings, one on the frozen encoder, one with the paper's settings, and "
        "the training of the baselines."
    ),
    "ablations": (
        "The default configuration with one change: the neighbours' vectors, the number of neighbours, the generator, "
        "its training, or the selector.\n\n"
        "Cost: a `metaxc train`, reused from `main` if that has run, and 15 more that reuse its encoder; five of them "
        "train a transformer, in every fold and once more."
    ),
    "oneshot": (
        "The first clicks of an item: 1, 2 and 5 of a novel item's own training queries are revealed, as votes for its "
        "neighbours, as evidence for a classifier of its own, and as both; and training again with one revealed.\n\n"
        "Cost: a `metaxc train`, reused from `main` if that has run, and another one for the last row; the other rows "
        "train nothing."
    ),
    "novel-ratio": (
        "10, 20, 30 and 40 percent of the items novel, each set contained in the next: bare encoder, adapted encoder "
        "alone, metaxc.\n\n"
        "Cost: four training runs, with one fold each."
    ),
    "latency": (
        "Milliseconds per item and per query for every stage, one text at a time and in batches of 256, and the ratio "
        "to encoding the same texts in the same run; compared with dense retrieval and SemSup-XC.\n\n"
        "Cost: a `metaxc train`, reused from `main` if that has run, and the training of SemSup-XC. Run it on an idle "
        "machine."
    ),
}

app = typer.Typer(
    help="The paper's tables for your data: main, ablations, oneshot, novel-ratio, latency.\n\n"
    "Each row is written to a JSON-lines file as soon as it is finished; the same command continues an interrupted "
    "run. Trained encoders and models are saved beside the file and reused by later rows and tables.\n\n"
    "Columns, percent: zero-shot ranks the novel items only, generalized all items. 'Novel R@10 in the mix' is the "
    "share of a query's novel relevant items among the first ten of all items; H is its harmonic mean with the same "
    "of observed items. The result file also has the recall by training clicks.\n\n"
    "Requires: pip install 'metaxc[research]'",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _add_command(name: str) -> None:
    def command(
        data: Annotated[
            Path | None, typer.Argument(help="Data set folder; not needed with --list.", metavar="DATA")
        ] = None,
        out: Annotated[
            Path | None, typer.Option("--out", help="Result file.  [default: name of DATA.jsonl]")
        ] = None,
        rows: Annotated[
            list[str] | None,
            typer.Option("--rows", help="Run only rows that match, such as '*oracle*'; can be repeated."),
        ] = None,
        list_rows: Annotated[bool, typer.Option("--list", help="Print the rows and exit.")] = False,
        again: Annotated[
            bool, typer.Option("--again", help="Run rows again that are in the result file.")
        ] = False,
        work: Annotated[
            Path | None,
            typer.Option(
                "--work", help="Folder for models and encoders.  [default: OUT with the suffix .work]"
            ),
        ] = None,
        encoder: Annotated[str | None, config_option(f"{IRENE}.encoder")] = None,
        base: Annotated[str | None, config_option(f"{IRENE}.base")] = None,
        backend: Annotated[str | None, config_option(f"{IRENE}.backend")] = None,
        epochs: Annotated[int | None, config_option(f"{IRENE}.adapter.epochs")] = None,
        folds: Annotated[int | None, config_option(f"{IRENE}.folds")] = None,
        seed: Annotated[int | None, config_option(f"{IRENE}.seed")] = None,
        threads: Threads = 0,
        cache: Cache = None,
        as_json: Json = False,
    ) -> None:
        if list_rows:
            _print_rows(name, rows or [], as_json)
            return
        if data is None:
            raise ConfigError(
                "No data set given", expected="a data set folder", fix=f"metaxc bench {name} DATA"
            )
        set_threads(threads)
        out = out or Path(f"{data.resolve().name}.jsonl")
        settings = given_options(
            encoder=encoder, base=base, backend=backend, adapter__epochs=epochs, folds=folds, seed=seed
        )
        context = _build_context(data, settings, work or out.with_suffix(".work"), cache)
        _run(name, context, out, rows or [], again, as_json)

    app.command(name, help=HELP[name], cls=ConfigCommand)(command)


for _name in HELP:
    _add_command(_name)


def _build_context(data: Path, settings: dict[str, Any], work: Path, cache: Path | None) -> Context:
    from pydantic import ValidationError

    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache
    from metaxc.irene import IreneConfig
    from metaxc.research.bench import Context

    try:
        config = IreneConfig.model_validate(settings)
    except ValidationError as error:
        raise invalid_option(error) from error
    split = {"novel": 0.1, "test": 0.15, "by": "random", "seed": config.seed}
    dataset, _ = with_split(read_folder(data), split)
    print_status(repr(dataset))
    return Context(dataset, config, folder=work, cache=EmbeddingCache(cache))


def _run(name: str, context: Context, out: Path, patterns: Sequence[str], again: bool, as_json: bool) -> None:
    from tqdm import tqdm

    from metaxc.research.bench import Results, get_table, run_table, select_rows

    def report(line: str) -> None:
        with tqdm.external_write_mode():
            print_status(line)

    context.report = report
    table = get_table(name)
    rows = select_rows(table, *patterns)
    records = run_table(context, table, rows, Results(out), again=again, report=report)
    if as_json:
        print_json({"table": name, "data": context.dataset.name, "results": str(out), "rows": records})
    else:
        _print_records(table, records)
    failed = [record["row"] for record in records if "failed" in record]
    if failed:
        print_status(
            f"{len(failed)} of {len(records)} rows failed: {', '.join(failed)}; see {out} for the reasons"
        )
        raise typer.Exit(1)


def _print_records(table: Table, records: list[Record]) -> None:
    from metaxc.research.bench.results import find_metric
    from metaxc.research.bench.tables import COLUMNS, LATENCY_COLUMNS

    columns, digits = (LATENCY_COLUMNS, 3) if table.name == "latency" else (COLUMNS, 1)
    lines = []
    for record in records:
        values = [find_metric(record["metrics"], path) for path in columns.values()]
        missing = "failed" if "failed" in record else "–"
        cells = [missing if value is None else f"{value:.{digits}f}" for value in values]
        lines.append([record["row"], *cells])
    print_table(f"{table.name}: {table.about}", ["", *columns], lines)


def _print_rows(name: str, patterns: Sequence[str], as_json: bool) -> None:
    from metaxc.research.bench import get_table, select_rows

    rows = select_rows(get_table(name), *patterns)
    if as_json:
        print_json({"table": name, "rows": [{"row": row.name, "group": row.group} for row in rows]})
        return
    for row in rows:
        print(f"{row.group:28} {row.name}")
