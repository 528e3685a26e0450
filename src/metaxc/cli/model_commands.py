"""`metaxc search`, `explain` and `represent`: what a trained model answers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from metaxc.cli.represent_options import (
    Address,
    Engine,
    Source,
    check_source_options,
    represent_source,
)
from metaxc.cli.shared import (
    Base,
    Cache,
    Device,
    Exposure,
    Json,
    Model,
    Overwrite,
    Threads,
    check_exposure,
    load_model,
    print_catalog_hits,
    print_json,
    print_status,
    print_table,
    set_threads,
)
from metaxc.cli.vector_options import Vectors, read_queries
from metaxc.errors import ConfigError


def search(
    model: Model,
    queries: Annotated[
        list[str] | None, typer.Argument(help="One or more queries.", metavar="QUERY...")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Queries, one per line; - is stdin.")] = None,
    vectors: Vectors = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items per query.")] = 10,
    novel_only: Annotated[bool, typer.Option("--novel", help="Rank novel items only.")] = False,
    exposure: Exposure = None,
    via: Annotated[
        str | None,
        typer.Option(
            "--via",
            metavar="URL",
            help="Search the items of a live catalog in the vector store that metaxc sync --to URL has filled.",
        ),
    ] = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Rank the model's items for each query; novel items are marked. --via URL ranks those of a vector store.

    --vectors FILE searches with embeddings of queries, which the model expands as it expands texts.
    """
    set_threads(threads)
    asked, exposure = read_queries(file, queries, vectors), check_exposure(exposure)
    if via is not None and novel_only:
        raise ConfigError(
            "--novel ranks the model's own items",
            got="--novel with --via",
            expected="one of them",
            fix="leave --novel out; a larger --exposure shows new items earlier",
        )
    trained = load_model(model, base, cache)
    if via is not None:
        from metaxc.catalog.sync import open_target, search_target

        with open_target(via) as target:
            answered = search_target(target, trained, asked.given, k, exposure, asked.names)
            print_catalog_hits(asked.names, answered, as_json)
        return
    found = trained.search(asked.given, k, among=trained.novel if novel_only else None, exposure=exposure)
    if as_json:
        answers = [
            {"query": query, "hits": [asdict(hit) for hit in hits]}
            for query, hits in zip(asked.names, found, strict=True)
        ]
        print_json({"answers": answers})
        return
    for query, hits in zip(asked.names, found, strict=True):
        rows = [[f"{hit.score:.3f}", "novel" if hit.novel else "", hit.id, hit.text] for hit in hits]
        print_table(f"query: {query}", ["score", "", "id", "item"], rows, right_from=9)


def explain(
    model: Model,
    text: Annotated[
        str | None, typer.Argument(help="The text of a new item, or the id of one of the model's items.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", help="The id of one of the model's items; an unknown one is an error."),
    ] = None,
    revealed: Annotated[
        list[str] | None,
        typer.Option("--revealed", help="A query known to have clicked the item; can be repeated."),
    ] = None,
    base: Base = None,
    threads: Threads = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Show which observed items' classifiers make an item's meta-classifier, and how much each counts.

    The item's first clicks (--revealed "a query" --revealed "another") vote for its neighbours and count as a small
    classifier of its own, without training.
    """
    set_threads(threads)
    trained = load_model(model, base, cache)
    if text is not None and id is None and text in trained.items.row_of:
        text, id = None, text
    explanation = trained.explain(text, revealed or None, id=id)
    if id is None:
        print_status(f"no item of the model has the id {text!r}: explained as the text of a new item")
    if as_json:
        print_json({"id": id, **asdict(explanation)})
        return
    heads = ["similarity", "weight", "share", "id", "neighbour", *(["brought by"] if revealed else [])]
    rows = [
        [f"{n.similarity:.3f}", f"{n.weight:.3f}", f"{n.share:.1f} %", n.id, n.text]
        + ([n.voter or "its text"] if revealed else [])
        for n in explanation.neighbours
    ]
    title = f"new item: {explanation.text}" if id is None else f"item {id}: {explanation.text}"
    print_table(title, heads, rows, 9)
    print(", ".join(f"{name} {share:.1f} %" for name, share in explanation.shares.items()))
    skipped = (trained.about.get("pseudo_novel") or {}).get("skipped")
    if not skipped and not any(neighbour.weight for neighbour in explanation.neighbours):
        print("The neighbours were given no weight: on pseudo-novel items the text alone ranks as well.")


def represent(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts of new items.", metavar="TEXT...")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Items, one per line; - is stdin.")] = None,
    vectors: Vectors = None,
    source: Source = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="A .npy file, or with --in a folder or a Lance dataset; without it, JSON lines on stdout.",
        ),
    ] = None,
    engine: Engine = None,
    address: Address = None,
    queries: Annotated[
        bool, typer.Option("--queries", help="The texts are queries: write query vectors.")
    ] = False,
    exposure: Exposure = None,
    base: Base = None,
    threads: Annotated[
        int,
        typer.Option("--threads", min=0, help="CPU threads; 0 takes all cores, on Ray 1 for each worker."),
    ] = 0,
    device: Device = "auto",
    cache: Cache = None,
    overwrite: Overwrite = False,
) -> None:
    """Compute the meta-classifiers of new items, or the vectors of queries; a score is their inner product.

    The last number of an item's vector is its share of the exposure, that of a query's vector the exposure of novel
    items. --vectors FILE gives embeddings of items, or with --queries of queries, in place of texts.

    --in PARQUET --out FOLDER writes a file for each row group of Parquet files, with the column vector added; the same
    command again resumes. --in items.lance --out vectors.lance does it for Lance datasets, by fragment. --engine ray
    spreads the work over the machines of a Ray cluster.
    """
    import numpy as np

    from metaxc.artifacts import atomic_file
    from metaxc.output_claims import claim_file

    set_threads(threads)
    from metaxc.devices import set_device

    set_device(device)
    if exposure is not None and not queries:
        raise ConfigError(
            "--exposure belongs to queries",
            got=f"--exposure {exposure:g} for items",
            expected="--exposure together with --queries",
            fix="add --queries, or leave --exposure out: an item's share of the exposure is in its vector",
        )
    has_texts = bool(texts) or file is not None or vectors is not None
    check_source_options(source, out, engine, address, has_texts)
    if source is not None and out is not None:
        from metaxc.scale import RepresentBatch

        exposure = check_exposure(exposure)
        represent_source(
            RepresentBatch(model, queries=queries, exposure=exposure, base=base, cache=cache),
            source,
            out,
            engine=engine,
            address=address,
            threads=threads,
            overwrite=overwrite,
        )
        return
    if out is not None:
        out = out if out.suffix == ".npy" else out.with_name(f"{out.name}.npy")
        out = claim_file(out, np.lib.format.MAGIC_PREFIX, overwrite=overwrite, sources=[model])
    asked, exposure = read_queries(file, texts, vectors, "items"), check_exposure(exposure)
    trained = load_model(model, base, cache)
    found = trained.encode_queries(asked.given, exposure) if queries else trained.represent(asked.given)
    if out is not None:
        with atomic_file(out) as new:
            np.save(new, found)
        print_status(f"{out}: {found.shape[0]:,} × {found.shape[1]} float32")
        return
    for text, vector in zip(asked.names, found, strict=True):
        print(json.dumps({"text": text, "vector": [round(float(x), 7) for x in vector]}, ensure_ascii=False))
