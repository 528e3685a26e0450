"""`metaxc train`: from a click log to a model folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaxc.artifacts import STAGE_KIND, discard_results
from metaxc.cli.config_options import config_option, given_options
from metaxc.cli.shared import (
    Cache,
    Data,
    Device,
    Json,
    Overwrite,
    Threads,
    invalid_option,
    load_model,
    print_json,
    print_status,
    print_table,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError, MetaxcError

if TYPE_CHECKING:
    from metaxc.data import Dataset
    from metaxc.emmett import Emmett
    from metaxc.irene import IreneConfig

IRENE = "metaxc.irene.config:IreneConfig"
CURVE_METRICS = ("P@1", "R@10", "novel R@10")
PAPER_LEAVES_OPEN = ("base", "prompts", "backend", "neighbours", "training.depth", "seed")
"""Fields of the configuration that can be given with --paper: what it trains on, and the K and D of its ablations."""
PAPER_OPTIONS = "--base, its prompts, --backend, --fine-tuning 0, --neighbours, --depth and --seed"
KINDS = ("adapted", "static", "pretrained", "vectors")
QUERY_SIDE = ("base", "adapter", "expansion_queries", "exposure", "seed")
"""Fields of the configuration that can be given with --keep-items; the others decide the item side."""


def train(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Model folder to write.")],
    novel: Annotated[float, typer.Option(help="Share of novel items, when DATA has no novel.txt.")] = 0.1,
    test: Annotated[float, typer.Option(help="Share of test queries, when DATA has no test part.")] = 0.15,
    by: Annotated[str, typer.Option(help="How both are chosen: random, or time.")] = "random",
    keep_items: Annotated[
        Path | None,
        typer.Option(
            "--keep-items",
            metavar="MODEL",
            help="Train only the query side of this model, so that every stored item vector stays valid: switch and "
            "sync then compute no item again. Takes --epochs, --expansion-queries, --exposure and --seed; where "
            "nothing helps on the latest queries, the query encoder stays as it is.",
        ),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            help="default: fine-tunes the transformer briefly first, where it pays; fast: no transformer, less "
            "accurate; or best: fine-tunes for three passes over the queries, which takes many times as long without a "
            "GPU."
        ),
    ] = "default",
    encoder: Annotated[
        str | None,
        typer.Option(
            help="adapted, static or pretrained; vectors (DATA's vectors.*.npy); or the folder of a trained encoder "
            "(metaxc encoder train, or any sentence-transformers folder).  [default: that of the size]"
        ),
    ] = None,
    adapter: Annotated[
        bool, typer.Option(help="Adapt an encoder that is given as a folder to the clicks.")
    ] = True,
    base: Annotated[str | None, config_option(f"{IRENE}.base")] = None,
    query_prompt: Annotated[str | None, config_option(f"{IRENE}.prompts.query")] = None,
    item_prompt: Annotated[str | None, config_option(f"{IRENE}.prompts.item")] = None,
    backend: Annotated[str | None, config_option(f"{IRENE}.backend")] = None,
    fine_tuning: Annotated[
        int | None,
        typer.Option(
            "--fine-tuning",
            metavar="STEPS",
            min=0,
            help="Steps of fine-tuning the transformer, at most, before all else; 0 leaves it as it is, which saves "
            "about half of the time of training, on small data more.  [default: that of the size]",
        ),
    ] = None,
    classifiers: Annotated[str | None, config_option(f"{IRENE}.classifiers")] = None,
    generator: Annotated[str | None, config_option(f"{IRENE}.generator")] = None,
    neighbours: Annotated[int | None, config_option(f"{IRENE}.neighbours", "--neighbours", "-K")] = None,
    depth: Annotated[int | None, config_option(f"{IRENE}.training.depth")] = None,
    epochs: Annotated[int | None, config_option(f"{IRENE}.adapter.epochs")] = None,
    folds: Annotated[int | None, config_option(f"{IRENE}.folds")] = None,
    expansion_queries: Annotated[int | None, config_option(f"{IRENE}.expansion_queries")] = None,
    exposure: Annotated[float | None, config_option(f"{IRENE}.exposure")] = None,
    exposure_cost: Annotated[float | None, config_option(f"{IRENE}.exposure_cost")] = None,
    seed: Annotated[int | None, config_option(f"{IRENE}.seed")] = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="The paper's own choices (docs/paper.md). Of the options above, those that describe the data may be "
            f"given too, and {PAPER_OPTIONS}.",
        ),
    ] = False,
    ignore_memory: Annotated[
        bool,
        typer.Option("--ignore-memory", help="Train even if the estimate says that memory will not suffice."),
    ] = False,
    threads: Threads = 0,
    device: Device = "auto",
    cache: Cache = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train a model on the observed items' clicks, and represent the novel items.

    Uses DATA's novel.txt and test part if there are any, else makes a split. A run that was killed resumes when it is
    started again (OUT.stages). When it is done, OUT is a folder that evaluate, search and explain read.
    With --keep-items MODEL, only what answers queries is trained, and the vectors of all items stay those of MODEL.
    """
    set_threads(threads)
    from metaxc.data import read_folder
    from metaxc.devices import set_device
    from metaxc.emmett.model_folder import KIND as MODEL_KIND
    from metaxc.encoders import EmbeddingCache
    from metaxc.encoders.vectors import read_vectors
    from metaxc.irene import Irene
    from metaxc.output_claims import claim_folder

    set_device(device)
    started = time.perf_counter()
    kind, base = _encoder(encoder, adapter, base)
    given = given_options(
        encoder=kind,
        base=base,
        prompts__query=query_prompt,
        prompts__item=item_prompt,
        backend=backend,
        classifiers=classifiers,
        generator=generator,
        neighbours=neighbours,
        training__depth=depth,
        adapter__epochs=epochs,
        folds=folds,
        expansion_queries=expansion_queries,
        exposure=exposure,
        exposure_cost=exposure_cost,
        seed=seed,
    )
    if fine_tuning is not None:
        given["fine_tuning"] = {"steps": fine_tuning, "passes": None} if fine_tuning else None
    if keep_items is not None:
        _check_query_side(given, size, paper)
    config = _config(given, size, paper)
    dataset = read_folder(data)
    vectors = read_vectors(data, dataset) if encoder == "vectors" else None
    how = {"novel": novel, "test": test, "by": by, "seed": config.seed}
    dataset, made_split = with_split(dataset, how)
    print_status(repr(dataset))
    if keep_items is not None:
        model = _retrain(keep_items, dataset, config, (data, out), base, cache, overwrite, made_split)
        if model is not None:
            seconds = time.perf_counter() - started
            print_status(f"{out}: written after {seconds:.1f} s")
            if as_json:
                print_json({**model.about, "model": str(out), "seconds": seconds})
        return
    irene = Irene(config, encoder=vectors, cache=EmbeddingCache(cache))
    if _is_trained(out, irene.inputs(dataset), overwrite):
        print_status(f"{out}: already trained from these inputs; to train it again, delete the folder first")
        return
    out = claim_folder(out, MODEL_KIND, overwrite=overwrite, sources=[data, *_weights(config.base)])
    _plan(dataset, config, None if vectors is None else vectors.dim, ignore_memory)
    stages = out.with_name(f"{out.name}.stages")
    model = irene.fit(dataset, stages=stages, report=print_status)
    model.about["seconds"] = {**irene.seconds, "fit": sum(irene.seconds.values())}
    if made_split is not None:
        model.about["split"] = made_split
    model.save(out, overwrite=overwrite)
    discard_results(stages, STAGE_KIND)
    seconds = time.perf_counter() - started
    print_status(f"{out}: written after {seconds:.1f} s")
    if as_json:
        print_json({**model.about, "model": str(out), "seconds": seconds, "stages": irene.seconds})
    else:
        _print_exposure_curve(model.about)


def _plan(dataset: Dataset, config: IreneConfig, dim: int | None, ignore_memory: bool) -> None:
    """Print what the training needs, and raise if this machine has too little memory for it.

    Args:
        dataset: What is trained on.
        config: How it is trained.
        dim: Of the user's own vectors; None for the pretrained encoder's.
        ignore_memory: Whether to go on all the same.
    """
    from metaxc.encoders import Pretrained
    from metaxc.scale import Workload, check_memory, machine_memory, make_plan

    plan = make_plan(Workload.of(dataset, dim or Pretrained(config.base).dim), config)
    available = machine_memory()
    print_status(f"estimate: {plan}; this machine has {available / 1e9:.1f} GB of memory")
    if not ignore_memory:
        check_memory(plan, available)


def _retrain(
    keep_items: Path,
    dataset: Dataset,
    config: IreneConfig,
    folders: tuple[Path, Path],
    base: str | None,
    cache: Path | None,
    overwrite: bool,
    made_split: dict[str, Any] | None,
) -> Emmett | None:
    """Train the query side of a model and write the result; None where that was done before."""
    from metaxc.emmett.model_folder import KIND as MODEL_KIND
    from metaxc.irene.query_retraining import retrain_queries, retraining_inputs
    from metaxc.output_claims import claim_folder

    data, out = folders
    kept = load_model(keep_items, base, cache)
    if _is_trained(out, retraining_inputs(kept, dataset, config), overwrite):
        print_status(f"{out}: already trained from these inputs; to train it again, delete the folder first")
        return None
    out = claim_folder(out, MODEL_KIND, overwrite=overwrite, sources=[data, keep_items])
    started = time.perf_counter()
    model = retrain_queries(kept, dataset, config, report=print_status)
    model.about["seconds"] = {"fit": time.perf_counter() - started}
    if made_split is not None:
        model.about["split"] = made_split
    model.save(out, overwrite=overwrite)
    return model


def _check_query_side(given: dict[str, Any], size: str, paper: bool) -> None:
    """Raise where an option decides something of the items, which --keep-items leaves as they are."""
    ignored = [f"--size {size}"] * (size != "default") + ["--paper"] * paper
    ignored += [f"--{name.replace('_', '-')}" for name in given if name not in QUERY_SIDE]
    if ignored:
        raise ConfigError(
            "--keep-items keeps the item side of a model, so what decides it cannot be given",
            got=", ".join(ignored),
            expected="with --keep-items only --epochs, --expansion-queries, --exposure, --seed and --base",
            fix="leave these options out, or leave --keep-items out and train the whole model",
        )


def _print_exposure_curve(about: dict[str, Any]) -> None:
    """What exposures near the model's own cost and bring, and how to change it."""
    from metaxc.evaluation.exposure import (
        exposure_curve,
        format_exposure,
        points_around_chosen,
        why_no_curve,
    )

    points = points_around_chosen(exposure_curve(about))
    if not points:
        print_status(why_no_curve(about))
        return
    mark = "chosen" if about["config"]["exposure"] is None else "given"
    rows = [
        [
            format_exposure(point["exposure"]),
            *(f"{point[metric]:.1f}" for metric in CURVE_METRICS),
            mark if point["chosen"] else "",
        ]
        for point in points
    ]
    title = "Exposure of novel items: what it costs and brings on pseudo-novel items; percent"
    print_table(title, ["exposure", *CURVE_METRICS, ""], rows, right_from=0)
    print(
        "The exposure is added to the score of an item without clicks. To change it, train with --exposure, or with "
        "--exposure-cost to give up more or less accuracy for novel items; a search takes exposure= without training."
    )


def _encoder(encoder: str | None, adapter: bool, base: str | None) -> tuple[str | None, str | None]:
    """The kind of encoder and its base; an encoder that is given as a folder is a base."""
    if encoder is None or encoder in KINDS:
        return "pretrained" if encoder == "vectors" else encoder, base
    if base is not None:
        raise ConfigError(
            "Two base encoders", got=f"--encoder {encoder} and --base {base}", expected="one of the two"
        )
    if not Path(encoder).is_dir():
        raise ConfigError(
            "Unknown encoder", got=encoder, expected=f"{', '.join(KINDS)}, or a sentence-transformers folder"
        )
    return "adapted" if adapter else "pretrained", encoder


def _config(given: dict[str, Any], size: str, paper: bool) -> IreneConfig:
    """The configuration: the options that were given, over those of the size or of the paper."""
    from pydantic import ValidationError

    from metaxc.irene import SIZES, Irene, IreneConfig
    from metaxc.irene.config import merge_settings

    if size not in SIZES:
        raise ConfigError("Unknown size", got=size, expected=" or ".join(SIZES))
    start: dict[str, Any] = SIZES[size]
    if paper:
        start = Irene.paper().config.model_dump()
        _check_paper(given, size, start)
        opened = {
            path.split(".")[0] for path in PAPER_LEAVES_OPEN
        }  # what else was given says what the paper says
        given = {
            name: value for name, value in given.items() if name in opened or _keeps_encoder(name, value)
        }
    try:
        return IreneConfig.model_validate(merge_settings(start, given))
    except ValidationError as error:
        raise invalid_option(error) from error


def _check_paper(given: dict[str, Any], size: str, paper: dict[str, Any]) -> None:
    """Raise where an option says something else than the paper, which --paper would have to ignore."""
    ignored = [f"--size {size}"] if size != "default" else []
    for name, value in given.items():
        if name in PAPER_LEAVES_OPEN or _keeps_encoder(name, value):
            continue
        nested = isinstance(value, dict) and isinstance(paper[name], dict)
        for option, one in value.items() if nested else [(name, value)]:
            decided = paper[name][option] if nested else _paper_value(paper, name)
            if decided != one and f"{name}.{option}" not in PAPER_LEAVES_OPEN:
                given_as = one["steps"] if name == "fine_tuning" else one
                ignored.append(f"--{option.replace('_', '-')} {given_as}")
    if ignored:
        raise ConfigError(
            "--paper decides this, so another value cannot be given with it",
            got=", ".join(ignored),
            expected=f"with --paper only {PAPER_OPTIONS}",
            fix="leave --paper out, or these options; with --encoder FOLDER, give --no-adapter too",
        )


def _keeps_encoder(name: str, value: Any) -> bool:
    """Whether an option leaves the encoder as it is, which the paper's system can be trained on too."""
    return name == "fine_tuning" and value is None


def _paper_value(paper: dict[str, Any], name: str) -> Any:
    """What --paper takes for a field, as an option would give it."""
    return "one_vs_all" if name == "classifiers" else paper[name]


def _is_trained(out: Path, inputs: str, overwrite: bool) -> bool:
    """Whether OUT already is this very model; another one there is an error unless it may be replaced."""
    from metaxc.emmett import read_about

    try:
        trained = read_about(out).get("inputs") == inputs
    except MetaxcError:
        return False
    if not trained and not overwrite:
        raise ConfigError(
            "The output folder contains a model that was trained from other inputs",
            got=out,
            expected="a new folder",
            fix="give another --out, or --overwrite",
        )
    return trained


def _weights(base: str) -> list[Path]:
    """The folder of a base encoder that is given as a folder."""
    return [Path(base)] if Path(base).is_dir() else []
