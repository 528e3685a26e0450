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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array

from metaxc.artifacts import Stages, digest_of, load_arrays, load_json, save_arrays, save_json
from metaxc.classifiers import Classifiers, OneVsAllConfig, centroid, one_vs_all, ridge
from metaxc.data import Dataset
from metaxc.emmett import Calibration, Emmett
from metaxc.encoders import AdapterConfig, EmbeddingCache, Encoder, Pretrained, load_encoder
from metaxc.encoders.adapted import Adapted
from metaxc.encoders.learning import Encoding, FixedEncoding, KeptEncoding, TowerEncoding
from metaxc.encoders.pretrained import DEFAULT
from metaxc.errors import DataError
from metaxc.generators import (
    Combine,
    GeneratorTraining,
    PostNormTransformer,
    ResidualTransformer,
    Sum,
    TorchGenerator,
    WeightedSum,
    gather,
    load_generator,
    save_generator,
    train_generator,
)
from metaxc.generators.training import TrainedGenerator
from metaxc.memory import QueryMemory, Recall
from metaxc.selectors import NearestSelector
from metaxc.tuning import (
    DEFAULT_COMBINE,
    NEIGHBOURS,
    CombineChoice,
    Fold,
    Judges,
    Trial,
    choose_calibration,
    choose_combine,
    choose_recall,
    zero_shot_quality,
)

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

CURVE_POINTS = 100


class IreneConfig(BaseModel):
    """What to train. Why these defaults, and how far each was measured: docs/decisions.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder: Literal["adapted", "static", "pretrained"] = Field(
        "adapted", description="adapted to the clicks; token bags alone; or frozen"
    )
    base: str = Field(DEFAULT, description="the pretrained weights: a name or a sentence-transformers folder")
    adapter: AdapterConfig = Field(default_factory=AdapterConfig, description="training of the towers")
    classifiers: Literal["ridge", "centroid", "one_vs_all"] = Field("ridge", description="of observed items")
    one_vs_all: OneVsAllConfig = Field(default_factory=OneVsAllConfig, description="when so trained")
    generator: Literal["combine", "transformer", "post_norm", "sum", "weighted_sum"] = Field(
        "combine", description="what makes meta-classifiers"
    )
    neighbours: int | None = Field(None, ge=1, description="K; chosen on pseudo-novel items when not given")
    depth: int = Field(1, ge=1, description="transformer layers (the paper's K and depth: 3 and 1)")
    informing: Literal["classifiers", "embeddings", "centroids"] = Field(
        "classifiers", description="what of its neighbours an item is made of; the others are ablations"
    )
    include_self: bool = Field(
        False, description="an observed item sees its own classifier in training; an ablation, it misleads"
    )
    memory: int = Field(
        300_000,
        ge=0,
        description="training queries that a query may borrow from, at most; 0 for none (the paper's)",
    )
    training: GeneratorTraining = Field(default_factory=GeneratorTraining, description="of the generator")
    folds: int = Field(
        3,
        ge=0,
        description="of pseudo-novel items, to choose the constants by; 0 takes the default constants",
    )
    seed: int = Field(0, ge=0, description="of everything random")


SIZES: dict[str, dict[str, Any]] = {
    "fast": {"encoder": "static", "folds": 1},
    "default": {},
}
"""What differs from the defaults of `IreneConfig`, by the name of a size. `fast` needs no transformer, neither to train
nor to serve; docs/results.md has what each costs and brings."""


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

    @classmethod
    def paper(cls, **kwargs: Any) -> Irene:
        """The paper's own choices: frozen base, one-vs-all classifiers, K = 3, one post-norm layer."""
        config = IreneConfig(
            encoder="pretrained",
            classifiers="one_vs_all",
            generator="post_norm",
            neighbours=3,
            memory=0,
            training=GeneratorTraining(epochs=20),
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
            lambda out: save_json(out / "constants.json", self.tune(encoding, observed, query_rows, clicks)),
        )
        chosen = load_json(folder / "constants.json")
        combine = CombineChoice(**chosen["combine"])
        recall = None if chosen["memory"] is None else Recall(**chosen["memory"])
        stages.report(f"chosen on pseudo-novel items: {_words(chosen)}")

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
            lambda out: self._classifiers(queries, clicks).save(out / "classifiers.safetensors"),
        )
        classifiers = Classifiers.load(folder / "classifiers.safetensors")
        folder = stages.run(
            "neighbours",
            {},
            lambda out: _save_neighbours(out, seen, combine.neighbours, self.config.include_self),
        )
        near = load_arrays(folder / "neighbours.safetensors")

        def generator(out: Path) -> None:
            asked = classifiers.queries(queries)
            informing = self._informing(classifiers, seen, asked, clicks).trusted(combine.neighbour_prior)
            made = self._generator(combine, asked, seen, clicks, informing, near["rows"], near["scores"])
            save_generator(out, made.generator)
            save_json(out / "losses.json", made.losses)
            if self._has_bank:
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
            bank=load_arrays(folder / "bank.safetensors")["weights"] if self._has_bank else None,
            memory=None
            if recall is None
            else self._memory(classifiers.queries(queries), clicks, seen, recall),
            about={
                "inputs": inputs,
                "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
                "config": self.config.model_dump(),
                "constants": {**chosen["combine"], **chosen["calibration"], "memory": chosen["memory"]},
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

    def inputs(self, dataset: Dataset) -> str:
        """SHA-256 of all that decides what is trained: same inputs, same model."""
        encoder = self.encoder or Pretrained(self.config.base)
        return digest_of(
            [dataset.fingerprint, self.config.model_dump(), encoder.fingerprint, torch.get_num_threads()]
        )

    def _encoding(self, dataset: Dataset, stages: Stages) -> Encoding:
        """Embeds all texts by what does not learn; the embedding cache is what this stage leaves."""
        started = time.perf_counter()
        encoding: Encoding
        base = Pretrained(self.config.base, self.cache)
        if self.encoder is not None or self.config.encoder == "pretrained":
            encoding = FixedEncoding(self.encoder or base, dataset)
        else:
            towers = TowerEncoding(base, dataset, self.config.adapter, static=self.config.encoder == "static")
            encoding = towers if self.kept is None else KeptEncoding(towers, self.kept)
        stages.seconds["encode"] = time.perf_counter() - started
        stages.report(f"encode: {stages.seconds['encode']:.1f} s")
        return encoding

    def tune(self, encoding: Encoding, observed: Rows, query_rows: Rows, clicks: csr_array) -> dict[str, Any]:
        """The constants, and how well they do on the pseudo-novel items they were chosen on."""
        combines = self.config.generator in (
            "combine",
            "transformer",
        )  # the others take classifiers as they are
        combine = CombineChoice(
            self.config.neighbours or DEFAULT_COMBINE.neighbours,
            DEFAULT_COMBINE.strength,
            DEFAULT_COMBINE.temperature,
            DEFAULT_COMBINE.neighbour_prior if combines else 0.0,
        )
        folds = [Fold.draw(clicks, self.config.seed + number) for number in range(self.config.folds)]
        if not folds or any(fold is None for fold in folds):
            why = "too few data to choose by" if folds else "not asked for"
            return _constants(combine, Calibration(), None, {"skipped": why})
        tried = [self._try(encoding, fold, observed, query_rows, clicks) for fold in folds if fold]
        trials = [trial for trial, _ in tried]
        informed = [replace(t, classifiers=self._informing(t.classifiers, t.seen, *of)) for t, of in tried]
        if combines:
            combine = choose_combine(informed, self.config.neighbours)
        k, made = combine.neighbours, []
        for trial, (_, (queries, fold_clicks)) in zip(informed, tried, strict=True):
            informing = trial.classifiers.trusted(combine.neighbour_prior)
            near, scores = _neighbours(trial.seen, k, self.config.include_self)
            trained = self._generator(combine, queries, trial.seen, fold_clicks, informing, near, scores)
            selected = gather(trained.classifiers, trial.near[:, :k])
            made.append(trained.generator.generate(trial.new, selected, trial.scores[:, :k]))
        calibration, generalized = choose_calibration(trials, made)
        recall = choose_recall(trials, made, calibration)
        if recall is not None:
            trials = [trial.recalling(recall) for trial in trials]
            calibration, generalized = choose_calibration(trials, made)
        quality = {
            "zero_shot": zero_shot_quality(trials, made).to_dict(),
            "generalized": generalized.to_dict(),
        }
        return _constants(combine, calibration, recall, quality)

    def _try(
        self, encoding: Encoding, fold: Fold, observed: Rows, query_rows: Rows, clicks: csr_array
    ) -> tuple[Trial, tuple[Floats, csr_array]]:
        """A fold's trial, and the queries and clicks it was fitted on (what a generator learns from)."""
        rows, fold_clicks = fold.training(clicks)
        seen, new = np.flatnonzero(~fold.pseudo_novel), np.flatnonzero(fold.pseudo_novel)
        encoder = encoding.learn(query_rows[rows], observed[seen], fold_clicks, self.config.seed)
        queries, items = encoding.embed(encoder, query_rows)
        items = items[observed]
        classifiers = self._classifiers(queries[rows], fold_clicks)
        queries = classifiers.queries(queries)
        most = max(*NEIGHBOURS, self.config.neighbours or 0)
        near, scores = NearestSelector(items[seen]).select(items[new], most)
        held = np.flatnonzero(fold.held)
        trial = Trial(
            classifiers,
            items[seen],
            items[new],
            near,
            scores,
            Judges.draw(queries[held], csr_array(clicks[held][:, new]), self.config.seed),
            Judges.draw(queries[held], csr_array(clicks[held]), self.config.seed),
            fold.pseudo_novel,
            self._memory(queries[rows], fold_clicks, items[seen]),
        )
        return trial, (queries[rows], fold_clicks)

    def _memory(
        self, queries: Floats, clicks: csr_array, embeddings: Floats, recall: Recall | None = None
    ) -> QueryMemory | None:
        if not self.config.memory:
            return None
        memory = QueryMemory.sample(queries, clicks, embeddings, self.config.memory, self.config.seed)
        return memory if recall is None else memory.using(recall)

    def _classifiers(self, queries: Floats, clicks: csr_array) -> Classifiers:
        if self.config.classifiers == "centroid":
            return centroid(queries, clicks)
        if self.config.classifiers == "one_vs_all":
            return one_vs_all(queries, clicks, self.config.one_vs_all, seed=self.config.seed)
        return ridge(queries, clicks)

    @property
    def _has_bank(self) -> bool:
        """Whether novel items are informed by something else than the observed items' own classifiers."""
        return self.config.informing != "classifiers" or self.config.training.train_classifiers

    def _informing(
        self, classifiers: Classifiers, seen: Floats, queries: Floats, clicks: csr_array
    ) -> Classifiers:
        """What the neighbours lend to an item, in the place of their classifiers where so configured."""
        if self.config.informing == "embeddings":
            return replace(classifiers, weights=np.asarray(seen, dtype=np.float32))
        if self.config.informing == "centroids":
            return replace(classifiers, weights=centroid(queries, clicks).weights)
        return classifiers

    def _generator(
        self,
        combine: CombineChoice,
        queries: Floats,
        items: Floats,
        clicks: csr_array,
        classifiers: Floats,
        near: Rows,
        scores: Floats,
    ) -> TrainedGenerator:
        torch.manual_seed(self.config.seed)
        dim = items.shape[1]
        makers: dict[str, Callable[[], TorchGenerator]] = {
            "combine": lambda: Combine(combine.strength, combine.temperature),
            "sum": Sum,
            "weighted_sum": lambda: WeightedSum(combine.neighbours),
            "transformer": lambda: ResidualTransformer(
                dim, self.config.depth, combine.strength, combine.temperature
            ),
            "post_norm": lambda: PostNormTransformer(dim, self.config.depth),
        }
        return train_generator(
            makers[self.config.generator](),
            queries,
            items,
            clicks,
            classifiers,
            near,
            scores,
            self.config.training,
            seed=self.config.seed,
        )


def training_clicks(dataset: Dataset) -> tuple[Rows, Rows, csr_array]:
    """What a learner may see: rows of the observed items that have a click, rows of the training queries
    that clicked one, and the clicks between them. An item without a click is novel, whatever a list says."""
    allowed = dataset.observed_rows
    counts = np.bincount(dataset.train.clicks.indices, minlength=len(dataset.items))
    observed = allowed[counts[allowed] > 0]
    if not len(observed):
        raise DataError(
            "No observed item has a click", expected="clicks to learn from", fix="give more training clicks"
        )
    clicks = csr_array(dataset.train.clicks[:, observed])
    query_rows = np.flatnonzero(np.diff(clicks.indptr) > 0)
    return observed, query_rows, csr_array(clicks[query_rows])


def _constants(
    combine: CombineChoice, calibration: Calibration, recall: Recall | None, pseudo_novel: dict[str, Any]
) -> dict[str, Any]:
    return {
        "combine": asdict(combine),
        "calibration": {**calibration.model_dump(), "neighbour_prior": combine.neighbour_prior},
        "memory": None if recall is None else recall.model_dump(),
        "pseudo_novel": pseudo_novel,
    }


def _words(chosen: dict[str, Any]) -> str:
    numbers = {**chosen["combine"], **chosen["calibration"]}
    numbers["memory strength"] = chosen["memory"]["strength"] if chosen["memory"] else 0.0
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items())


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


def _save_embeddings(folder: Path, queries: Floats, items: Floats) -> None:
    np.save(folder / "queries.npy", queries)
    np.save(folder / "items.npy", items)


def _neighbours(items: Floats, k: int, include_self: bool) -> tuple[Rows, Floats]:
    """The observed items' neighbours among themselves: (observed, k) rows and similarities."""
    itself = None if include_self else np.arange(len(items))
    return NearestSelector(items).select(items, k, exclude_self=itself)


def _save_neighbours(folder: Path, items: Floats, k: int, include_self: bool) -> None:
    rows, scores = _neighbours(items, k, include_self)
    save_arrays(folder / "neighbours.safetensors", {"rows": rows, "scores": scores})
