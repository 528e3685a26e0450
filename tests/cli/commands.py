"""The command, run in this process."""

from typer.testing import CliRunner

from metaxc.cli.main import app
from metaxc.errors import MetaxcError


def run(*args):
    """What it printed; errors as the command would print them, anything else is raised."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit | MetaxcError):
        raise result.exception
    return result
