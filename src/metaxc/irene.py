"""The algorithm: an Emmett trained from a click log, in stages that resume.

Where we differ from the paper, and why (docs/decisions.md):
- The encoder is adapted to the clicks by two token-bag towers: most of the accuracy for a minute or two.
- Classifiers are ridge regressions: as good to combine as trained ones, in seconds.
- The generator is the training-free combine, or a transformer that starts at it: learning can only add.
- An observed item trusts its own classifier by the number of its clicks.
- Every constant is chosen on pseudo-novel observed items.

`Irene.paper()` gives the paper's own choices.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
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
from metaxc.encoders.learning import Encoding, FixedEncoding, TowerEncoding
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
    zero_shot_quality,
)

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


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
    training: GeneratorTraining = Field(default_factory=GeneratorTraining, description="of the generator")
    folds: int = Field(
        3,
        ge=0,
        description="of pseudo-novel items, to choose the constants by; 0 takes the default constants",
    )
    seed: int = Field(0, ge=0, description="of everything random")


class Irene:
    """Trains an `Emmett`.

    Args:
        config: What to train; the defaults when None.
        encoder: An encoder of your own in place of `config.encoder`; used as it is.
        cache: Where the pretrained encoder's embeddings are kept; None keeps none.

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
    ):
        self.config = config or IreneConfig()
        self.encoder = encoder
        self.cache = cache
        self.seconds: dict[str, float] = {}

    @classmethod
    def paper(cls, **kwargs: Any) -> Irene:
        """The paper's own choices: frozen base, one-vs-all classifiers, K = 3, one post-norm layer."""
        config = IreneConfig(
            encoder="pretrained",
            classifiers="one_vs_all",
            generator="post_norm",
            neighbours=3,
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
        folder = stages.run("neighbours", {}, lambda out: _save_neighbours(out, seen, combine.neighbours))
        near = load_arrays(folder / "neighbours.safetensors")
        folder = stages.run(
            "generator",
            {},
            lambda out: save_generator(
                out,
                self._generator(
                    combine,
                    classifiers.queries(queries),
                    seen,
                    clicks,
                    classifiers.trusted(combine.neighbour_prior),
                    near["rows"],
                    near["scores"],
                ),
            ),
        )
        model = Emmett(
            encoder,
            classifiers,
            seen,
            load_generator(folder),
            dataset.items,
            observed,
            neighbours=combine.neighbours,
            calibration=Calibration(**chosen["calibration"]),
            about={
                "inputs": inputs,
                "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
                "config": self.config.model_dump(),
                "constants": {**chosen["combine"], **chosen["calibration"]},
                "pseudo_novel": chosen["pseudo_novel"],
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
            encoding = TowerEncoding(
                base, dataset, self.config.adapter, static=self.config.encoder == "static"
            )
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
            return _constants(combine, Calibration(), {"skipped": why})
        tried = [self._try(encoding, fold, observed, query_rows, clicks) for fold in folds if fold]
        trials = [trial for trial, _ in tried]
        if combines:
            combine = choose_combine(trials, self.config.neighbours)
        k, made = combine.neighbours, []
        for trial, (queries, fold_clicks) in tried:
            informing = trial.classifiers.trusted(combine.neighbour_prior)
            near, scores = NearestSelector(trial.seen).select(
                trial.seen, k, exclude_self=np.arange(len(trial.seen))
            )
            generator = self._generator(combine, queries, trial.seen, fold_clicks, informing, near, scores)
            selected = gather(informing, trial.near[:, :k])
            made.append(generator.generate(trial.new, selected, trial.scores[:, :k]))
        zero_shot = zero_shot_quality(trials, made)
        calibration, generalized = choose_calibration(trials, made)
        return _constants(
            combine, calibration, {"zero_shot": zero_shot.to_dict(), "generalized": generalized.to_dict()}
        )

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
        )
        return trial, (queries[rows], fold_clicks)

    def _classifiers(self, queries: Floats, clicks: csr_array) -> Classifiers:
        if self.config.classifiers == "centroid":
            return centroid(queries, clicks)
        if self.config.classifiers == "one_vs_all":
            return one_vs_all(queries, clicks, self.config.one_vs_all, seed=self.config.seed)
        return ridge(queries, clicks)

    def _generator(
        self,
        combine: CombineChoice,
        queries: Floats,
        items: Floats,
        clicks: csr_array,
        classifiers: Floats,
        near: Rows,
        scores: Floats,
    ) -> TorchGenerator:
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
    combine: CombineChoice, calibration: Calibration, pseudo_novel: dict[str, Any]
) -> dict[str, Any]:
    return {
        "combine": asdict(combine),
        "calibration": {**calibration.model_dump(), "neighbour_prior": combine.neighbour_prior},
        "pseudo_novel": pseudo_novel,
    }


def _words(chosen: dict[str, Any]) -> str:
    numbers = {**chosen["combine"], **chosen["calibration"]}
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items())


def _save_embeddings(folder: Path, queries: Floats, items: Floats) -> None:
    np.save(folder / "queries.npy", queries)
    np.save(folder / "items.npy", items)


def _save_neighbours(folder: Path, items: Floats, k: int) -> None:
    rows, scores = NearestSelector(items).select(items, k, exclude_self=np.arange(len(items)))
    save_arrays(folder / "neighbours.safetensors", {"rows": rows, "scores": scores})
