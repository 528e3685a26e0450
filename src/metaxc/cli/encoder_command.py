"""`metaxc encoder`: train an encoder on clicks, or on texts alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from metaxc.cli.config_options import ConfigOption, with_config_options
from metaxc.cli.shared import (
    Cache,
    Data,
    Json,
    Threads,
    invalid_option,
    print_json,
    print_status,
    set_threads,
    with_split,
)
from metaxc.encoders import DEFAULT
from metaxc.encoders.training import EncoderTraining
from metaxc.errors import ConfigError

app = typer.Typer(
    help="Train an encoder of your own: a sentence-transformers folder that any tool can load.",
    no_args_is_help=True,
)


@app.callback()
def _encoder() -> None:
    """Makes `train` a subcommand, although it is the only one."""


@app.command("train")
@with_config_options(
    EncoderTraining,
    ConfigOption("recipe"),
    ConfigOption("steps"),
    ConfigOption("batch"),
    ConfigOption("learning_rate"),
    ConfigOption("max_tokens"),
    ConfigOption("options.negatives"),
    ConfigOption("options.bm25", ("--bm25",)),
    ConfigOption("options.finetune", ("--finetune",)),
    ConfigOption("holdout"),
    ConfigOption("seed"),
)
def train_encoder(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="The sentence-transformers folder to write.")],
    given: dict[str, Any],
    base: Annotated[
        str, typer.Option(help="The weights to start from: a sentence-transformers folder.")
    ] = DEFAULT,
    novel: Annotated[float, typer.Option(help="Share of novel items, when DATA has no novel.txt.")] = 0.1,
    test: Annotated[float, typer.Option(help="Share of test queries, when DATA has no test part.")] = 0.15,
    threads: Threads = 0,
    cache: Cache = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the folder at --out.")] = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on the observed items' clicks; the novel items' clicks are never used.

    A part of the observed items is held out: the weights that find them best are kept, and `metaxc train --encoder OUT`
    chooses its constants on them. A run that was killed resumes when it is started again (OUT.checkpoint). On several
    GPUs: torchrun --nproc-per-node 4 -m metaxc encoder train DATA --out OUT.
    """
    try:
        config = EncoderTraining.model_validate(given)
    except ValidationError as error:
        raise invalid_option(error) from error
    set_threads(threads)
    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache
    from metaxc.encoders.training import recipes

    if out.exists() and any(out.iterdir()) and not overwrite:
        raise ConfigError(
            "The output folder already exists",
            got=out,
            expected="a new folder",
            fix="give another --out, or --overwrite",
        )
    started, cpu = time.perf_counter(), time.process_time()
    dataset, _ = with_split(
        read_folder(data), {"novel": novel, "test": test, "by": "random", "seed": config.seed}
    )
    record = recipes.train_encoder(
        dataset, config, out, base=base, cache=EmbeddingCache(cache), report=print_status
    )
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    for step, score in record.validation:
        print_status(f"step {step}: zero-shot R@10 {score:.1f} on held-out items")
    if as_json:
        print_json({"encoder": str(out), "seconds": seconds, "cpu_seconds": cpu, **record.model_dump()})
        return
    print(f"The encoder is in {out} ({seconds:.0f} s). Next: metaxc train {data} --encoder {out} --out MODEL")
