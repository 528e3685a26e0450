"""`metaxc serve`: the live catalog over HTTP, with its web page."""

from __future__ import annotations

import gc
import os
import socket
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxc.cli.catalog_command import known_queries
from metaxc.cli.config_options import config_option, given_options
from metaxc.cli.shared import Base, Cache, load_model, print_status, set_threads
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.catalog import Catalog
    from metaxc.emmett import Emmett
    from metaxc.serve.config_file import ServeSources
    from metaxc.serve.model_switcher import ModelFolders
    from metaxc.serve.serve_settings import ServeSettings

NETWORK = "metaxc.serve.serve_settings:NetworkSettings"
QUEUES = "metaxc.serve.serve_settings:QueueSettings"
CONNECTIONS = "metaxc.serve.serve_settings:ConnectionSettings"
BACKLOG = (
    2048  # connections that wait to be accepted: under overload they get a 429 instead of a connection error
)


def serve(
    model: Annotated[
        Path | None,
        typer.Argument(help="Model folder; not needed where --config names one.", metavar="MODEL"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="TOML file with any of these options and all settings; options replace what it says.",
        ),
    ] = None,
    catalog: Annotated[
        Path | None, typer.Option("--catalog", help="Catalog folder.  [default: MODEL.catalog]")
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            "--models",
            help="Folder of the models that `metaxc switch` may name.  [default: the folder that contains MODEL]",
        ),
    ] = None,
    watch_models: Annotated[
        Path | None,
        typer.Option(
            "--watch-models",
            metavar="FOLDER",
            help="Switch to each new complete model in this folder, after the checks of `metaxc switch`: the one that "
            "a link named current in it names, or else the newest.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Data set folder; a new catalog keeps a sample of its training queries for previews.",
        ),
    ] = None,
    host: Annotated[str | None, config_option(f"{NETWORK}.host")] = None,
    port: Annotated[int | None, config_option(f"{NETWORK}.port")] = None,
    max_wait: Annotated[float | None, config_option(f"{QUEUES}.max_wait")] = None,
    max_connections: Annotated[int | None, config_option(f"{CONNECTIONS}.max_connections")] = None,
    read_only: Annotated[bool | None, typer.Option("--read-only", help="Reject all changes.")] = None,
    base: Base = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=0,
            help="CPU threads per search and per write; 0 uses half of the cores.  [default: 0]",
        ),
    ] = None,
    cache: Cache = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config", help="Print a --config file with every setting and its default, and exit."
        ),
    ] = False,
) -> None:
    """Serve a live catalog of the model's items over HTTP, with a web page: add, click, search, explain.

    The first start creates the catalog, later ones open it. Ctrl-C closes it; no acknowledged change is lost.
    """
    set_threads(find_threads(threads, config) or default_threads())
    from metaxc.serve.config_file import (
        build_settings,
        read_config_file,
        render_config_file,
        tokens_are_exposed,
    )

    if print_config:
        print(render_config_file(), end="")
        return
    content = {} if config is None else read_config_file(config)
    if config is not None and tokens_are_exposed(content, config):
        print_status(f"warning: {config} contains a token and others can read it; chmod 600 {config}")
    given = given_options(
        model=model,
        models=models,
        watch_models=watch_models,
        catalog=catalog,
        data=data,
        base=base,
        cache=cache,
        threads=threads,
        read_only=read_only,
        network__host=host,
        network__port=port,
        queues__max_wait=max_wait,
        connections__max_connections=max_connections,
    )
    sources, settings = build_settings(content, given, config)
    if sources.model is None:
        raise ConfigError(
            "No model given",
            expected="a model folder",
            fix="metaxc serve MODEL, or model = … in the --config file",
        )
    served, watched = sources.model, check_watched(sources)
    folder = sources.catalog or served.resolve().with_name(f"{served.resolve().name}.catalog")
    where = (sources.base, sources.cache)
    run_server(
        lambda: open_or_create_catalog(folder, served, sources.data, sources.read_only, *where),
        settings,
        lambda old: reopen_catalog(old, served, *where),
        find_models(served, sources.models, watched, *where),
    )


def find_models(
    served: Path, models: Path | None, watched: Path | None, base: str | None, cache: Path | None
) -> ModelFolders:
    """The models that a service may be switched to, and the folder that is watched for new ones."""
    from metaxc.serve.model_switcher import ModelFolders

    root = models or watched or served.resolve().parent
    if watched is not None and not watched.resolve().is_relative_to(root.resolve()):
        raise ConfigError(
            "The watched folder is outside the folder of models",
            got=f"--watch-models {watched}, --models {root}",
            expected="a folder in --models, or no --models",
            fix="leave --models out, or name a folder that contains both",
        )
    return ModelFolders(
        root, served, lambda folder: load_model(folder, base, cache, keeps_embeddings=False), watched
    )


def check_watched(sources: ServeSources) -> Path | None:
    """The folder to watch, if one was given; it must exist, and the service must be able to switch."""
    watched = sources.watch_models
    if watched is not None and (sources.read_only or not watched.is_dir()):
        raise ConfigError(
            "The folder of models cannot be watched",
            got=f"--watch-models {watched}"
            + (" with --read-only" if sources.read_only else ": no such folder"),
            expected="a folder, and a service that may change its catalog",
            fix="start it without --read-only; it follows the service that writes"
            if sources.read_only
            else "create the folder, or correct its name",
        )
    return watched


def find_threads(threads: int | None, config: Path | None) -> int:
    """The number of threads that the option or the file names, 0 for none; needed before the numeric libraries are
    loaded, so before the file is checked."""
    if threads is None and config is not None:
        with suppress(OSError, ValueError):
            named = tomllib.loads(config.read_text(encoding="utf-8")).get("threads")
            return named if isinstance(named, int) and named > 0 else 0
    return threads or 0


def default_threads() -> int:
    """Half of the cores. A search and a write run at the same time: if each used all cores, threads that wait for each
    other would take the time of those that work. Measured on two busy cores, one thread against two: a search takes 17
    against 28 ms of CPU time, an add 11 against 27, a click 16 against 246."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def open_or_create_catalog(
    folder: Path, model: Path, data: Path | None, read_only: bool, base: str | None, cache: Path | None
) -> Catalog:
    """The catalog in a folder; created if there is none, unless it is read only."""
    from metaxc.catalog import Catalog
    from metaxc.catalog.catalog_folder import CatalogFolder

    if CatalogFolder(folder).exists or read_only:
        if data is not None:
            print_status(
                f"--data {data} is not used: the catalog {folder} is there already, with the known queries that it was "
                "created with; for others, remove the catalog, or name a new one with --catalog"
            )
        print_status(f"opening the catalog {folder}")
        trained = load_catalog_model(folder, model, base, cache)
        catalog = Catalog.open(folder, trained, read_only=read_only)
    else:
        print_status(f"creating the catalog {folder}")
        trained = load_model(model, base, cache, keeps_embeddings=False)
        catalog = Catalog.create(folder, trained, queries=known_queries(data))
    catalog.warm()
    return catalog


def load_catalog_model(folder: Path, model: Path, base: str | None, cache: Path | None) -> Emmett:
    """The model of a catalog: the one that it was switched or migrated to, where it has been, or the one that is named.
    Where it is neither, the one that is named, which the catalog will refuse."""
    from metaxc.catalog.catalog_folder import CatalogFolder
    from metaxc.catalog.generation_record import read_model
    from metaxc.errors import MetaxcError

    wanted, switched_to = read_model(CatalogFolder(folder))
    if switched_to is not None and switched_to != model.resolve():
        with suppress(MetaxcError):
            trained = load_model(switched_to, base, cache, keeps_embeddings=False)
            if trained.fingerprint == wanted:
                print_status(f"the catalog was switched to the model {switched_to}; {model} is not used")
                return trained
    return load_model(model, base, cache, keeps_embeddings=False)


def reopen_catalog(old: Catalog, model: Path, base: str | None, cache: Path | None) -> Catalog:
    """The catalog that another process has switched, migrated or restored in the place of a read-only one.

    Its model is the one that is loaded, the one that is now in the model folder, or the one that it was migrated to.
    """
    from metaxc.catalog import Catalog, CatalogError
    from metaxc.catalog.generation_record import read_model

    wanted, _ = read_model(old.folder)
    trained = old.model
    if trained.fingerprint != wanted:
        trained = load_catalog_model(old.folder.path, model, base, cache)
    if trained.fingerprint != wanted:
        raise CatalogError(
            "The catalog has another model now, which cannot be found",
            got=f"model {trained.fingerprint[:16]} in the model folder",
            expected=f"model {wanted[:16]}",
            fix="put that model into the model folder, or start the service with it",
        )
    catalog = Catalog.open(old.folder.path, trained, read_only=True)
    catalog.warm()
    return catalog


def run_server(
    source: Callable[[], Catalog],
    settings: ServeSettings,
    reopen: Callable[[Catalog], Catalog] | None = None,
    models: ModelFolders | None = None,
) -> None:
    """Serve until a signal ends the process; if the catalog cannot be opened, end and raise that error."""
    from metaxc.serve.app import make_app
    from metaxc.serve.http_server import HttpServer

    network = settings.network
    listening = listen(network.host, network.port)
    host = f"[{network.host}]" if ":" in network.host else network.host
    url = f"http://{host}:{listening.getsockname()[1]}"
    errors: list[Exception] = []

    def stop(error: Exception) -> None:
        errors.append(error)
        server.should_exit = True

    def announce() -> None:
        # What is there now stays. Without this, every few thousand connections the garbage collector would look at all
        # of it, a million objects of torch and the model, and nobody would be answered for 0.15 seconds.
        gc.collect()
        gc.freeze()
        print(f"ready: {url}", flush=True)

    # After a switch, models that were loaded since the start are freed at once. The weights of the first one stay: to
    # find the references in a circle that hold them, all that is frozen would have to be looked at.
    app = make_app(
        source,
        settings,
        on_ready=announce,
        on_failure=stop,
        reopen=reopen,
        models=models,
        on_switched=collect_garbage,
    )
    server = HttpServer(app, settings)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        print_status("closed")
    if errors:
        raise errors[0]


def collect_garbage() -> None:
    """Free what is held by references in a circle, of what is not frozen."""
    gc.collect()


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only for sockets that name the protocol; otherwise each response waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            "The service cannot listen on this address",
            got=f"{host}:{port}: {error.strerror or error}",
            expected="an address of this machine and a free port",
            fix="choose another --port, or stop the process that uses it",
        ) from error
    return listening
