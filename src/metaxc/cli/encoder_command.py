"""`metaxc encoder`: train an encoder on clicks, or on texts alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from metaxc.cli.shared import (
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
from metaxc.errors import ConfigError

app = typer.Typer(
    help="Train an encoder of your own: a sentence-transformers folder that any tool loads.",
    no_args_is_help=True,
)


@app.callback()
def _verbs() -> None:
    """Keeps `train` a verb of its own."""


@app.command("train")
def train_encoder(
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Folder to write, as sentence-transformers does.")],
    recipe: Annotated[
        str,
        typer.Option(
            help="dpr: in-batch negatives, the cheapest. ance: and what the encoder itself ranks too high. ngame: near "
            "queries share a batch. maclr: from texts alone, no clicks."
        ),
    ] = "dpr",
    base: Annotated[
        str | None, typer.Option(help="Weights to start from: a sentence-transformers folder.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of training; a few hundred are minutes of a CPU.")] = 300,
    batch: Annotated[int, typer.Option(help="Pairs per step.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Adam's.")] = 1e-4,
    max_tokens: Annotated[int, typer.Option(help="Longer texts are cut, in training and after it.")] = 64,
    negatives: Annotated[int, typer.Option(help="Hard negatives per query, of ance and dpr --bm25.")] = 1,
    bm25: Annotated[bool, typer.Option("--bm25", help="dpr: with hard negatives by BM25.")] = False,
    finetune: Annotated[
        bool, typer.Option("--finetune", help="maclr: spend the second half of the steps on clicks.")
    ] = False,
    holdout: Annotated[
        float,
        typer.Option(help="Share of observed items held out to judge by; 0 gives no early stop."),
    ] = 0.1,
    novel: Annotated[float, typer.Option(help="Share of novel items, when DATA has no novel.txt.")] = 0.1,
    test: Annotated[float, typer.Option(help="Share of test queries, when DATA has no test part.")] = 0.15,
    seed: Seed = 0,
    threads: Threads = 0,
    cache: Cache = None,
    overwrite: Annotated[bool, typer.Option(help="Replace what stands at --out.")] = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on the observed items' clicks; the novel items' clicks are never looked at.

    A part of the observed items is held out: the weights that find them best are kept, and `metaxc train --encoder OUT`
    chooses its constants on them. Killed and started again, it goes on where it was (OUT.checkpoint). On several GPUs:
    torchrun --nproc-per-node 4 -m metaxc encoder train DATA --out OUT.
    """
    from pydantic import ValidationError

    from metaxc.data import read_folder
    from metaxc.encoders import EmbeddingCache
    from metaxc.encoders.pretrained import DEFAULT
    from metaxc.encoders.training.recipes import EncoderTraining
    from metaxc.encoders.training.recipes import train_encoder as run

    set_threads(threads)
    try:
        config = EncoderTraining.model_validate(
            {
                "recipe": recipe,
                "steps": steps,
                "batch": batch,
                "learning_rate": learning_rate,
                "max_tokens": max_tokens,
                "negatives": negatives,
                "bm25": bm25,
                "finetune": finetune,
                "holdout": holdout,
                "seed": seed,
            }
        )
    except ValidationError as error:
        raise invalid_option(error) from error
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise ConfigError(
            "The output folder is there already",
            got=out,
            expected="a new folder",
            fix="give another --out, or --overwrite",
        )
    started, cpu = time.perf_counter(), time.process_time()
    how = {"novel": novel, "test": test, "by": "random", "seed": seed}
    dataset, _ = with_split(read_folder(data), how)
    record = run(dataset, config, out, base=base or DEFAULT, cache=EmbeddingCache(cache), report=print_status)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    for step, found in record.judged:
        print_status(f"step {step}: zero-shot R@10 {found:.1f} on held-out items")
    if as_json:
        print_json({"encoder": str(out), "seconds": seconds, "cpu_seconds": cpu, **record.model_dump()})
        return
    print(f"The encoder is in {out} ({seconds:.0f} s). Next: metaxc train {data} --encoder {out} --out MODEL")
