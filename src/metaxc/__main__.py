"""`python -m metaxc`, for launchers such as torchrun."""

from metaxc.cli.main import run

run()
