"""The `metaxc` command: one file per verb, errors in plain words."""

from __future__ import annotations

import sys

import typer

from metaxc.cli import (
    bench,
    catalog,
    data,
    encoder,
    evaluate,
    explain,
    report,
    represent,
    search,
    serve,
    theory,
    train,
)
from metaxc.errors import MetaxcError

app = typer.Typer(
    name="metaxc",
    help="Accurate retrieval of items that nobody has clicked yet.\n\n"
    "A first round:  metaxc data get icd10cm DATA;  metaxc train DATA --out MODEL;  "
    "metaxc evaluate MODEL DATA;  metaxc search MODEL 'chest pain';  metaxc explain MODEL 'a new item'.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.add_typer(encoder.app, name="encoder")
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("represent")(represent.represent)
app.command("search")(search.search)
app.command("explain")(explain.explain)
app.add_typer(catalog.app, name="catalog")
app.command("serve")(serve.serve)
app.add_typer(bench.app, name="bench")
app.command("report")(report.report)
app.command("theory")(theory.theory)
app.command("theory-study")(theory.theory_study)


@app.callback(invoke_without_command=True)
def version(show: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    """Accurate retrieval of items that nobody has clicked yet."""
    if show:
        from metaxc import __version__

        print(f"metaxc {__version__}")
        raise typer.Exit


def run() -> None:
    """Entry point: a user's error is printed without a traceback and exits with 2."""
    try:
        app()
    except MetaxcError as error:
        print(f"metaxc: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("metaxc: stopped; the same command goes on where it was", file=sys.stderr)
        sys.exit(130)
