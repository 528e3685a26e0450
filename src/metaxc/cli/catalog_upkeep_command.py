"""`metaxc catalog` on whole catalogs: snapshots, exports, migrations and checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from metaxc.cli.catalog_options import CatalogOptions, Folder, open_store, show_progress, takes_catalog
from metaxc.cli.shared import Overwrite, print_status
from metaxc.errors import ConfigError

Snapshot = Annotated[Path, Argument(help="Folder of the snapshot.", metavar="SNAPSHOT")]
Output = Annotated[Path, Argument(help="Folder to write: a new or empty one.", metavar="FOLDER")]
ExportFormat = Annotated[
    str, Option(help="npy, parquet, faiss or pgvector: ids and vectors; dataset: items and clicks.")
]
TrainingData = Annotated[
    Path | None,
    Option(
        "--with-training-data",
        metavar="DATA",
        help="With --format dataset: add the training clicks of this data set folder, the one that the catalog's first "
        "model was trained on.",
    ),
]
Accept = Annotated[bool, Option("--accept", help="Give up lost writes and keep the rows that are intact.")]
Replace = Annotated[bool, Option("--overwrite", help="Replace the content of an existing catalog.")]


def snapshot(catalog: Folder, folder: Output, overwrite: Overwrite = False) -> None:
    """Write a copy of the catalog. It carries checksums, and another process may write to the catalog meanwhile."""
    from metaxc.catalog.generations import write_snapshot

    with open_store(catalog) as store:
        write_snapshot(store, folder, overwrite=overwrite)
    print_status(f"snapshot written to {folder}")


def restore(folder: Snapshot, catalog: Folder, overwrite: Replace = False) -> None:
    """Restore a snapshot into a new catalog; with --overwrite into an existing one, whose content it replaces."""
    from metaxc.catalog import Catalog

    Catalog.restore(folder, catalog, overwrite=overwrite)
    print_status(f"restored {catalog} from {folder}")


def export(
    catalog: Folder,
    folder: Output,
    format: ExportFormat = "parquet",
    training_data: TrainingData = None,
    overwrite: Overwrite = False,
) -> None:
    """Export ids and vectors for another vector database, or items and clicks for the next training.

    Vectors are searched by inner product; README.md in the folder says how.

    --format dataset writes a data set folder for `metaxc train`: the items with their present texts and tags, and the
    clicks that the catalog has recorded, with their times. Deleted items and clicks that were taken back are not in it.
    Nor are the clicks that the model was trained on, which the catalog does not know: --with-training-data DATA adds
    them. Give the same DATA each time, the data set of the catalog's first model, because the catalog keeps all clicks
    since then, whatever models it had.
    """
    from metaxc.catalog.export import export_vectors

    if format == "dataset":
        _export_dataset(catalog, folder, training_data, overwrite)
        return
    if training_data is not None:
        raise ConfigError(
            "Vectors are exported without training data",
            got=f"--format {format} --with-training-data",
            expected="--format dataset",
            fix="add it, or leave --with-training-data out",
        )
    with open_store(catalog) as store:
        count = export_vectors(store, folder, format, overwrite=overwrite)  # type: ignore[arg-type]
    print_status(f"{count:,} items written to {folder}")


def _export_dataset(catalog: Path, folder: Path, training_data: Path | None, overwrite: bool) -> None:
    from metaxc.catalog.dataset_export import export_dataset

    with open_store(catalog) as store:
        export = export_dataset(store, folder, training_data=training_data, overwrite=overwrite)
    print_status(
        f"{export.dataset!r} written to {folder}: {export.live_clicks:,} clicks of the catalog, "
        f"{export.training_clicks:,} of the training data"
    )
    if export.undated:
        print_status(
            "warning: the training data have no times, so the times of the catalog's clicks are left out"
        )
    if export.vectors:
        print_status("with the vectors of items and queries: train with --encoder vectors")
    if export.vectors is False:
        print_status(
            "warning: the training data have no vectors.*.npy, so no vectors were written; without them the data set "
            "cannot be trained on with --encoder vectors"
        )
    if export.trained_without_clicks:
        print_status(
            f"warning: {export.trained_without_clicks:,} items that the model was trained on have no clicks here; "
            + ("is this its training data?" if training_data else "--with-training-data DATA adds them")
        )


@takes_catalog
def migrate(given: CatalogOptions) -> None:
    """Move the catalog to another model. Every vector is computed again, then the catalog switches at once.

    A migration that was stopped resumes when the command runs again; until then the catalog keeps its old model.
    """
    from tqdm import tqdm

    from metaxc.catalog import migrate as migrate_catalog

    trained = given.load_model()
    with tqdm(unit=" items", desc="migrate", dynamic_ncols=True) as bar:
        migrated = migrate_catalog(
            given.catalog,
            trained,
            lambda done, total: show_progress(bar, done, total),
            model_folder=given.model,
        )
    print_status("migrated" if migrated else "the catalog has this model already")


def check(catalog: Folder, accept: Accept = False) -> None:
    """Verify every row against its checksum."""
    from metaxc.catalog.catalog_folder import CatalogFolder
    from metaxc.catalog.generations import recover

    if accept:
        print_status(f"accepted: {recover(CatalogFolder(catalog)):,} changes")
        return
    with open_store(catalog) as store:
        store.verify()
        print_status(f"intact: {store.sequence:,} changes")
