"""The metaxc command, a running service, and the folder of an example, as the examples use them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-m", "metaxc"]


def metaxc(*arguments: str | Path) -> str:
    """Show a command, run it, and return what it printed; one that fails ends the example."""
    words = [str(argument) for argument in arguments]
    print("$ metaxc " + " ".join(words), flush=True)
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


@contextmanager
def running_service(*arguments: str | Path) -> Iterator[str]:
    """Run `metaxc serve` on a free port; its address, until the block ends."""
    words = ["serve", *(str(argument) for argument in arguments), "--port", "0"]
    print("$ metaxc " + " ".join(words), flush=True)
    process = subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("ready: "):
                yield line.removeprefix("ready: ").strip()
                return
        sys.exit(f"metaxc serve ended with {process.wait()}")
    finally:
        process.terminate()
        process.wait()


def run_example(main: Callable[[Path], None]) -> None:
    """Run an example in the folder that was given on the command line, or else in a temporary one."""
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
