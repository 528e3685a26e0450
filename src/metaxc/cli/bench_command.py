"""`metaxc bench`: the paper's tables on a data set of your own, row by row, resumable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxc.cli.shared import (
    Backend,
    Cache,
    Json,
    Seed,
    Threads,
    print_json,
    print_status,
    print_table,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.research.bench import Context, Record, Table

SHOWN = (("zero_shot", "P@1"), ("zero_shot", "R@10"), ("generalized", "P@1"), ("generalized", "R@10"))

HELP = {
    "main": (
        "metaxc beside TF-IDF, BM25, ZestXML and SemSup-XC; beside dense retrieval, NGAME as served, DEXA, ESZSL and a "
        "neighbour kernel, on the frozen and on the adapted encoder; IRENE as in the paper; two oracles that see "
        "the novel items' own clicks.\n\n"
        "Costs: a `metaxc train` with default settings, one on the frozen encoder, one with the paper's choices, "
        "and the baselines' own learning."
    ),
    "ablations": (
        "The default with one thing changed: what informs a new item, how many neighbours, which generator, how it "
        "is trained, who selects.\n\n"
        "Costs: a `metaxc train`, kept from `main` if that ran, and 15 more without learning the encoder, which is "
        "kept; five of them train a transformer, in every fold and once more."
    ),
    "oneshot": (
        "An item's first clicks: 1, 2 and 5 of a novel item's own training queries revealed, as votes for its "
        "neighbours, as evidence of its own, as both; and training again with one revealed.\n\n"
        "Costs: a `metaxc train`, kept from `main` if that ran, and a whole one for the last row; the others train "
        "nothing."
    ),
    "novel-ratio": (
        "10, 20, 30 and 40 percent of the items novel, each set within the next: bare encoder, adapted encoder "
        "alone, metaxc.\n\n"
        "Costs: four training runs, with one fold each."
    ),
    "latency": (
        "Milliseconds per item and per query for every stage, alone and in batches of 256, and the ratio to "
        "encoding the same texts in the same run; beside dense retrieval and SemSup-XC.\n\n"
        "Costs: a `metaxc train`, kept from `main` if that ran, and SemSup-XC's learning. Run it on an idle machine."
    ),
}

app = typer.Typer(
    help="The paper's tables on your data: main, ablations, oneshot, novel-ratio, latency.\n\n"
    "Each row is written to a JSON-lines file as soon as it is done; the same command goes on where it was. Learnt "
    "encoders and models are kept beside it, so later rows and tables are cheaper.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _command(name: str) -> None:
    def command(
        data: Annotated[
            Path | None, typer.Argument(help="Data set folder; not needed with --list.", metavar="DATA")
        ] = None,
        out: Annotated[
            Path | None, typer.Option("--out", help="Result file.  [default: name of DATA.jsonl]")
        ] = None,
        rows: Annotated[
            list[str] | None,
            typer.Option("--rows", help="Only rows that fit, such as '*oracle*'; may be given again."),
        ] = None,
        listed: Annotated[bool, typer.Option("--list", help="Print the rows and stop.")] = False,
        again: Annotated[bool, typer.Option("--again", help="Do rows anew that are already there.")] = False,
        work: Annotated[
            Path | None,
            typer.Option("--work", help="Folder for models and encoders.  [default: beside OUT, .work]"),
        ] = None,
        encoder: Annotated[
            str, typer.Option(help="Of the default: adapted, static or pretrained.")
        ] = "adapted",
        base: Annotated[
            str | None, typer.Option(help="Pretrained weights: a sentence-transformers folder.")
        ] = None,
        backend: Backend = "auto",
        epochs: Annotated[int, typer.Option(min=1, help="To adapt the encoder.")] = 5,
        folds: Annotated[int, typer.Option(min=0, help="To choose the constants by.")] = 3,
        seed: Seed = 0,
        threads: Threads = 0,
        cache: Cache = None,
        as_json: Json = False,
    ) -> None:
        if listed:
            _list(name, rows or [], as_json)
            return
        if data is None:
            raise ConfigError(
                "No data set given", expected="a data set folder", fix=f"metaxc bench {name} DATA"
            )
        set_threads(threads)
        out = out or Path(f"{data.resolve().name}.jsonl")
        recipe = {
            "encoder": encoder,
            "backend": backend,
            "folds": folds,
            "seed": seed,
            "adapter": {"epochs": epochs},
        }
        context = _context(
            data, recipe | ({"base": base} if base else {}), work or out.with_suffix(".work"), cache
        )
        _run(name, context, out, rows or [], again, as_json)

    command.__doc__ = HELP[name]
    app.command(name, help=HELP[name])(command)


for _name in HELP:
    _command(_name)


def _context(data: Path, recipe: dict[str, Any], work: Path, cache: Path | None) -> Context:
    from pydantic import ValidationError

    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache
    from metaxc.irene import IreneConfig
    from metaxc.research.bench import Context

    try:
        config = IreneConfig.model_validate(recipe)
    except ValidationError as error:
        first = error.errors()[0]
        where = "-".join(map(str, first["loc"]))
        raise ConfigError(
            f"Invalid value for --{where}", got=repr(first["input"]), expected=first["msg"]
        ) from error
    how = {"novel": 0.1, "test": 0.15, "by": "random", "seed": config.seed}
    dataset, _ = with_split(read_folder(data), how)
    print_status(repr(dataset))
    return Context(dataset, config, folder=work, cache=EmbeddingCache(cache))


def _run(name: str, context: Context, out: Path, patterns: Sequence[str], again: bool, as_json: bool) -> None:
    from tqdm import tqdm

    from metaxc.research.bench import Results, chosen_rows, run_table, table_of

    def report(line: str) -> None:
        with tqdm.external_write_mode():
            print_status(line)

    context.report = report
    table = table_of(name)
    found = run_table(context, table, chosen_rows(table, *patterns), Results(out), again=again, report=report)
    if as_json:
        print_json({"table": name, "data": context.dataset.name, "results": str(out), "rows": found})
    else:
        _print(table, found)
    failed = [record["row"] for record in found if "failed" in record]
    if failed:
        print_status(
            f"{len(failed)} of {len(found)} rows failed: {', '.join(failed)}; the reasons stand in {out}"
        )
        raise typer.Exit(1)


def _print(table: Table, found: list[Record]) -> None:
    if table.name == "latency":
        columns = [
            (name, measure) for name in ("single", "batch 256") for measure in ("ms", "times encoding")
        ]
    else:
        columns = list(SHOWN)
    heads = [f"{place.replace('_', '-')} {measure}" for place, measure in columns]
    lines = []
    for record in found:
        values = [record["metrics"].get(place, {}).get(measure) for place, measure in columns]
        digits = 3 if table.name == "latency" else 1
        cells = ["failed" if value is None else f"{value:.{digits}f}" for value in values]
        lines.append([record["row"], *cells])
    print_table(f"{table.name}: {table.about}", ["", *heads], lines)


def _list(name: str, patterns: Sequence[str], as_json: bool) -> None:
    from metaxc.research.bench import chosen_rows, table_of

    rows = chosen_rows(table_of(name), *patterns)
    if as_json:
        print_json({"table": name, "rows": [{"row": row.name, "group": row.group} for row in rows]})
        return
    for row in rows:
        print(f"{row.group:28} {row.name}")
