"""The framework: encoder + classifiers + selector + generator as one model.

A novel item's embedding selects K observed classifiers; the generator makes its meta-classifier from them.
An observed item has learnt from clicks of its own. Either way a classifier is trusted by the number of clicks
it was fitted on, t(w) = n / (n + prior) · w:

    novel:     u = novel_scale · G(z, t(w₁), …, t(w_K))
    observed:  u = z + own · t(w)

The constants are chosen on pseudo-novel items (`metaxc.tuning`), so that both kinds rank fairly together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from metaxc.artifacts import (
    digest_of,
    load_arrays,
    load_json,
    save_arrays,
    save_json,
    verify_folder,
    whole_folder,
    write_manifest,
)
from metaxc.classifiers import Classifiers
from metaxc.data import Texts
from metaxc.encoders import EmbeddingCache, Encoder, load_encoder, unit_rows
from metaxc.errors import DataError, ModelError
from metaxc.generators import TorchGenerator, gather, load_generator, save_generator
from metaxc.index.topk import top_k
from metaxc.selectors import NearestSelector

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

KIND = "emmett"


class Calibration(BaseModel):
    """How observed and novel items rank together. Chosen on pseudo-novel items by `metaxc.tuning`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    own: float = Field(1.5, ge=0, description="weight of an observed item's own classifier")
    prior_clicks: float = Field(30.0, ge=0, description="clicks at which it has half that weight")
    neighbour_prior: float = Field(10.0, ge=0, description="the same for a neighbour's classifier")
    novel_scale: float = Field(1.0, gt=0, description="scale of the meta-classifiers")


@dataclass(frozen=True)
class Hit:
    """One answer of a search."""

    id: str
    text: str
    score: float
    novel: bool


@dataclass(frozen=True)
class Neighbour:
    """An observed item whose classifier informs another.

    `weight` is what the generator multiplies its classifier with; `share` is its part of the
    meta-classifier: the weighted classifier projected on the whole, in percent.
    """

    id: str
    text: str
    similarity: float
    weight: float
    share: float


@dataclass(frozen=True)
class Explanation:
    """Where a meta-classifier comes from; the three shares add up to 100 percent."""

    text: str
    neighbours: list[Neighbour]
    text_share: float
    neighbour_share: float
    learnt_share: float


class Emmett:
    """A trained meta-classification model.

    Args:
        encoder: Texts to embeddings.
        classifiers: Of the observed items.
        embeddings: (observed, dim) the observed items' embeddings, in the classifiers' order.
        generator: Selected classifiers to meta-classifier.
        items: All items the model can answer with.
        observed: (observed,) rows of the observed items among `items`, in the classifiers' order.
        neighbours: K.
        calibration: How observed and novel items rank together.
        vectors: (items, dim) representations of `items`; made now when None.
        about: How it was trained, for people and reports.
    """

    def __init__(
        self,
        encoder: Encoder,
        classifiers: Classifiers,
        embeddings: Floats,
        generator: TorchGenerator,
        items: Texts,
        observed: Rows,
        *,
        neighbours: int = 10,
        calibration: Calibration | None = None,
        vectors: Floats | None = None,
        about: dict[str, Any] | None = None,
    ):
        self.encoder = encoder
        self.classifiers = classifiers
        self.selector = NearestSelector(embeddings)
        self.generator = generator
        self.items = items
        self.observed = observed
        self.neighbours = neighbours
        self.calibration = calibration or Calibration()
        self.about = about or {}
        self._vectors = vectors

    def __repr__(self) -> str:
        return (
            f"Emmett({self.encoder!r}, {self.classifiers!r}, K={self.neighbours}, {self.generator!r}, "
            f"{len(self.items):,} items, {len(self.items) - len(self.observed):,} of them novel)"
        )

    @cached_property
    def novel(self) -> Mask:
        """(items,) bool, True where an item has no classifier of its own."""
        mask = np.ones(len(self.items), dtype=bool)
        mask[self.observed] = False
        return mask

    @cached_property
    def informing(self) -> Floats:
        """(observed, dim) float32: the classifiers as they inform novel items, scaled by trust."""
        return self.classifiers.trusted(self.calibration.neighbour_prior)

    @property
    def vectors(self) -> Floats:
        """(items, dim) float32, what `search` ranks: own for observed items, meta for novel ones."""
        if self._vectors is None:
            self._vectors = self.index(self.encoder.encode_items(self.items.texts))
        return self._vectors

    def index(self, embeddings: Floats) -> Floats:
        """(items, dim) float32: every item as `search` ranks it, from the items' embeddings."""
        made = np.empty((len(self.items), self.encoder.dim), dtype=np.float32)
        made[self.observed] = self.represent_observed()
        made[self.novel] = self.represent(np.asarray(embeddings[self.novel]))
        return made

    def take_vectors(self, vectors: Floats) -> None:
        """Use these vectors, made by `index` before."""
        self._vectors = vectors

    def represent(self, items: Sequence[str] | Floats) -> Floats:
        """(n, dim) float32: the meta-classifiers of novel items, at once, without training.

        Args:
            items: Texts, or (n, dim) item embeddings of this model's encoder.
        """
        embeddings = self._embed(items, self.encoder.encode_items, "item")
        rows, scores = self.selector.select(embeddings, self.neighbours)
        made = self.generator.generate(embeddings, gather(self.informing, rows), scores)
        return self.calibration.novel_scale * made

    def represent_observed(self) -> Floats:
        """(observed, dim) float32: the observed items by their own classifiers."""
        trusted = self.classifiers.trusted(self.calibration.prior_clicks)
        return self.selector.embeddings + self.calibration.own * trusted

    def encode_queries(self, queries: Sequence[str] | Floats) -> Floats:
        """(n, dim) float32: queries as `search` scores them."""
        return self.classifiers.queries(self._embed(queries, self.encoder.encode_queries, "query"))

    def search(
        self, queries: Sequence[str] | Floats, k: int = 10, among: Mask | None = None
    ) -> list[list[Hit]]:
        """The k best items of each query, best first; fewer where there are fewer.

        Args:
            queries: Texts, or (n, dim) query embeddings.
            k: How many.
            among: (items,) bool, the items that may be answered.
        """
        rows, scores = self.search_rows(queries, k, among)
        return [
            [
                Hit(self.items.ids[row], self.items.texts[row], float(score), bool(self.novel[row]))
                for row, score in zip(line, line_scores, strict=True)
                if row >= 0
            ]
            for line, line_scores in zip(rows, scores, strict=True)
        ]

    def search_rows(
        self, queries: Sequence[str] | Floats, k: int = 10, among: Mask | None = None
    ) -> tuple[Rows, Floats]:
        """Like `search`, as rows of `items` (n, min(k, items)) and scores; −1 pads."""
        if k < 1:
            raise DataError("k must be positive", got=k, expected="1 or more")
        return top_k(self.encode_queries(queries), self.vectors, min(k, len(self.items)), among)

    def explain(self, item: str | Floats) -> Explanation:
        """Where the meta-classifier of an item comes from.

        Args:
            item: A text, or one (dim,) item embedding.
        """
        given = [item] if isinstance(item, str) else np.asarray(item, dtype=np.float32)[None]
        embedding = self._embed(given, self.encoder.encode_items, "item")
        rows, scores = self.selector.select(embedding, self.neighbours)
        selected = gather(self.informing, rows)
        made = self.generator.generate(embedding, selected, scores)[0]
        weights = self.generator.weights(embedding, selected, scores)[0]
        parts = weights[:, None] * np.concatenate([embedding, selected[0]])
        shares = 100 * (parts @ made) / max(float(made @ made), 1e-12)
        neighbours = [
            Neighbour(
                self.items.ids[self.observed[row]],
                self.items.texts[self.observed[row]],
                float(scores[0, place]),
                float(weights[place + 1]),
                float(shares[place + 1]),
            )
            for place, row in enumerate(rows[0])
            if row >= 0
        ]
        text_share, neighbour_share = float(shares[0]), float(shares[1:].sum())
        return Explanation(
            item if isinstance(item, str) else "",
            neighbours,
            text_share,
            neighbour_share,
            100 - text_share - neighbour_share,
        )

    def add(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        """Take novel items in: from the next search on they are found."""
        known = [name for name in ids if name in self.items.row_of]
        if known:
            raise DataError("An item of that id is already there", got=repr(known[0]), fix="use a new id")
        made = np.concatenate([self.vectors, self.represent(texts)])
        self.items = Texts([*self.items.ids, *ids], [*self.items.texts, *texts])
        self._vectors = made
        self.__dict__.pop("novel", None)

    def _embed(self, given: Sequence[str] | Floats, encode: Any, what: str) -> Floats:
        if isinstance(given, np.ndarray):
            return unit_rows(given, self.encoder.dim, f"{what} vectors")
        if isinstance(given, str):
            raise DataError(f"One {what} in place of a list", got=repr(given), fix=f"pass [{given!r}]")
        empty = [row for row, text in enumerate(given) if not text.strip()]
        if empty:
            raise DataError(f"An empty {what}", got=f"position {empty[0]}", expected=f"the {what}'s text")
        vectors: Floats = encode(given)
        return vectors

    @cached_property
    def fingerprint(self) -> str:
        """Names the model: same fingerprint, same meta-classifiers."""
        arrays = {**self.generator.arrays(), "weights": self.classifiers.weights}
        return digest_of(
            [
                self.encoder.fingerprint,
                self.neighbours,
                self.calibration.model_dump(),
                self.generator.kind,
                self.generator.settings(),
                {name: digest_of(array.tobytes().hex()) for name, array in arrays.items()},
            ]
        )

    def save(self, folder: str | Path) -> None:
        """Write the model folder, whole or not at all; what stood there is replaced."""
        with whole_folder(Path(folder)) as new:
            (new / "encoder").mkdir()
            self.encoder.save(new / "encoder")
            self.classifiers.save(new / "classifiers.safetensors")
            save_generator(new, self.generator)
            observed: dict[str, NDArray[Any]] = {
                "embeddings": self.selector.embeddings,
                "rows": self.observed,
            }
            save_arrays(new / "observed.safetensors", observed)
            save_arrays(new / "index.safetensors", {"vectors": self.vectors})
            _write_items(new / "items.jsonl", self.items, self.novel)
            save_json(
                new / "config.json",
                {
                    "neighbours": self.neighbours,
                    "calibration": self.calibration.model_dump(),
                    "encoder_fingerprint": self.encoder.fingerprint,
                    "about": self.about,
                },
            )
            write_manifest(new, KIND)

    @staticmethod
    def about_of(folder: str | Path) -> dict[str, Any]:
        """How the model in a folder was trained, without loading it."""
        return dict(_facts(Path(folder))["about"])

    @classmethod
    def load(
        cls, folder: str | Path, *, base: str | Path | None = None, cache: EmbeddingCache | None = None
    ) -> Emmett:
        """Read a model folder; every file is checked against its SHA-256 first.

        Args:
            folder: As `save` wrote it.
            base: Where the pretrained encoder is, when it has moved since training.
            cache: Where embeddings of long lists are kept.
        """
        place = Path(folder)
        config = _facts(place)
        observed = load_arrays(place / "observed.safetensors")
        try:
            encoder = load_encoder(place / "encoder", base=base, cache=cache)
            if encoder.fingerprint != config["encoder_fingerprint"]:
                raise ModelError(
                    "The encoder is not the one the model was trained with",
                    got=encoder.fingerprint[:16],
                    expected=config["encoder_fingerprint"][:16],
                    fix="train again",
                )
            return cls(
                encoder,
                Classifiers.load(place / "classifiers.safetensors"),
                observed["embeddings"],
                load_generator(place),
                _read_items(place / "items.jsonl"),
                observed["rows"],
                neighbours=int(config["neighbours"]),
                calibration=Calibration(**config["calibration"]),
                vectors=load_arrays(place / "index.safetensors")["vectors"],
                about=config["about"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError("The model folder is incomplete", got=repr(error), fix="train again") from error


def _facts(place: Path) -> Any:
    verify_folder(place, KIND)
    return load_json(place / "config.json")


def _write_items(path: Path, items: Texts, novel: Iterable[bool]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for name, text, is_novel in zip(items.ids, items.texts, novel, strict=True):
            file.write(json.dumps({"id": name, "text": text, "novel": bool(is_novel)}) + "\n")


def _read_items(path: Path) -> Texts:
    with path.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return Texts([record["id"] for record in records], [record["text"] for record in records])
