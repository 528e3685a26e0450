"""The engine `ray`: tasks worked on by the machines of a Ray cluster (extra `ray`).

Ray Data gives every worker one task after the other, and gives those of a lost machine to the others. Only names of
files and numbers of rows pass through Ray; every machine reads the input and the model, and writes the output, on a
file system that all of them share.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from metaxc.errors import ConfigError, MetaxcError
from metaxc.extras import import_extra

EXTRA = "ray"
CONNECT_SECONDS = 10.0
"""To wait for a machine to accept a connection."""


@dataclass(frozen=True)
class RayEngine:
    """An `Engine` on a Ray cluster. An error in a task is raised after all others are done.

    Args:
        address: Of the cluster: `HOST:PORT`, `ray://HOST:PORT`, `auto` for the one that this machine belongs to, or
            `local` for a new one of this machine alone. None is `$RAY_ADDRESS`, or else `auto`, or else `local`.
        threads: CPUs of a worker, and its threads.
        workers: At the most; None for as many as the cluster has CPUs for.
    """

    address: str | None = None
    threads: int = 1
    workers: int | None = None

    def __call__(self, worker: Callable[[Any], int], tasks: Sequence[Any]) -> Iterator[int]:
        """Yield what the worker returns for each task as soon as it is done."""
        ray, data = import_extra("ray", EXTRA), import_extra("ray.data", EXTRA)
        with _connected(ray, self.address):
            data.DataContext.get_current().enable_progress_bars = False  # the caller has one
            most = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // self.threads)
            rows = [{"place": place} for place in range(len(tasks))]
            written = data.from_items(rows, override_num_blocks=len(rows)).map_batches(
                _Worker,
                fn_constructor_args=(worker, list(tasks)),
                batch_size=1,
                # A task takes seconds to minutes: none waits for a busy worker while another one is idle.
                compute=data.ActorPoolStrategy(size=min(most, len(tasks)), max_tasks_in_flight_per_actor=1),
                num_cpus=self.threads,
            )
            errors = []
            try:
                # To the end: Ray Data has no public call to stop a data set that is left in the middle.
                for row in written.iter_rows():
                    if row["error"]:
                        errors.append(row["error"])
                    else:
                        yield int(row["rows"])
            except ray.exceptions.RayError as error:
                raise MetaxcError(
                    "The work on Ray has failed",
                    got=error,
                    fix="run the same command again: what is complete is kept",
                ) from error
        if errors:
            count = f"{len(errors):,} partitions have failed. The first error:\n" if len(errors) > 1 else ""
            raise MetaxcError(count + errors[0])


class _Worker:
    """A process of the cluster that works on tasks.

    A user's error is a part of its answer: Ray would wrap it in a traceback, or try again.
    """

    def __init__(self, worker: Callable[[Any], int], tasks: list[Any]):
        self.worker, self.tasks = worker, tasks

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        [place] = batch["place"]
        try:
            return {"rows": [self.worker(self.tasks[place])], "error": [""]}
        except MetaxcError as error:
            return {"rows": [0], "error": [str(error)]}


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Ray connected to the cluster, which stays as it is; a connection that the program has already is used."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of its own sends nothing to anybody
    try:
        _check_port(address or os.environ.get("RAY_ADDRESS", ""))
        ray.init(address=address, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            "The Ray cluster cannot be reached",
            got=f"{address or 'no address'}: {error}",
            expected="the address of a running cluster, with the same versions of Ray and Python as here",
            fix="check --address, or give --address local to start a cluster on this machine",
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_port(address: str) -> None:
    """Raise an `OSError` where nothing listens at HOST:PORT: Ray itself would try for minutes and then exit."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
