"""`metaxc encoder`: train an encoder on clicks, or on texts alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from metaxc.cli.config_options import ConfigCommand, config_option, given_options
from metaxc.cli.shared import (
    Cache,
    Data,
    Json,
    Overwrite,
    Threads,
    invalid_option,
    print_json,
    print_status,
    set_threads,
    with_split,
)
from metaxc.encoders import DEFAULT

TRAINING = "metaxc.encoders.training:EncoderTraining"

app = typer.Typer(
    help="Train an encoder of your own: a sentence-transformers folder that any tool can load.",
    no_args_is_help=True,
)


@app.callback()
def _encoder() -> None:
    """Makes `train` a subcommand, although it is the only one."""


@app.command("train", cls=ConfigCommand)
def train_encoder(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="The sentence-transformers folder to write.")],
    recipe: Annotated[str | None, config_option(f"{TRAINING}.recipe")] = None,
    steps: Annotated[int | None, config_option(f"{TRAINING}.steps")] = None,
    batch: Annotated[int | None, config_option(f"{TRAINING}.batch")] = None,
    learning_rate: Annotated[float | None, config_option(f"{TRAINING}.learning_rate")] = None,
    max_tokens: Annotated[int | None, config_option(f"{TRAINING}.max_tokens")] = None,
    negatives: Annotated[int | None, config_option(f"{TRAINING}.options.negatives")] = None,
    bm25: Annotated[bool | None, config_option(f"{TRAINING}.options.bm25", "--bm25")] = None,
    finetune: Annotated[bool | None, config_option(f"{TRAINING}.options.finetune", "--finetune")] = None,
    holdout: Annotated[float | None, config_option(f"{TRAINING}.holdout")] = None,
    seed: Annotated[int | None, config_option(f"{TRAINING}.seed")] = None,
    base: Annotated[
        str, typer.Option(help="The weights to start from: a sentence-transformers folder.")
    ] = DEFAULT,
    novel: Annotated[float, typer.Option(help="Share of novel items, when DATA has no novel.txt.")] = 0.1,
    test: Annotated[float, typer.Option(help="Share of test queries, when DATA has no test part.")] = 0.15,
    threads: Threads = 0,
    cache: Cache = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on the observed items' clicks; the novel items' clicks are never used.

    A part of the observed items is held out: the weights that find them best are kept, and `metaxc train --encoder OUT`
    chooses its constants on them. A run that was killed resumes when it is started again (OUT.checkpoint). On several
    GPUs: torchrun --nproc-per-node 4 -m metaxc encoder train DATA --out OUT.
    """
    set_threads(threads)
    from pydantic import ValidationError

    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache
    from metaxc.encoders.training import EncoderTraining, recipes
    from metaxc.encoders.training.encoder_record import ENCODER_KIND
    from metaxc.output_claims import claim_folder

    given = given_options(
        recipe=recipe,
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        max_tokens=max_tokens,
        options__negatives=negatives,
        options__bm25=bm25,
        options__finetune=finetune,
        holdout=holdout,
        seed=seed,
    )
    try:
        config = EncoderTraining.model_validate(given)
    except ValidationError as error:
        raise invalid_option(error) from error

    weights = [Path(base)] if Path(base).is_dir() else []
    out = claim_folder(out, ENCODER_KIND, overwrite=overwrite, sources=[data, *weights])
    started, cpu = time.perf_counter(), time.process_time()
    dataset, _ = with_split(
        read_folder(data), {"novel": novel, "test": test, "by": "random", "seed": config.seed}
    )
    record = recipes.train_encoder(
        dataset,
        config,
        out,
        base=base,
        cache=EmbeddingCache(cache),
        overwrite=overwrite,
        report=print_status,
    )
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    for step, score in record.validation:
        print_status(f"step {step}: zero-shot R@10 {score:.1f} on held-out items")
    if as_json:
        print_json({"encoder": str(out), "seconds": seconds, "cpu_seconds": cpu, **record.model_dump()})
        return
    print(f"The encoder is in {out} ({seconds:.0f} s). Next: metaxc train {data} --encoder {out} --out MODEL")
