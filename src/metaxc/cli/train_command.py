"""`metaxc train`: from a click log to a model folder."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from metaxc.cli.shared import (
    Backend,
    Cache,
    Data,
    Json,
    Seed,
    Threads,
    invalid_option,
    print_json,
    print_status,
    set_threads,
    with_split,
)
from metaxc.errors import ConfigError, MetaxcError

KINDS = ("adapted", "static", "pretrained", "vectors")


def train(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Model folder to write.")],
    novel: Annotated[float, typer.Option(help="Share of novel items, when DATA has no novel.txt.")] = 0.1,
    test: Annotated[float, typer.Option(help="Share of test queries, when DATA has no test part.")] = 0.15,
    by: Annotated[str, typer.Option(help="Choose both by: random, or time.")] = "random",
    size: Annotated[
        str, typer.Option(help="default; or fast: no transformer at all, a little less accurate.")
    ] = "default",
    encoder: Annotated[
        str | None,
        typer.Option(
            help="adapted, static, pretrained; vectors (from DATA's vectors.*.npy); or the folder of a trained "
            "encoder (metaxc encoder train, or any sentence-transformers folder).  [of the size]"
        ),
    ] = None,
    adapter: Annotated[
        bool, typer.Option(help="Put the click-trained adapter on top of an encoder given as a folder.")
    ] = True,
    base: Annotated[
        str | None, typer.Option(help="Pretrained weights: a sentence-transformers folder.")
    ] = None,
    backend: Backend = "auto",
    classifiers: Annotated[str, typer.Option(help="ridge, centroid or one_vs_all.")] = "ridge",
    generator: Annotated[
        str, typer.Option(help="auto, combine, gated, transformer, post_norm, sum or weighted_sum.")
    ] = "combine",
    neighbours: Annotated[
        int | None, typer.Option("--neighbours", "-K", help="K; chosen on pseudo-novel items by default.")
    ] = None,
    depth: Annotated[int, typer.Option(help="Layers of a transformer generator.")] = 1,
    epochs: Annotated[int, typer.Option(help="Passes over the queries to adapt the encoder.")] = 5,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Folds of pseudo-novel items to choose the constants by; 0 takes defaults.  [of the size]"
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            help="Training queries that a query may borrow from, at most; 0 for none.  [of the size]"
        ),
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's own choices for all of these.")] = False,
    seed: Seed = 0,
    threads: Threads = 0,
    cache: Cache = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a model trained from other inputs.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model on the observed items' clicks, and take the novel items in.

    Uses DATA's novel.txt and test part if there are any, else makes a split. Killed and started again, it goes on
    where it was (OUT.stages); when done, OUT is a folder that evaluate, search and explain read.
    """
    from pydantic import ValidationError

    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache
    from metaxc.encoders.vectors import read_vectors
    from metaxc.irene import Irene, IreneConfig

    set_threads(threads)
    started = time.perf_counter()
    if encoder is not None and encoder not in KINDS:
        if base is not None:
            raise ConfigError(
                "Two base encoders", got=f"--encoder {encoder} and --base {base}", expected="one of the two"
            )
        if not Path(encoder).is_dir():
            raise ConfigError(
                "Unknown encoder",
                got=encoder,
                expected=f"{', '.join(KINDS)}, or a sentence-transformers folder",
            )
        base, encoder = encoder, "adapted" if adapter else "pretrained"
    given_by_hand = {
        "encoder": "pretrained" if encoder == "vectors" else encoder,
        "folds": folds,
        "memory": memory,
    }
    try:
        config = (
            Irene.paper().config
            if paper
            else IreneConfig.model_validate(
                {
                    **_size(size),
                    "classifiers": classifiers,
                    "generator": generator,
                    "neighbours": neighbours,
                    "depth": depth,
                    "adapter": {"epochs": epochs},
                    **{name: value for name, value in given_by_hand.items() if value is not None},
                }
            )
        )
        changes = {"seed": seed, "backend": backend, **({"base": base} if base else {})}
        config = IreneConfig.model_validate({**config.model_dump(), **changes})
    except ValidationError as error:
        raise invalid_option(error) from error
    given = read_folder(data)
    own = read_vectors(data, given) if encoder == "vectors" else None
    dataset, made_split = with_split(given, {"novel": novel, "test": test, "by": by, "seed": seed})
    print_status(repr(dataset))
    recipe = Irene(config, encoder=own, cache=EmbeddingCache(cache))
    inputs = recipe.inputs(dataset)
    if _done(out, inputs, overwrite):
        print_status(f"{out}: already trained from these inputs")
        return
    stages = out.with_name(f"{out.name}.stages")
    model = recipe.fit(dataset, stages=stages, report=print_status)
    if made_split is not None:
        model.about["split"] = made_split
    model.save(out)
    shutil.rmtree(stages, ignore_errors=True)
    seconds = time.perf_counter() - started
    print_status(f"{out}: written after {seconds:.1f} s")
    if as_json:
        print_json({**model.about, "model": str(out), "seconds": seconds, "stages": recipe.seconds})


def _size(name: str) -> dict[str, Any]:
    from metaxc.irene import SIZES

    if name not in SIZES:
        raise ConfigError("Unknown size", got=name, expected=" or ".join(SIZES))
    return SIZES[name]


def _done(out: Path, inputs: str, overwrite: bool) -> bool:
    """Whether OUT already is this very model; another one there is an error unless it may be replaced."""
    from metaxc.emmett import read_about

    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        about = read_about(out)
    except MetaxcError as error:
        if overwrite:
            return False
        raise ConfigError(
            "The output folder is there and is not a whole model",
            got=out,
            expected="a new folder",
            fix="give another --out, or --overwrite",
        ) from error
    if about.get("inputs") == inputs:
        return True
    if overwrite:
        return False
    raise ConfigError(
        "The output folder holds a model trained from other inputs",
        got=out,
        expected="a new folder",
        fix="give another --out, or --overwrite",
    )
