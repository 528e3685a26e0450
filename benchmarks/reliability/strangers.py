"""Clients without a token: can they stop the service, or make it grow?

    python benchmarks/reliability/strangers.py --before OLD/src --out benchmarks/results/reliability/strangers.json

`metaxc serve` runs with tokens in a process that may open 1,024 files. Promised: whatever strangers do, a client with a
token is answered, its 99th percentile within 3 times that of the idle service, over a connection that stays open and
over a new one for each request alike; the probes answer; memory, the log and `/metrics` stay small.

Attacks, each from processes of their own, whose connections are opened again a second after they were closed:

- idle: 1,100 connections that send nothing;
- bodies: 520 requests that announce a body, most of them to open paths, and send a byte of it per second;
- pipelines: 520 connections that send 200 requests at once and read no response;
- all: these three together;
- elsewhere: these three, at a server that does nothing, so that the service has no strangers: what the attackers take
  from it by running on the same machine, the least that "all" can show;
- methods: 10,000 requests with invented methods, to two paths.

With `--before`, the same attacks run against other source code first: with that of version 0.1.0 (commit a28362e) the
service stops answering. `--short` takes seconds, with few strangers, and judges no times.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from live import quantiles
from proof_run import write_result
from schema import small_model

import metaxc
from metaxc.research.code_version import git_commit

HERE = Path(__file__).parent
TOKEN = "the-token-of-the-authorised-client"
FILES = 1024
PATIENCE = 5.0
"""Seconds after which the authorised client gives up on a request."""

EVERY = 0.02
"""Seconds between two requests of the authorised client; it does the three kinds in turns."""

MOST_TIMES = 3.0
MOST_LOG = 100_000
"""Bytes."""

MOST_GROWTH = 32.0
"""MB of memory; an attack of 2,140 connections needs buffers for the 768 that are open."""

MOST_OPEN = 1.0
"""Seconds within which a probe has to answer."""


@dataclass(frozen=True)
class Scale:
    """How large an attack is.

    Args:
        strangers: Connections by kind.
        methods: Requests with invented methods.
        seconds: Of measuring, idle and in each attack.
        settle: Seconds before an attack is measured.
    """

    strangers: dict[str, int]
    methods: int
    seconds: float
    settle: float


FULL = Scale({"idle": 1100, "bodies": 520, "pipelines": 520}, 10_000, 20.0, 3.0)
SHORT = Scale({"idle": 1100, "bodies": 60, "pipelines": 60}, 300, 1.0, 0.5)


class Server:
    """`metaxc serve` as an operator starts it.

    Args:
        model: The model folder.
        catalog: The catalog folder.
        source: Of the package.
        log: File for what it writes to its standard error.
    """

    def __init__(self, model: Path, catalog: Path, source: Path, log: Path):
        self.log = log
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "metaxc",
                    "serve",
                    str(model),
                    "--catalog",
                    str(catalog),
                    "--port",
                    "0",
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=catalog.parent,
                env={**os.environ, **threads, "PYTHONPATH": str(source), "METAXC_WRITE_TOKEN": TOKEN},
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
            )
        assert self.process.stdout is not None
        told = ""
        while not told.startswith("ready: "):
            told = self.process.stdout.readline()
            if not told:
                raise RuntimeError(f"the service did not open: {log.read_text()[-2000:]}")
        self.port = int(told.strip().rpartition(":")[2])

    @property
    def memory(self) -> float:
        """Resident MB."""
        return psutil.Process(self.process.pid).memory_info().rss / 2**20

    def stop(self) -> int:
        """End it as a signal does; its exit code."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Caller:
    """A blocking client: one connection that stays open, and new ones for single requests."""

    def __init__(self, port: int):
        self.port = port
        self._kept: socket.socket | None = None

    def ask(
        self, method: str, path: str, body: Any = None, *, kept: bool = False
    ) -> tuple[int, float, bytes]:
        """Status (0: no answer), seconds, body."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        head += "Content-Type: application/json\r\n" if content else ""
        started = time.perf_counter()
        wire = self._kept if kept else None
        self._kept = None if kept else self._kept
        try:
            wire = wire or socket.create_connection(("127.0.0.1", self.port), PATIENCE)
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            status, answer = read_answer(wire, started + PATIENCE)
        except (OSError, ValueError):
            if wire is not None:
                wire.close()
            return 0, time.perf_counter() - started, b""
        seconds = time.perf_counter() - started
        if kept:
            self._kept = wire
        else:
            wire.close()
        return status, seconds, answer

    def search(self, *, kept: bool) -> tuple[int, float]:
        """One search."""
        status, seconds, _ = self.ask("POST", "/v1/search", {"queries": ["somewhere grey to sit"]}, kept=kept)
        return status, seconds


def read_answer(wire: socket.socket, until: float) -> tuple[int, bytes]:
    """Status and body of one response, of which the length is announced."""
    received = b""
    while True:
        head, found, body = received.partition(b"\r\n\r\n")
        if found:
            length = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
            if len(body) >= length:
                return int(head[9:12]), body
        wire.settimeout(max(0.001, until - time.perf_counter()))
        part = wire.recv(1 << 20)
        if not part:
            raise OSError("closed")
        received += part


@contextmanager
def attacking(port: int, kind: str, count: int) -> Iterator[str]:
    """Strangers in a process of their own; the first line that it tells."""
    command = [sys.executable, str(HERE / "stranger_clients.py"), "--port", str(port), "--kind", kind]
    process = subprocess.Popen(
        [*command, "--count", str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


@dataclass
class Measured:
    """What the authorised client and the probes saw.

    Args:
        seconds: By kind of request; one without an answer counts as long as the client waited.
        failures: Statuses other than 200, by kind of request.
        memory: Most resident MB.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"kept": [], "new": [], "probe": []})
    failures: list[str] = field(default_factory=list)
    memory: float = 0.0

    def summary(self) -> dict[str, Any]:
        """For the result file, times in ms."""
        times = {f"{kind}, ms": quantiles(seconds) for kind, seconds in self.seconds.items()}
        return {**times, "not answered": len(self.failures), "memory, MB": round(self.memory, 1)}


def measure(server: Server, seconds: float) -> Measured:
    """Ask at even distances: a search over a kept connection, one over a new one, a probe."""
    seen, caller = Measured(), Caller(server.port)
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        statuses = {}
        for kind in ("kept", "new"):
            statuses[kind], took = caller.search(kept=kind == "kept")
            seen.seconds[kind].append(took)
        statuses["probe"], took, _ = caller.ask("GET", "/healthz")
        seen.seconds["probe"].append(took)
        seen.failures += [f"{kind}: {status}" for kind, status in statuses.items() if status != 200]
        seen.memory = max(seen.memory, server.memory)
        time.sleep(max(0.0, EVERY - (time.perf_counter() - started)))
    return seen


def invent_methods(server: Server, count: int) -> dict[str, Any]:
    """Requests with made-up methods, then what they left behind."""
    caller = Caller(server.port)
    sizes, memory = [], []
    for part, requests in enumerate((50, count)):  # the first ones open what any request opens
        for number in range(requests):
            path = "/healthz" if number % 2 else f"/made-up-{part}-{number}"
            caller.ask(f"M{part}X{number}", path, kept=True)
        for _ in range(2):  # the first scrape opens the series of scrapes
            scraped = caller.ask("GET", "/metrics")[2]
        sizes.append(len(scraped))
        memory.append(server.memory)
    return {
        "requests": count,
        "/metrics, bytes": {"before": sizes[0], "after": sizes[1]},
        "memory, MB": {"before": round(memory[0], 1), "after": round(memory[1], 1)},
    }


@contextmanager
def serving(model: Path, source: Path) -> Iterator[Server]:
    """A service with a new catalog, warm."""
    with tempfile.TemporaryDirectory(prefix="metaxc-strangers-") as folder:
        server = Server(model, Path(folder) / "catalog", source, Path(folder) / "log")
        try:
            measure(server, 1.0)
            yield server
        finally:
            server.stop()


def attack(server: Server, name: str, scale: Scale) -> dict[str, Any]:
    """One attack, and the idle service before it."""
    logged = server.log.stat().st_size
    if name == "methods":
        found = invent_methods(server, scale.methods)
    else:
        idle = measure(server, scale.seconds)
        kinds = {name: scale.strangers[name]} if name in scale.strangers else scale.strangers
        with ExitStack() as attacks:
            port = server.port
            if name == "elsewhere":
                port = int(attacks.enter_context(attacking(0, "sink", FILES - 256)))
            for kind, count in kinds.items():
                attacks.enter_context(attacking(port, kind, count))
            measure(server, scale.settle)
            during = measure(server, scale.seconds)
        found = {
            "strangers": sum(kinds.values()),
            "idle": idle.summary(),
            "attacked": during.summary(),
            "times idle, p99": {kind: round(ratio_p99(during, idle, kind), 2) for kind in idle.seconds},
        }
    return {**found, "log, bytes": server.log.stat().st_size - logged}


def attack_all(model: Path, source: Path, scale: Scale, *, fresh: bool) -> dict[str, Any]:
    """All attacks on one service; with `fresh`, each on a service of its own, which may not survive it."""
    found: dict[str, Any] = {}
    names = (*scale.strangers, "all", "elsewhere", "methods")
    for group in [(name,) for name in names] if fresh else [names]:
        with serving(model, source) as server:
            for name in group:
                found[name] = attack(server, name, scale)
    return found


def ratio_p99(during: Measured, idle: Measured, kind: str) -> float:
    """How much longer the slowest percent takes."""
    return float(quantiles(during.seconds[kind])["p99"] / quantiles(idle.seconds[kind])["p99"])


def problems(found: dict[str, Any], judge_times: bool) -> list[str]:
    """What does not hold."""
    made = []
    for name, one in found.items():
        if one["log, bytes"] > MOST_LOG:
            made.append(f"{name}: a log of {one['log, bytes']:,} bytes")
        if name == "methods":
            memory, metrics = one["memory, MB"], one["/metrics, bytes"]
            if metrics["after"] > metrics["before"] + 2000:
                made.append(f"invented methods grow the metrics: {metrics}")
        else:
            memory = {"before": one["idle"]["memory, MB"], "after": one["attacked"]["memory, MB"]}
            if one["attacked"]["not answered"]:
                made.append(
                    f"{name}: {one['attacked']['not answered']} authorised requests without an answer"
                )
            times = one["times idle, p99"]
            if judge_times and max(times["kept"], times["new"]) > MOST_TIMES:
                made.append(f"{name}: p99 of {times} times that of the idle service")
            if judge_times and one["attacked"]["probe, ms"]["p99"] > 1000 * MOST_OPEN:
                made.append(f"{name}: slow probes: {one['attacked']['probe, ms']}")
        if memory["after"] > memory["before"] + MOST_GROWTH:
            made.append(f"{name}: memory grows: {memory}")
    return made


def run(scale: Scale, before: Path | None = None, *, judge_times: bool = True) -> dict[str, Any]:
    """A model, the attacks, and what does not hold."""
    started = time.perf_counter()
    source = Path(metaxc.__file__).parents[1]
    found: dict[str, Any] = {
        "commit": git_commit(source / "metaxc"),
        "command": " ".join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start",
        "files that the service may open": FILES,
    }
    with tempfile.TemporaryDirectory(prefix="metaxc-strangers-") as folder:
        model = Path(folder) / "model"
        small_model().save(model)
        if before is not None:
            found["before"] = attack_all(model, before, scale, fresh=True)
            found["before"]["commit"] = git_commit(before / "metaxc")
        found["after"] = attack_all(model, source, scale, fresh=False)
    found["seconds"] = round(time.perf_counter() - started, 1)
    return {**found, "problems": problems(found["after"], judge_times)}


def main() -> None:
    """Attack and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--short", action="store_true", help="few strangers, a few seconds, no judgement of times"
    )
    parser.add_argument("--before", type=Path, help="source folder of older code, attacked first")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    before = options.before.resolve() if options.before else None
    write_result(run(SHORT if options.short else FULL, before, judge_times=not options.short), options.out)


if __name__ == "__main__":
    main()
