"""The `metaxc` command: one file per subcommand."""

from __future__ import annotations

import errno
import sys

import typer

from metaxc.cli import (
    bench_command,
    catalog_command,
    data_command,
    encoder_command,
    evaluation_commands,
    model_commands,
    plan_command,
    serve_command,
    switch_command,
    sync_command,
    theory_command,
    train_command,
)
from metaxc.cli.config_options import ConfigCommand
from metaxc.errors import MetaxcError

DISK_TROUBLE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EBUSY,
    errno.ENAMETOOLONG,
}
"""Errors of a disk or its permissions, which an operator mends: no traceback."""

app = typer.Typer(
    name="metaxc",
    help="Accurate retrieval of items that nobody has clicked yet.\n\n"
    "To try it:  metaxc data get books DATA;  metaxc train DATA --out MODEL;  "
    "metaxc evaluate MODEL DATA;  metaxc search MODEL 'Dune by Frank Herbert';  metaxc explain MODEL 'a new item'.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data_command.app, name="data")
app.add_typer(encoder_command.app, name="encoder")
app.command("plan", cls=ConfigCommand)(plan_command.plan)
app.command("train", cls=ConfigCommand)(train_command.train)
app.command("evaluate")(evaluation_commands.evaluate)
app.command("represent")(model_commands.represent)
app.command("search")(model_commands.search)
app.command("explain")(model_commands.explain)
app.add_typer(catalog_command.app, name="catalog")
app.command("serve", cls=ConfigCommand)(serve_command.serve)
app.command("switch")(switch_command.switch)
app.command("sync", cls=ConfigCommand)(sync_command.sync)
app.add_typer(bench_command.app, name="bench")
app.command("report")(evaluation_commands.report)
app.command("theory", cls=ConfigCommand)(theory_command.theory)
app.command("theory-study")(theory_command.theory_study)


@app.callback(invoke_without_command=True)
def version(show: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Accurate retrieval of items that nobody has clicked yet."""
    if show:
        from metaxc import __version__

        print(f"metaxc {__version__}")
        raise typer.Exit


def run() -> None:
    """Entry point; a user's error is printed without a traceback, with exit code 2."""
    try:
        app()
    except MetaxcError as error:
        print(f"metaxc: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            raise
        place = "" if error.filename is None else f": {error.filename}"
        print(
            f"metaxc: The file system refused an operation\n  got: {error.strerror}{place}", file=sys.stderr
        )
        print("  to fix: check free space, permissions and whether it is mounted read-only", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("metaxc: stopped; the same command resumes where it was", file=sys.stderr)
        sys.exit(130)
