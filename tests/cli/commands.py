"""The command, run in this process."""

from typer.testing import CliRunner

from metaxc.cli.main import app
from metaxc.errors import MetaxcError

ONE_THREAD = {
    name: {"threads": 1} for name in ("train", "evaluate", "search", "explain", "represent", "theory")
}
"""What stands for `--threads` where a test does not give it: for small arrays, threads cost more than they save."""


def run(*args):
    """What it printed; errors as the command would print them, anything else is raised."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], default_map=ONE_THREAD)
    if result.exception is not None and not isinstance(result.exception, SystemExit | MetaxcError):
        raise result.exception
    return result
