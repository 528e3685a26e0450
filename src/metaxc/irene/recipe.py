"""The algorithm: an Emmett trained from a click log, in stages that resume.

Where we differ from the paper, and why (docs/decisions.md):
- The encoder is adapted to the clicks by two token-bag towers: most of the accuracy for a minute or two.
- Classifiers are ridge regressions: as good to combine as trained ones, in seconds.
- The generator is the training-free combine, or a transformer that starts at it: learning can only add.
- An observed item trusts its own classifier by the number of its clicks.
- A query borrows from the training queries nearest to it, where that helps (`metaxc.memory`).
- Every constant is chosen on pseudo-novel observed items.

`Irene.paper()` gives the paper's own choices.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Stages, json_digest, load_arrays, load_json, save_arrays, save_json
from metaxc.classifiers import Classifiers
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration, Emmett
from metaxc.encoders import EmbeddingCache, Encoder, Pretrained, load_encoder
from metaxc.encoders.adapted import Adapted
from metaxc.encoders.learning import CachedEncoding, Encoding, FixedEncoding, TowerEncoding
from metaxc.encoders.training.encoder_record import EncoderRecord, known_folds
from metaxc.generators import Episode, GeneratorTraining, load_generator, save_generator
from metaxc.generators.generator_training import TrainedGenerator
from metaxc.irene.choosing import Chosen, choose_constants, in_words
from metaxc.irene.config import IreneConfig
from metaxc.irene.parts import classifiers_of, generator_of, has_bank, informing_of, memory_of, neighbours_of
from metaxc.memory import Recall
from metaxc.tuning import CombineChoice

CURVE_POINTS = 100


class Irene:
    """Trains an `Emmett`.

    Args:
        config: What to train; the defaults when None.
        encoder: An encoder of your own in place of `config.encoder`; used as it is.
        cache: Where the pretrained encoder's embeddings are kept; None keeps none.
        kept: A folder for adapted encoders, so that models that differ in everything else learn each once.

    Example:
        >>> model = Irene().fit(dataset)  # doctest: +SKIP
        >>> model.search(["acute chest pain"], k=5)  # doctest: +SKIP
    """

    def __init__(
        self,
        config: IreneConfig | None = None,
        *,
        encoder: Encoder | None = None,
        cache: EmbeddingCache | None = None,
        kept: Path | None = None,
    ):
        self.config = config or IreneConfig()
        self.encoder = encoder
        self.cache = cache
        self.kept = kept
        self.seconds: dict[str, float] = {}
        self._base: tuple[str, Pretrained] | None = None
        self._notes: list[str] = []

    @classmethod
    def paper(cls, **kwargs: Any) -> Irene:
        """The paper's own choices: frozen base, one-vs-all classifiers, K = 3, one post-norm layer."""
        config = IreneConfig(
            encoder="pretrained",
            classifiers="one_vs_all",
            generator="post_norm",
            neighbours=3,
            memory=0,
            meta_training="observed",
            training=GeneratorTraining(loss="cross_entropy", epochs=20, most_steps=100_000),
        )
        return cls(config, **kwargs)

    def __repr__(self) -> str:
        return f"Irene({self.config!r})"

    def fit(
        self,
        dataset: Dataset,
        *,
        stages: str | Path | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> Emmett:
        """Train on the observed items' clicks; the novel items come in by their texts only.

        Args:
            dataset: With its novel items marked (`metaxc.data.split`, or a novel.txt).
            stages: A folder for what each stage leaves, from which a killed run goes on; temporary when None.
            report: Called with one line per stage.
        """
        if stages is None:
            with tempfile.TemporaryDirectory(prefix="metaxc-") as folder:
                return self._fit(dataset, Stages(Path(folder), report))
        return self._fit(dataset, Stages(Path(stages), report))

    def _fit(self, dataset: Dataset, stages: Stages) -> Emmett:
        observed, query_rows, clicks = training_clicks(dataset)
        stages.report(
            f"learn from {clicks.nnz:,} clicks, {len(query_rows):,} queries, {len(observed):,} observed items"
        )
        inputs = self.inputs(dataset)
        encoding = self._encoding(dataset, stages)
        folder = stages.run(
            "tune",
            {"inputs": inputs},
            lambda out: _save_chosen(
                out,
                choose_constants(
                    self.config,
                    encoding,
                    observed,
                    query_rows,
                    clicks,
                    self._folds(dataset, observed, query_rows, clicks, stages.report),
                ),
            ),
        )
        tuned, chosen = folder, load_json(folder / "constants.json")
        trained = (tuned / "losses.json").exists()  # on the folds; else on the observed items, below
        kind, combine = chosen["generator"], CombineChoice(**chosen["combine"])
        recall = None if chosen["memory"] is None else Recall(**chosen["memory"])
        stages.report(f"chosen on pseudo-novel items: {in_words(chosen)}")

        folder = stages.run(
            "encoder",
            {},
            lambda out: encoding.learn(query_rows, observed, clicks, self.config.seed).save(out),
        )
        encoder = self.encoder or load_encoder(folder, base=self.config.base, cache=self.cache)
        folder = stages.run(
            "embeddings", {}, lambda out: _save_embeddings(out, *encoding.embed(encoder, query_rows))
        )
        queries, items = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("queries", "items"))
        seen = np.ascontiguousarray(items[observed])

        folder = stages.run(
            "classifiers",
            {},
            lambda out: classifiers_of(self.config, queries, clicks).save(out / "classifiers.safetensors"),
        )
        classifiers = Classifiers.load(folder / "classifiers.safetensors")
        folder = stages.run(
            "neighbours",
            {},
            lambda out: _save_neighbours(
                out, *neighbours_of(self.config, "combine" if trained else kind, seen, combine.neighbours)
            ),
        )
        near = load_arrays(folder / "neighbours.safetensors")

        def generator(out: Path) -> None:
            asked = classifiers.queries(queries)
            informing = informing_of(self.config, classifiers, seen, asked, clicks).trusted(
                combine.neighbour_prior
            )
            if trained:
                made = TrainedGenerator(load_generator(tuned), informing, load_json(tuned / "losses.json"))
            else:
                episode = Episode(asked, seen, clicks, informing, near["rows"], near["scores"])
                made = generator_of(self.config, kind, combine, [episode])
            save_generator(out, made.generator)
            save_json(out / "losses.json", made.losses)
            if has_bank(self.config):
                save_arrays(out / "bank.safetensors", {"weights": made.classifiers})

        folder = stages.run("generator", {}, generator)
        model = Emmett(
            encoder,
            classifiers,
            seen,
            load_generator(folder),
            dataset.items,
            observed,
            neighbours=combine.neighbours,
            calibration=Calibration(**chosen["calibration"]),
            bank=load_arrays(folder / "bank.safetensors")["weights"] if has_bank(self.config) else None,
            memory=None
            if recall is None
            else memory_of(self.config, classifiers.queries(queries), clicks, seen, recall),
            about={
                "inputs": inputs,
                "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
                "config": self.config.model_dump(),
                "constants": {
                    "generator": kind,
                    **chosen["combine"],
                    **chosen["calibration"],
                    "memory": chosen["memory"],
                },
                "compared": chosen.get("compared", {}),
                "pseudo_novel": chosen["pseudo_novel"],
                "curves": _curves(encoder, load_json(folder / "losses.json")),
                "clicks": int(clicks.nnz),
                "queries": len(query_rows),
            },
        )
        folder = stages.run(
            "index", {}, lambda out: save_arrays(out / "index.safetensors", {"vectors": model.index(items)})
        )
        model.take_vectors(load_arrays(folder / "index.safetensors")["vectors"])
        self.seconds = stages.seconds
        return model

    def _folds(
        self,
        dataset: Dataset,
        observed: Rows,
        query_rows: Rows,
        clicks: csr_array,
        report: Callable[[str], None],
    ) -> list[Fold]:
        """What constants are chosen on. A base that has learnt from clicks knows the items it has seen: only those
        held out of its training can play novel."""
        record = None if self.encoder is not None else EncoderRecord.load(Pretrained(self.config.base).folder)
        if record is None or not record.learnt_from_clicks or not self.config.folds:
            return Fold.partition(clicks, self.config.seed, self.config.folds)
        known = known_folds(
            record, dataset, (observed, query_rows, clicks), self.config.folds, self.config.seed
        )
        report(
            "the base encoder has learnt from clicks: constants are "
            + ("chosen on items it held out" if known else "the defaults, for it held too few items out")
        )
        return known

    def inputs(self, dataset: Dataset) -> str:
        """SHA-256 of all that decides what is trained: same inputs, same model."""
        encoder = self.encoder or self.base_for(dataset)
        return json_digest(
            [dataset.fingerprint, self.config.model_dump(), encoder.fingerprint, torch.get_num_threads()]
        )

    def base_for(self, dataset: Dataset) -> Pretrained:
        """The pretrained encoder, with the backend that suits the data set's texts."""
        if self._base is None or self._base[0] != dataset.fingerprint:
            # Static towers take only tokens and first vectors from it: nothing is computed that could be faster.
            backend = "torch" if self.config.encoder == "static" else self.config.backend
            texts = [*dataset.items.texts, *dataset.train.queries.texts]
            self._notes = []
            base = Pretrained(self.config.base, self.cache, backend, texts=texts, report=self._notes.append)
            self._base = (dataset.fingerprint, base)
        return self._base[1]

    def _encoding(self, dataset: Dataset, stages: Stages) -> Encoding:
        """Embeds all texts by what does not learn; the embedding cache is what this stage leaves."""
        started = time.perf_counter()
        encoding: Encoding
        if self.encoder is not None:
            encoding, by = FixedEncoding(self.encoder, dataset), self.encoder.kind
        else:
            base = self.base_for(dataset)
            by = base.backend
            for line in self._notes:
                stages.report(line)
            if self.config.encoder == "pretrained":
                encoding = FixedEncoding(base, dataset)
            else:
                static = self.config.encoder == "static"
                towers = TowerEncoding(base, dataset, self.config.adapter, static=static)
                encoding = towers if self.kept is None else CachedEncoding(towers, self.kept)
        stages.seconds["encode"] = time.perf_counter() - started
        stages.report(f"encode ({by}): {stages.seconds['encode']:.1f} s")
        return encoding


def _curves(encoder: Encoder, generator: list[float]) -> dict[str, dict[str, list[float]]]:
    """The learning curves of what was trained: mean loss over each of at most `CURVE_POINTS` spans of steps."""
    losses = {
        "encoder": encoder.towers.losses if isinstance(encoder, Adapted) else [],
        "generator": generator,
    }
    curves: dict[str, dict[str, list[float]]] = {}
    for name, values in losses.items():
        if values:
            spans = np.array_split(np.arange(len(values)), min(CURVE_POINTS, len(values)))
            means = [round(float(np.mean([values[step] for step in span])), 4) for span in spans]
            curves[name] = {"step": [int(span[-1]) + 1 for span in spans], "loss": means}
    return curves


def _save_chosen(folder: Path, chosen: Chosen) -> None:
    save_json(folder / "constants.json", chosen.constants)
    if chosen.trained is not None:
        save_generator(folder, chosen.trained.generator)
        save_json(folder / "losses.json", chosen.trained.losses)


def _save_embeddings(folder: Path, queries: Floats, items: Floats) -> None:
    np.save(folder / "queries.npy", queries)
    np.save(folder / "items.npy", items)


def _save_neighbours(folder: Path, rows: Rows, scores: Floats) -> None:
    save_arrays(folder / "neighbours.safetensors", {"rows": rows, "scores": scores})
