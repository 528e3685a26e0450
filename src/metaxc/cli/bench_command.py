"""`metaxc bench`: the paper's tables for your own data set, row by row; an interrupted run can be continued."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
from metaxc.errors import ConfigError, DataError

if TYPE_CHECKING:
    from metaxc.research.bench import Context, Record, Rerun, Table

IRENE = "metaxc.irene.config:IreneConfig"

HELP = {
    "main": (
        "Compare metaxc with TF-IDF, BM25, ZestXML and SemSup-XC; with dense retrieval, NGAME as served, DEXA, ESZSL "
        "and a neighbour kernel, each on the frozen and on the adapted encoder; with a fine-tuned "
        "sentence-transformers encoder, alone and fused with BM25; with the other sizes; with IRENE as in the paper; "
        "and with two oracles that use the novel items' own clicks.\n\n"
        "Cost: a `metaxc train` with default settings, one on the frozen encoder, one with the paper's settings, and "
        "the training of the baselines, which for fine-tuned sentence-transformers is --fine-tuning-steps; --size best "
        "fine-tunes a transformer twice, which takes longest."
    ),
    "encoders": (
        "The paper's encoders, DPR, ANCE, NGAME and MACLR, each alone, with the paper's IRENE on top, and with metaxc "
        "on top.\n\n"
        "Cost: four trainings of a transformer, of --encoder-passes over the queries each, and two models on each of "
        "them. Hours on a large data set without a GPU; `metaxc data sample` makes a smaller one."
    ),
    "ablations": (
        "The default configuration with one change: the neighbours' vectors, the number of neighbours, the generator, "
        "its training, or the selector.\n\n"
        "Cost: a `metaxc train`, reused from `main` if that has run, and 24 more that reuse its encoder; twelve of "
        "them train a transformer, in every fold and once more."
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
    help="The paper's tables for your data: main, encoders, ablations, oneshot, novel-ratio, latency; or all of "
    "them.\n\n"
    "Each row is written to a JSON-lines file as soon as it is finished; the same command continues an interrupted "
    "run. Trained encoders and models are saved beside the file and reused by later rows and tables. Rows that other "
    "code than the present has measured are run again, and so is what they trained, except with --keep-older.\n\n"
    "Columns, percent: zero-shot ranks the novel items only, generalized all items. 'Novel R@10 in the mix' is the "
    "share of a query's novel relevant items among the first ten of all items, and 'observed' alike; H is their "
    "harmonic mean. The result file also has other depths and the recall by training clicks.\n\n"
    "Requires: pip install 'metaxc[research]'",
    no_args_is_help=True,
    rich_markup_mode=None,
)


Rows = Annotated[
    list[str] | None,
    typer.Option("--rows", help="Run only rows that match, such as '*oracle*'; can be repeated."),
]
Again = Annotated[bool, typer.Option("--again", help="Run rows again that are in the result file.")]
KeepOlder = Annotated[
    bool,
    typer.Option("--keep-older", help="Do not run rows again that other code than the present has measured."),
]
EncoderKind = Annotated[str | None, config_option(f"{IRENE}.encoder")]
BaseName = Annotated[str | None, config_option(f"{IRENE}.base")]
BackendName = Annotated[str | None, config_option(f"{IRENE}.backend")]
Epochs = Annotated[int | None, config_option(f"{IRENE}.adapter.epochs")]
Folds = Annotated[int | None, config_option(f"{IRENE}.folds")]
ConfigSeed = Annotated[int | None, config_option(f"{IRENE}.seed")]
FineTuningSteps = Annotated[
    int | None,
    config_option("metaxc.research.baselines.fine_tuned:FineTuningConfig.steps", "--fine-tuning-steps"),
]
EncoderPasses = Annotated[
    float | None,
    typer.Option(
        "--encoder-passes",
        min=0.01,
        help="Passes over the training queries of each encoder of the table encoders, at most 300 steps; the weights "
        "that find held-out items best are kept.  [default: 1]",
    ),
]


def _add_command(name: str) -> None:
    def command(
        data: Annotated[
            Path | None, typer.Argument(help="Data set folder; not needed with --list.", metavar="DATA")
        ] = None,
        out: Annotated[
            Path | None, typer.Option("--out", help="Result file.  [default: name of DATA.jsonl]")
        ] = None,
        rows: Rows = None,
        list_rows: Annotated[bool, typer.Option("--list", help="Print the rows and exit.")] = False,
        again: Again = False,
        keep_older: KeepOlder = False,
        work: Annotated[
            Path | None,
            typer.Option(
                "--work", help="Folder for models and encoders.  [default: OUT with the suffix .work]"
            ),
        ] = None,
        encoder: EncoderKind = None,
        base: BaseName = None,
        backend: BackendName = None,
        epochs: Epochs = None,
        folds: Folds = None,
        seed: ConfigSeed = None,
        fine_tuning_steps: FineTuningSteps = None,
        encoder_passes: EncoderPasses = None,
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
        given = _GivenOptions(encoder, base, backend, epochs, folds, seed, fine_tuning_steps, encoder_passes)
        context = _build_context(data, given, work or out.with_suffix(".work"), cache)
        _run(name, context, out, rows or [], _choose_rerun(again, keep_older), as_json)

    app.command(name, help=HELP[name], cls=ConfigCommand)(command)


for _name in HELP:
    _add_command(_name)


@app.command("all", cls=ConfigCommand)
def run_all_tables(
    data: Annotated[list[Path], typer.Argument(help="Data set folders.", metavar="DATA...")],
    out: Annotated[Path, typer.Option("--out", help="Folder for one result file per data set.")],
    again: Again = False,
    keep_older: KeepOlder = False,
    encoder: EncoderKind = None,
    base: BaseName = None,
    backend: BackendName = None,
    epochs: Epochs = None,
    folds: Folds = None,
    seed: ConfigSeed = None,
    fine_tuning_steps: FineTuningSteps = None,
    encoder_passes: EncoderPasses = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Run all rows of all tables: main, encoders, ablations, oneshot, novel-ratio, latency; of each the cheapest first.

    Each row is written to OUT/NAME.jsonl as soon as it is finished, NAME being that of the data set's folder; models
    and encoders are in OUT/NAME.work. The same command continues an interrupted run, and runs rows again that other
    code has measured. A row that fails is recorded with its reason and the others run; the exit code is then 1.

    Cost: that of all tables together. Before each row it prints how much time has passed and about how much is left.
    """
    set_threads(threads)
    given = _GivenOptions(encoder, base, backend, epochs, folds, seed, fine_tuning_steps, encoder_passes)
    rerun = _choose_rerun(again, keep_older)
    _check_names(data)
    records: list[Record] = []
    unread = []
    for folder in data:
        name = folder.resolve().name
        try:
            context = _build_context(folder, given, out / f"{name}.work", cache)
        except DataError as error:  # the other data sets are run
            unread.append(name)
            print_status(f"{name}: {error}")
            continue
        records += _run_data_set(context, out / f"{name}.jsonl", rerun, as_json)
    if as_json:
        print_json({"results": str(out), "rows": records})
    failed = [f"{record['data']}: {record['row']}" for record in records if "failed" in record]
    if failed or unread:
        print_status(
            f"{len(failed)} of {len(records)} rows failed, see {out} for the reasons: {'; '.join(failed) or 'none'}"
        )
        if unread:
            print_status(f"Not read: {', '.join(unread)}")
        raise typer.Exit(1)


class _GivenOptions(NamedTuple):
    """The options that decide what is measured, None for the default."""

    encoder: str | None
    base: str | None
    backend: str | None
    epochs: int | None
    folds: int | None
    seed: int | None
    fine_tuning_steps: int | None
    encoder_passes: float | None

    def on_command_line(self) -> str:
        """As they are typed."""
        given = [(name, value) for name, value in self._asdict().items() if value is not None]
        return "".join(f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in given)

    def settings(self) -> dict[str, Any]:
        """Of the configuration."""
        return given_options(
            encoder=self.encoder,
            base=self.base,
            backend=self.backend,
            adapter__epochs=self.epochs,
            folds=self.folds,
            seed=self.seed,
        )


def _choose_rerun(again: bool, keep_older: bool) -> Rerun:
    if again and keep_older:
        raise ConfigError(
            "--again and --keep-older contradict each other",
            got="both",
            expected="one of them: all rows are run again, or none that is finished",
        )
    return "all" if again else "none" if keep_older else "older"


def _check_names(data: Sequence[Path]) -> None:
    names = [folder.resolve().name for folder in data]
    if len(set(names)) < len(names):
        raise ConfigError(
            "Two data sets have the same folder name, and so the same result file",
            got=", ".join(names),
            expected="different names",
            fix="run them with different --out",
        )


def _build_context(data: Path, given: _GivenOptions, work: Path, cache: Path | None) -> Context:
    from pydantic import ValidationError

    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache
    from metaxc.irene import IreneConfig
    from metaxc.research.baselines.fine_tuned import FineTuningConfig
    from metaxc.research.bench import Context

    try:
        config = IreneConfig.model_validate(given.settings())
    except ValidationError as error:
        raise invalid_option(error) from error
    try:
        fine_tuning = FineTuningConfig.model_validate(given_options(steps=given.fine_tuning_steps))
    except ValidationError as error:
        raise invalid_option(error, "fine-tuning-") from error
    split = {"novel": 0.1, "test": 0.15, "by": "random", "seed": config.seed}
    dataset, _ = with_split(read_folder(data), split)
    print_status(repr(dataset))
    return Context(
        dataset,
        config,
        folder=work,
        cache=EmbeddingCache(cache),
        fine_tuning=fine_tuning,
        **given_options(encoder_passes=given.encoder_passes),
        arguments=f"{shlex.quote(data.resolve().name)}{given.on_command_line()}",
    )


def _run(
    name: str, context: Context, out: Path, patterns: Sequence[str], rerun: Rerun, as_json: bool
) -> None:
    from metaxc.research.bench import Results, get_table, run_table, select_rows

    context.report = _report
    table = get_table(name)
    rows = select_rows(table, *patterns)
    records = run_table(context, table, rows, Results(out), rerun=rerun, report=_report)
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


def _run_data_set(context: Context, out: Path, rerun: Rerun, as_json: bool) -> list[Record]:
    """All tables of one data set, each printed as soon as all are run."""
    from metaxc.research.bench import TABLES, Results, get_table, run_all

    context.report = _report
    tables = [get_table(name) for name in TABLES]
    records = run_all(context, tables, Results(out), rerun=rerun, report=_report)
    if not as_json:
        for table in tables:
            _print_records(table, [record for record in records if record["table"] == table.name])
    return records


def _report(line: str) -> None:
    from tqdm import tqdm

    with tqdm.external_write_mode():
        print_status(line)


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
