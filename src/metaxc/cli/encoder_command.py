"""`metaxc encoder`: train an encoder on clicks or on texts alone, and export the query side of a model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from metaxc.cli.config_options import ConfigCommand, config_option, given_options
from metaxc.cli.shared import (
    Base,
    Cache,
    Data,
    Device,
    Exposure,
    Json,
    Model,
    Overwrite,
    Threads,
    check_exposure,
    invalid_option,
    load_model,
    print_json,
    print_status,
    set_threads,
    with_split,
)
from metaxc.encoders import DEFAULT

TRAINING = "metaxc.encoders.training:EncoderTraining"
SAME_COSINE = 0.9999
"""Cosine similarity from which vectors are the same but for rounding."""

app = typer.Typer(
    help="Train an encoder of your own, or export the query side of a model: sentence-transformers folders that any "
    "tool can load.",
    no_args_is_help=True,
)


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
    device: Device = "auto",
    cache: Cache = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train an encoder on the observed items' clicks; the novel items' clicks are never used.

    A part of the observed items is held out: the weights that find them best are kept, and `metaxc train --encoder OUT`
    chooses its constants on them. A run that was killed resumes when it is started again (OUT.checkpoint). On several
    GPUs: torchrun --nproc-per-node 4 -m metaxc encoder train DATA --out OUT; on several machines: docs/encoders.md.
    """
    set_threads(threads)
    from pydantic import ValidationError

    from metaxc.data import read_folder
    from metaxc.devices import set_device
    from metaxc.encoders import EmbeddingCache
    from metaxc.encoders.training import EncoderTraining, recipes
    from metaxc.encoders.training.encoder_record import ENCODER_KIND
    from metaxc.output_claims import claim_folder

    set_device(device)
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
        print_status(f"step {step}: mean of zero-shot P@1 and R@10 {score:.1f} on held-out items")
    if as_json:
        print_json({"encoder": str(out), "seconds": seconds, "cpu_seconds": cpu, **record.model_dump()})
        return
    print(f"The encoder is in {out} ({seconds:.0f} s). Next: metaxc train {data} --encoder {out} --out MODEL")


@app.command("export")
def export_encoder(
    model: Model,
    out: Annotated[Path, typer.Option("--out", help="The sentence-transformers folder to write.")],
    exposure: Exposure = None,
    expansion: Annotated[
        bool,
        typer.Option(
            "--expansion/--no-expansion",
            help="Include the model's query expansion, and an exposure that follows the query, where it has them; "
            "without them the vectors are not quite the model's. With them, and always where the adapter knows bigrams "
            "(the default), loading the folder needs the package metaxc and trust_remote_code=True.",
        ),
    ] = True,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write the query side of a model as a sentence-transformers folder.

    SentenceTransformer(OUT).encode_query(texts) gives what `metaxc represent MODEL --queries` gives: vectors that end
    with the exposure, whose inner product with the vectors of `metaxc sync` is the score. encode_document is an error:
    vectors of items come from a catalog. The folder is compared with the model before it is written.
    """
    set_threads(threads)
    from metaxc.emmett.query_tower_export import TOWER_KIND, export_query_tower
    from metaxc.output_claims import claim_folder

    weights = [Path(base)] if base is not None and Path(base).is_dir() else []
    out = claim_folder(out, TOWER_KIND, overwrite=overwrite, sources=[model, *weights])
    exposure = check_exposure(exposure)
    record = export_query_tower(
        load_model(model, base, cache), out, exposure=exposure, expansion=expansion, overwrite=overwrite
    )
    if as_json:
        print_json({"encoder": str(out), **record.model_dump()})
        return
    option = ", trust_remote_code=True" if record.remote_code else ""
    print(f'The query tower is in {out}: SentenceTransformer("{out}"{option}).encode_query(texts)')
    print(f"largest difference from the model's vectors, computed by torch: {record.largest_difference:.1g}")
    if record.remote_code:
        print("Some of its modules are of the package metaxc, which has to be installed there.")
    if record.expansion == "left out":
        print("The model's query expansion was left out: rankings differ somewhat from the model's.")
    if record.backend_cosine < SAME_COSINE:
        print(
            f"The model computes with a quantized encoder: cosine {record.backend_cosine:.3f} or more with its vectors"
        )
