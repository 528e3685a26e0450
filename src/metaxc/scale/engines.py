"""Engines: where tasks that do not depend on each other are worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Engine = Callable[[Callable[[Any], int], Sequence[Any]], Iterator[int]]
"""Calls a worker, which can be sent to other machines, with every task, in any order and on any machine, and yields
what it returned as soon as it is done. A task may be worked on twice."""


def work_here(worker: Callable[[Any], int], tasks: Sequence[Any]) -> Iterator[int]:
    """The engine `local`: one task after the other in this process."""
    return map(worker, tasks)
