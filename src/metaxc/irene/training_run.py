"""One training run, stage by stage; each stage is kept on disk, so that a killed run continues where it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.artifacts import Stages, load_arrays, load_json, save_arrays, save_json
from metaxc.classifiers import Classifiers
from metaxc.data import Dataset
from metaxc.data.clicks import days_since_last_click, training_clicks, training_times
from metaxc.data.folds import FEWEST_ITEMS, FEWEST_QUERIES, Fold, draw_folds
from metaxc.data.same_texts import own_text_pairs, rows_by_text
from metaxc.emmett.model_identity import describe_novel
from metaxc.emmett.scoring import scale_by_trust
from metaxc.encoders import EmbeddingCache, Encoder, Pretrained, load_encoder
from metaxc.encoders.learning import CachedEncoding, Encoding, FixedEncoding, TowerEncoding
from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.encoder_record import EncoderRecord, known_folds
from metaxc.generators import Episode, load_generator, save_generator
from metaxc.generators.generator_training import TrainedGenerator
from metaxc.irene.config import IreneConfig
from metaxc.irene.constant_choice import ConstantChoice
from metaxc.irene.fine_tuning import Bases, fine_tune_base
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.tuning import (
    Constants,
    default_constants,
)

TOO_FEW = f"too few clicks: a fold needs {FEWEST_ITEMS} items and {FEWEST_QUERIES} queries to hold out"
"""Why constants are not chosen."""


class TrainingRun:
    """The stages of `Irene.fit`, in the order in which they are called. The arguments are those of `Irene` and of its
    `fit`; `stages` runs and keeps the stages, and `inputs` is a digest of everything that decides the model."""

    def __init__(
        self,
        config: IreneConfig,
        dataset: Dataset,
        stages: Stages,
        encoder: Encoder | None,
        cache: EmbeddingCache | None,
        encoder_cache: Path | None,
        inputs: str,
    ):
        self.config, self.dataset, self.stages = config, dataset, stages
        self.encoder, self.cache, self.encoder_cache, self.inputs = encoder, cache, encoder_cache, inputs
        self.parts = ConfiguredParts(config)
        self.training = training_clicks(dataset)
        self.observed, self.query_rows, self.clicks = self.training
        stages.report(
            f"learn from {self.clicks.nnz:,} clicks, {len(self.query_rows):,} queries, "
            f"{len(self.observed):,} observed items; novel: {describe_novel(self.novel_items)}"
        )

    @property
    def novel_items(self) -> dict[str, int]:
        """Why items have no classifier: held out by the data set, or without a click in its training part."""
        held_out = int(self.dataset.novel_mask.sum())
        return {
            "held_out": held_out,
            "without_clicks": len(self.dataset.items) - len(self.observed) - held_out,
        }

    @cached_property
    def base_record(self) -> EncoderRecord | None:
        """What the pretrained encoder has learnt from, where it is known."""
        return None if self.encoder is not None else EncoderRecord.load(Pretrained(self.config.base).folder)

    @cached_property
    def fine_tuning(self) -> EncoderTraining | None:
        """How the pretrained encoder is fine-tuned; None for not at all, as where it has learnt from clicks already."""
        if self.encoder is not None:
            return None
        trained = self.base_record is not None and self.base_record.learnt_from_clicks
        if trained and isinstance(self.config.fine_tuning, str):  # by a rule, not by the user's own settings
            return None
        return self.config.planned_fine_tuning(len(self.query_rows))

    @cached_property
    def bases(self) -> Bases:
        """The pretrained encoders of the folds and of the model: the same one, unless it is fine-tuned."""
        config, how = self.config, self.fine_tuning
        if how is None:
            return Bases(config.base, config.base)
        folds = self.folds or draw_folds(self.dataset, self.training, 1, config.seed)
        if not folds:
            self.stages.report(f"the encoder is not fine-tuned: {TOO_FEW}")
            return Bases(config.base, config.base)
        how = how.model_copy(update={"seed": config.seed})
        return fine_tune_base(
            config.base,
            self.dataset,
            Fold.covering(folds),
            len(self.query_rows),
            how,
            self.stages,
            self.cache,
            self.inputs,
            self.encoder_cache,
        )

    @cached_property
    def encoding(self) -> Encoding:
        """Embeds all texts by what the model does not learn; the embedding cache keeps the result of this stage."""
        return self._embed_texts(self.bases.model)

    @cached_property
    def fold_encoding(self) -> Encoding:
        """The same for the folds, where there are any."""
        same = self.bases.fold == self.bases.model or not self.folds
        return self.encoding if same else self._embed_texts(self.bases.fold)

    def _embed_texts(self, base_name: str) -> Encoding:
        started = time.perf_counter()
        encoding: Encoding
        if self.encoder is not None:
            encoding, name = FixedEncoding(self.encoder, self.dataset), self.encoder.kind
        else:
            config = self.config.model_copy(update={"base": base_name})
            base = pretrained_encoder(config, self.dataset, self.cache, self.stages.report)
            name = base.backend
            if self.config.encoder == "pretrained":
                encoding = FixedEncoding(base, self.dataset)
            else:
                static = self.config.encoder == "static"
                towers = TowerEncoding(base, self.dataset, self.config.adapter, static=static)
                encoding = (
                    towers if self.encoder_cache is None else CachedEncoding(towers, self.encoder_cache)
                )
        seconds = time.perf_counter() - started
        self.stages.seconds["encode"] = self.stages.seconds.get("encode", 0.0) + seconds
        self.stages.report(f"encode ({name}): {seconds:.1f} s")
        return encoding

    def choose_constants(self) -> tuple[Constants, TrainedGenerator | None]:
        """Choose the constants on folds of pseudo-novel items; with the generator where it is trained on them."""
        _ = self.fold_encoding  # encoding is a stage of its own, timed apart

        def choose(out: Path) -> None:
            if self.folds:
                with TemporaryDirectory(dir=out) as scratch:
                    constants, trained = self.constant_choice().choose(Path(scratch))
            else:
                constants, trained = self._default_constants(), None
            save_json(out / "constants.json", constants.to_dict())
            if trained is not None:
                save_generator(out, trained.generator)
                save_json(out / "losses.json", trained.losses)

        folder = self.stages.run("tune", {"inputs": self.inputs}, choose)
        constants = Constants.from_dict(load_json(folder / "constants.json"))
        self.stages.report(f"{_where_chosen(constants)}: {constants}")
        if not (folder / "losses.json").exists():
            return constants, None
        nothing = np.empty((0, 0), np.float32)
        return constants, TrainedGenerator(load_generator(folder), nothing, load_json(folder / "losses.json"))

    def constant_choice(self) -> ConstantChoice:
        """What chooses the constants on the folds."""
        return ConstantChoice(
            self.parts, self.fold_encoding, self.folds, self.training, self._own_pairs(), self.stages.report
        )

    def _default_constants(self) -> Constants:
        constants, given = default_constants(self.parts), self.config.adapter
        constants.pseudo_novel["skipped"] = TOO_FEW if self.config.folds else "not asked for"
        extent = 1.0 if given.extent is None else given.extent
        return replace(constants, adaptation=extent, word_matches=given.word_matches or 0.0)

    @cached_property
    def folds(self) -> list[Fold]:
        """The folds to choose constants on; of a base that has learnt from clicks, of items that it held out."""
        config = self.config
        record = self.base_record
        if record is None or not record.learnt_from_clicks or not config.folds:
            folds = draw_folds(self.dataset, self.training, config.folds, config.seed)
            if folds and folds[0].follows_time:
                self.stages.report(f"folds: {len(folds)} windows of time, the newest items play novel")
            return folds
        folds = known_folds(record, self.dataset, self.training, config.folds, config.seed)
        self.stages.report(
            "the base encoder has learnt from clicks: constants are "
            + ("chosen on items it held out" if folds else "the defaults, for it held too few items out")
        )
        return folds

    def _own_pairs(self) -> csr_array | None:
        """(queries, observed) the training queries that are an item's own text, where these are no answers."""
        if not self.dataset.exclude_self:
            return None
        items = rows_by_text([self.dataset.items.texts[row] for row in self.observed])
        queries = [self.dataset.train.queries.texts[row] for row in self.query_rows]
        return own_text_pairs(queries, items, len(self.observed))

    def learn_encoder(self, extent: float, words: float) -> Encoder:
        """Adapt the encoder to all training clicks, as far as was chosen, with word matches as was chosen."""

        def learn(out: Path) -> None:
            encoder = self.encoding.learn(self.query_rows, self.observed, self.clicks, self.config.seed)
            self.encoding.adapt(encoder, extent, words).save(out)

        folder = self.stages.run("encoder", {}, learn)
        return self.encoder or load_encoder(folder, base=self.bases.model, cache=self.cache)

    def embed(self, encoder: Encoder) -> tuple[Floats, Floats]:
        """(queries, dim) of the training queries and (items, dim) of all items, memory-mapped."""

        def embed(out: Path) -> None:
            queries, items = self.encoding.embed(encoder, self.query_rows)
            np.save(out / "queries.npy", queries)
            np.save(out / "items.npy", items)

        folder = self.stages.run("embeddings", {}, embed)
        queries, items = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("queries", "items"))
        return queries, items

    def fit_classifiers(self, queries: Floats) -> Classifiers:
        """Classifiers of all observed items."""

        def fit(out: Path) -> None:
            times = training_times(self.dataset, self.observed, self.query_rows)
            ages = None if times is None else days_since_last_click(self.clicks, times)
            fitted = replace(self.parts.fit_classifiers(queries, self.clicks), ages=ages)
            fitted.save(out / "classifiers.safetensors")

        folder = self.stages.run("classifiers", {}, fit)
        return Classifiers.load(folder / "classifiers.safetensors")

    def train_generator(
        self,
        constants: Constants,
        out_of_fold: TrainedGenerator | None,
        classifiers: Classifiers,
        queries: Floats,
        items: Floats,
    ) -> TrainedGenerator:
        """The generator: the one that was trained on the folds, or one trained on the observed items now."""
        kind, combine = constants.generator, constants.combine
        embeddings = np.ascontiguousarray(items[self.observed])

        def find_neighbours(out: Path) -> None:
            needed = kind if out_of_fold is None else "combine"
            rows, scores = self.parts.training_neighbours(needed, embeddings, combine.neighbours)
            save_arrays(out / "neighbours.safetensors", {"rows": rows, "scores": scores})

        folder = self.stages.run("neighbours", {}, find_neighbours)
        near = load_arrays(folder / "neighbours.safetensors", finite=False)  # −inf pads the scores

        def train(out: Path) -> None:
            transformed = classifiers.transform_queries(queries)
            vectors = scale_by_trust(
                self.parts.neighbour_classifiers(classifiers, embeddings, transformed, self.clicks),
                combine.neighbour_prior,
            )
            if out_of_fold is not None:
                trained = out_of_fold._replace(classifiers=vectors)
            else:
                episode = Episode(transformed, embeddings, self.clicks, vectors, near["rows"], near["scores"])
                trained = self.parts.train_generator(kind, combine, [episode])
            save_generator(out, trained.generator)
            save_json(out / "losses.json", trained.losses)
            if self.parts.keeps_neighbour_vectors:
                save_arrays(out / "neighbour_vectors.safetensors", {"weights": trained.classifiers})

        folder = self.stages.run("generator", {}, train)
        vectors = np.empty((0, 0), np.float32)
        if self.parts.keeps_neighbour_vectors:
            vectors = load_arrays(folder / "neighbour_vectors.safetensors")["weights"]
        return TrainedGenerator(load_generator(folder), vectors, load_json(folder / "losses.json"))


def _where_chosen(constants: Constants) -> str:
    """What the constants are: chosen, or the defaults and why."""
    skipped = constants.pseudo_novel.get("skipped")
    if skipped:
        return f"default constants, none chosen ({skipped})"
    chosen = constants.pseudo_novel
    noise = f"{chosen['queries']:,} queries, standard error at most {chosen['standard_error']:.1f} points"
    return f"chosen on pseudo-novel items ({noise})"


def pretrained_encoder(
    config: IreneConfig, dataset: Dataset, cache: EmbeddingCache | None, report: Callable[[str], None]
) -> Pretrained:
    """The pretrained encoder of a configuration, with the backend that suits the data set's texts."""
    # Static towers take only tokens and token vectors from it: nothing is computed that could be faster.
    backend = "torch" if config.encoder == "static" else config.backend
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    return Pretrained(config.base, cache, backend, prompts=config.prompts, texts=texts, report=report)
