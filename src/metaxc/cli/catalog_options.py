"""What the commands of `metaxc catalog` share: their options, and how they open a catalog."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option

from metaxc.cli.shared import Base, Cache, Model, Threads, load_model, set_threads

if TYPE_CHECKING:
    from tqdm import tqdm

    from metaxc.catalog import Catalog
    from metaxc.catalog.store import Store
    from metaxc.emmett import Emmett

Folder = Annotated[Path, Argument(help="Folder of the catalog.", metavar="CATALOG")]
Id = Annotated[str, Argument(help="The item's id.", metavar="ID")]
Tags = Annotated[list[str] | None, Option("--tag", help="A tag of the items; may be repeated.")]
States = Annotated[list[str] | None, Option("--state", help="novel, clicked or observed; may be repeated.")]
Filter = Annotated[
    str | None,
    Option(help='A condition as JSON: {"field": "price", "lt": 20}; docs/live.md has all of them.'),
]
FieldOptions = Annotated[
    list[str] | None,
    Option(
        "--field", help="A field, such as price=19.9 or in_stock=true; may be repeated.", metavar="NAME=VALUE"
    ),
]
SkipBad = Annotated[bool, Option("--skip-bad", help="Leave out lines that cannot be used, and list them.")]
Again = Annotated[bool, Option("--again", help="Read a file once more that was read completely or in part.")]


@dataclass(frozen=True)
class CatalogOptions:
    """A catalog and its model, as a command was given them.

    Args:
        catalog: The catalog's folder.
        model: The model's folder.
        base: Folder of the pretrained weights, when they have moved.
        threads: CPU threads; 0 takes all cores.
        cache: Folder for embeddings; None for the default one.
    """

    catalog: Folder
    model: Model
    base: Base = None
    threads: Threads = 0
    cache: Cache = None

    def load_model(self) -> Emmett:
        """The model, after the number of threads is set."""
        set_threads(self.threads)
        return load_model(self.model, self.base, self.cache, keeps_embeddings=False)

    def open(self, *, read_only: bool = False) -> Catalog:
        """The open catalog."""
        from metaxc.catalog import Catalog

        return Catalog.open(self.catalog, self.load_model(), read_only=read_only)


def takes_catalog(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command whose first parameter is `CatalogOptions` have the arguments CATALOG and MODEL, and after its own
    options --base, --threads and --cache.

    Example:
        @app.command()
        @takes_catalog
        def undo(given: CatalogOptions, click: Number) -> None: ...
    """
    shared = {
        field.name: inspect.Parameter.empty if field.default is MISSING else field.default
        for field in fields(CatalogOptions)
    }
    hints = get_type_hints(CatalogOptions, include_extras=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def run(**given: Any) -> None:
        command(CatalogOptions(**{name: given.pop(name) for name in shared}), **given)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[name], default=default)
        for name, default in shared.items()
    ]
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    ordered = [*parameters[:2], *own, *parameters[2:]]
    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return run


def open_store(folder: Path) -> Store:
    """Open the store of a catalog for reading, for commands that need no model."""
    from metaxc.catalog.catalog_folder import CatalogFolder
    from metaxc.catalog.store import Store

    return Store(CatalogFolder(folder).current(), read_only=True)


def show_progress(bar: tqdm[Any], done: int, total: int) -> None:
    """Set a progress bar to a number of things done."""
    bar.total, bar.n = total, done
    bar.refresh()
