"""`metaxc switch`: a running service gets another model."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxc.cli.shared import Json, print_json, print_status
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.serve.api_types import ModelStatus

Url = Annotated[str, typer.Argument(help="Address of the service: http://HOST:PORT.", metavar="URL")]
Target = Annotated[
    Path | None,
    typer.Argument(
        help="Folder of the new model on the service's machine: in the folder that was given as "
        "`metaxc serve --models`, or relative to it.",
        metavar="MODEL",
    ),
]


def switch(
    url: Url,
    model: Target = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Switch back to the previous generation instead.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Switch though the checks would refuse it.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Print how far a switch is, and exit.")] = False,
    as_json: Json = False,
) -> None:
    """Switch a running service to another model; searches and writes go on meanwhile.

    The new generation of the catalog is built beside the present one, compared with it, and then used at once. A
    service that requires a token takes it from METAXC_WRITE_TOKEN.
    """
    from metaxc.serve.client import Client
    from metaxc.serve.serve_settings import READ_TOKEN, WRITE_TOKEN

    if not status and (model is None) != rollback:
        raise ConfigError("Nothing to switch to", expected="either MODEL or --rollback", fix="name a model")
    token = os.environ.get(WRITE_TOKEN) or (os.environ.get(READ_TOKEN) if status else None)
    with Client(url, token or None) as client:
        if status:
            found = client.model_status()
        else:
            # A folder of this machine is named as it is found here; another one is the service's to find.
            named = None if model is None else model.resolve() if model.is_dir() else model
            found = client.switch_model(named, rollback=rollback, force=force, progress=_Printer())
    if as_json:
        print_json(asdict(found))
    else:
        print(_describe(found))


class _Printer:
    """Prints each change of the status once."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, status: ModelStatus) -> None:
        line = f"{status.state}: {status.done:,} of {status.total:,} items" if status.total else status.state
        if line != self._last:
            print_status(line)
            self._last = line


def _describe(status: ModelStatus) -> str:
    lines = [f"{status.state}: model {status.model[:16]}"]
    if status.previous is not None:
        lines.append(f"previous: model {status.previous[:16]}; `metaxc switch URL --rollback` returns to it")
    if status.reason is not None:
        lines.append(f"reason: {status.reason}")
    if status.checks is not None:
        checks = status.checks
        lines.append(
            f"checks on {checks.queries} queries: recall {checks.recall:.3f}, "
            f"{checks.changed:.1%} of the first ten answers changed"
        )
        if checks.novel_recall_before is not None and checks.novel_recall_after is not None:
            lines.append(
                f"novel R@10 on {checks.novel_clicks} recent clicks: {checks.novel_recall_before:.3f} before, "
                f"{checks.novel_recall_after:.3f} after"
            )
    return "\n".join(lines)
