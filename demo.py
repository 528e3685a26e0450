"""The demo: real data from start to end. `make demo` runs it on books, `make demo DATA=icd10cm` on clinical codes.

books: the query is a book, the items are books that the same people have read. A tenth of the books is novel: the model
sees none of their clicks, and has to find them by their titles. What is shown is chosen by rule from the test part.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from metaxc import Catalog, Dataset, EmbeddingCache, Emmett, evaluate, read_folder
from metaxc.cli.shared import print_table
from metaxc.encoders import frozen_base
from metaxc.evaluation import BARE_ENCODER, encoder_baselines, encoder_search
from metaxc.metrics import hits as is_relevant

SOURCES = ("books", "icd10cm")
CANDIDATES = 20
"""Novel items with the most test clicks; the one whose neighbours have the largest part is explained."""
SHOWN = 6
"""Test queries that are shown around the first click."""


def metaxc(*arguments: str | Path) -> None:
    """Show a command and run it."""
    words = [str(argument) for argument in arguments]
    print("\n$ metaxc " + " ".join(words), flush=True)
    done = subprocess.run(
        [sys.executable, "-c", "from metaxc.cli.main import run; run()", *words], check=False
    )
    if done.returncode:
        sys.exit(done.returncode)


def print_accuracy(model: Emmett, dataset: Dataset, cache: EmbeddingCache) -> None:
    """The bare encoder, the same fine-tuned, and adapted to the clicks, and metaxc."""
    bare = frozen_base(model.encoder, model.about["config"]["base"], cache, dataset.items.texts)
    encoders = {BARE_ENCODER: bare, **dict(reversed(encoder_baselines(model.encoder).items()))}
    found = {
        name: evaluate(encoder_search(one, dataset), dataset, intervals=False)
        for name, one in encoders.items()
    }
    found["metaxc"] = model.evaluate(dataset, intervals=False)
    rows = []
    for name, one in found.items():
        novel = one.by_kind.kinds["novel"]["R@10"].value
        values = [
            one[setting][metric] for setting in ("zero_shot", "generalized") for metric in ("P@1", "R@10")
        ]
        rows.append([name, *(f"{value:.1f}" for value in (*values, novel))])
    columns = ["percent", "zero-shot P@1", "R@10", "all items P@1", "R@10", "novel in the mix R@10"]
    print_table("Accuracy on test queries that no system has seen", columns, rows)
    print(
        "Zero-shot ranks the novel items alone. The other columns rank all items together; the last one is the share\n"
        "of relevant novel items among the first ten of all items, where they compete with clicked ones."
    )


def print_answers(model: Emmett, dataset: Dataset) -> None:
    """The answers to three test queries: those with the most relevant novel items among five, not two with one first
    answer."""
    queries, clicks = dataset.test.queries.texts, dataset.test.clicks
    found, scores = model.search_rows(queries, k=5)
    novel, clicked = dataset.novel_mask, is_relevant(found, clicks)
    order = np.argsort(-(clicked & novel[found]).sum(axis=1), kind="stable").tolist()
    chosen = {found[row, 0]: row for row in reversed(order)}  # the best query of each first answer
    chosen = sorted(chosen.values(), key=order.index)[:3]
    print(
        "\nThree test queries, chosen because they find novel items; the table says how often that happens."
    )
    for row in chosen:
        rows = [
            [
                f"{score:.3f}",
                "novel" if novel[item] else "",
                "clicked" if right else "",
                dataset.items.texts[item],
            ]
            for item, score, right in zip(found[row], scores[row], clicked[row], strict=True)
        ]
        print_table(f"query: {queries[row]}", ["score", "", "in the test", "answer"], rows, right_from=9)


def choose_novel(model: Emmett, dataset: Dataset) -> int:
    """The row of a novel item: of those with the most test clicks, the one whose neighbours have the largest part."""
    clicks = np.bincount(dataset.test.clicks.indices, minlength=len(dataset.items)) * dataset.novel_mask
    known = np.argsort(-clicks, kind="stable")[: min(CANDIDATES, int((clicks > 0).sum()))].tolist()
    return max(known, key=lambda row: model.explain(dataset.items.texts[row]).neighbour_share)


def print_first_click(model: Emmett, dataset: Dataset, row: int) -> None:
    """Explain a novel item, click it once in a live catalog, and show what that has moved."""
    id, name = dataset.items.ids[row], dataset.items.texts[row]
    rows = [
        [one.text, f"{one.similarity:.3f}", f"{one.weight:.3f}", f"{one.share:.1f} %"]
        for one in model.explain(name).neighbours
    ]
    print_table(f"{name} is novel: it is made of", ["classifier of", "similarity", "weight", "share"], rows)
    queries = [
        dataset.test.queries.texts[one] for one in np.flatnonzero(dataset.test.clicks[:, [row]].toarray())
    ]
    with tempfile.TemporaryDirectory() as folder, Catalog.create(Path(folder) / "catalog", model) as catalog:

        def look() -> tuple[list[tuple[int, float]], str]:
            """Its place and score for each query, and what it is made of."""
            found = catalog.search(queries, k=len(catalog))
            places = [next(p for p, hit in enumerate(hits, 1) if hit.id == id) for hits in found]
            seen = catalog.explain(id)
            shares = ", ".join(f"{part} {share:.1f} %" for part, share in seen.explanation.shares.items())
            scores = [hits[place - 1].score for hits, place in zip(found, places, strict=True)]
            return list(zip(places, scores, strict=True)), f"{seen.item.state}: {shares}"

        before, made_before = look()
        order = sorted(range(len(queries)), key=lambda number: before[number][0])
        unseen = [number for number in order if before[number][0] > 10]
        clicked = unseen[0] if unseen else order[-1]  # where the click says something new
        catalog.click(id, queries[clicked])
        after, made_after = look()
    rows = [
        [
            queries[number],
            *(f"{place:,} ({score:.3f})" for place, score in (before[number], after[number])),
            "the click" if number == clicked else "",
        ]
        for number in [clicked, *(number for number in order if number != clicked)][:SHOWN]
    ]
    title = f"One click, without training: place (score) of {name} for the test queries that lead to it"
    print_table(title, ["query", "before", "after", ""], rows)
    print(f"before  {made_before}\nafter   {made_after}")


def show(model: Emmett, dataset: Dataset, cache: EmbeddingCache) -> None:
    """The table, three queries, a novel item and its first click."""
    print_accuracy(model, dataset, cache)
    print_answers(model, dataset)
    print_first_click(model, dataset, choose_novel(model, dataset))


def main() -> None:
    """Data and training by the command line, and what the model does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", choices=SOURCES, default=SOURCES[0])
    source = parser.parse_args().data
    started = time.perf_counter()
    folder = Path("demo" if source == SOURCES[0] else f"demo-{source}")
    data, trained, cache = folder / "data", folder / "model", folder / "cache"
    metaxc("data", "get", source, data, "--overwrite")
    metaxc("train", data, "--out", trained, "--cache", cache, "--overwrite")
    kept = EmbeddingCache(cache)
    show(Emmett.load(trained, cache=kept), read_folder(data), kept)
    print(f"\nThe whole took {time.perf_counter() - started:.0f} seconds. To see it live:")
    print(f"{Path(sys.executable).parent / 'metaxc'} serve {trained} --data {data}")


if __name__ == "__main__":
    main()
