"""A model's query side as a sentence-transformers folder: whatever loads one can query vectors that metaxc has written.

    SentenceTransformer(folder).encode_query(["marathon gear"])  →  (1, dim + 1), as `Emmett.encode_queries` gives them

The folder names modules of sentence-transformers alone, so it needs neither metaxc nor remote code, unless the adapter
knows bigrams (`metaxc.emmett.token_bag_module`), or the model expands queries (`metaxc.emmett.expansion_module`) or
varies the exposure from query to query (`metaxc.emmett.exposure_module`); `metaxc.emmett.query_tower_modules` says how
the parts of the query side become modules.

Equal up to rounding for queries of up to `TowerRecord.equal_tokens` word pieces: of longer ones the transformer and the
token bag of a model read different numbers of tokens, here they read the same. The folder has no route for documents:
the vectors of items come from `metaxc represent`, a catalog or `metaxc sync`.
"""

from __future__ import annotations

from copy import copy
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from metaxc.arrays import Floats
from metaxc.artifacts import atomic_folder, save_json
from metaxc.emmett.model import Emmett
from metaxc.emmett.query_tower_modules import encoder_modules, query_modules
from metaxc.encoders import Encoder
from metaxc.encoders.adapted import Adapted
from metaxc.encoders.pretrained import Pretrained
from metaxc.errors import ConfigError, ModelError

TOWER_KIND = "query tower"
RECORD_FILE = "query_tower.json"
CHECKED_TEXTS = 64
CHECKED_CHARACTERS = 24  # of each text: surely fewer tokens than any encoder reads
TOLERANCE = 1e-4
"""Largest difference of a coordinate from the model's own: rounding is below 1e-6, an error far above."""


class TowerRecord(BaseModel):
    """What an exported query tower is, as its folder says in `query_tower.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(
        description="fingerprint of the model; metaxc sync writes the same one beside its vectors"
    )
    dim: int = Field(description="numbers per vector, with the exposure as the last")
    exposure: float = Field(description="the last number of every vector")
    varying_exposure: str = Field(
        description="included, left out, or none: whether the exposure follows the classifiers' response to a query"
    )
    expansion: str = Field(description="included, left out, or none: the model expands no queries")
    remote_code: bool = Field(description="whether loading needs metaxc and trust_remote_code=True")
    equal_tokens: int | None = Field(
        description="word pieces up to which a query's vector equals the model's; null for any number"
    )
    largest_difference: float = Field(
        description="of a coordinate from the model's own, computed by torch; with the expansion as exported"
    )
    backend_cosine: float = Field(
        description="lowest cosine similarity with the model's own vectors, by the backend that it was trained with"
    )


def export_query_tower(
    model: Emmett,
    folder: Path,
    *,
    exposure: float | None = None,
    expansion: bool = True,
    overwrite: bool = False,
) -> TowerRecord:
    """Write the query side of a model as a sentence-transformers folder, after comparing it with the model.

    Args:
        model: With an encoder of texts.
        folder: A new or empty folder.
        exposure: The last coordinate of all vectors; None for the value chosen in training.
        expansion: Whether to include the query expansion, where the model has one, and an exposure that follows the
            response of the classifiers; without, the folder needs no metaxc, unless the adapter knows bigrams.
        overwrite: Whether an earlier query tower in that folder is replaced.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    chosen = model.calibration.exposure if exposure is None else exposure
    expands = model.expansion is not None and model.expansion.config.strength > 0
    varies = model.calibration.response_unit is not None
    bigrams = isinstance(model.encoder, Adapted) and len(model.encoder.tokenizer.bigrams) > 0
    remote_code = bigrams or (expansion and (expands or varies))
    twin = _with_torch(model.encoder)
    modules, equal_tokens = encoder_modules(twin)
    modules += query_modules(model, expansion and expands, expansion and varies, chosen)
    base = twin if isinstance(twin, Pretrained) else twin.base
    prompt = "" if base is None else base.prompts.query
    tower = SentenceTransformer(
        modules=[Router({"query": modules}, default_route="query")],
        device="cpu",
        prompts={"query": prompt} if prompt else None,
        default_prompt_name="query" if prompt else None,
        similarity_fn_name="dot",
    )
    own = [text.strip()[:CHECKED_CHARACTERS] for text in model.items.texts[:CHECKED_TEXTS]]
    by_torch = _compute_queries(model, twin, own, chosen, expansion)
    by_backend = _compute_queries(model, model.encoder, own, chosen, expansion)
    with atomic_folder(folder, TOWER_KIND, overwrite=overwrite) as new:
        tower.save(str(new), create_model_card=False)
        loaded = SentenceTransformer(
            str(new), device="cpu", local_files_only=True, trust_remote_code=remote_code
        )
        found = np.asarray(loaded.encode_query(own, show_progress_bar=False), dtype=np.float32)
        record = TowerRecord(
            model=model.fingerprint,
            dim=model.encoder.dim + 1,
            exposure=chosen,
            varying_exposure="none" if not varies else "included" if expansion else "left out",
            expansion="none" if not expands else "included" if expansion else "left out",
            remote_code=remote_code,
            equal_tokens=equal_tokens,
            largest_difference=float(np.abs(found - by_torch).max()),
            backend_cosine=_lowest_cosine(found, by_backend),
        )
        if not record.largest_difference <= TOLERANCE:
            raise ModelError(
                "The exported query tower does not compute the model's vectors",
                got=f"a difference of {record.largest_difference:.2g} in a coordinate",
                expected=f"at most {TOLERANCE:g}",
                fix="query through `metaxc serve` or `metaxc represent --queries`, and report the encoder's name",
            )
        save_json(new / RECORD_FILE, record.model_dump())
        (new / "README.md").write_text(_describe(record), encoding="utf-8")
    return record


def _with_torch(encoder: Encoder) -> Adapted | Pretrained:
    """The same encoder, computed by torch whichever backend it was trained with."""
    if isinstance(encoder, Pretrained):
        return Pretrained(encoder.folder, None, "torch", prompts=encoder.prompts)
    if isinstance(encoder, Adapted):
        twin = copy(encoder)
        twin.base = None if encoder.base is None else _with_torch(encoder.base)  # type: ignore[assignment]
        return twin
    raise ConfigError(
        "The model has no encoder of texts",
        got=f"the encoder {encoder.kind}: vectors of your own",
        expected="an adapted, pretrained or static encoder",
        fix="append the exposure to the vectors of your own encoder (docs/sync.md)",
    )


def _compute_queries(
    model: Emmett, encoder: Encoder, texts: list[str], exposure: float, expansion: bool
) -> Floats:
    """(texts, dim + 1) float32: the vectors of a model with another encoder, expanded or not; without the expansion,
    with one exposure for all queries."""
    other = copy(model)
    other.__dict__.pop("_response", None)
    if not expansion:
        other.calibration = model.calibration.model_copy(update={"response_unit": None})
    other.encoder = encoder
    other.expansion = model.expansion if expansion else None
    return other.encode_queries(texts, exposure)


def _lowest_cosine(found: Floats, wanted: Floats) -> float:
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    return float(((found * wanted).sum(axis=1) / np.maximum(lengths, 1e-9)).min())


def _describe(record: TowerRecord) -> str:
    """The folder's README.md."""
    option = ", trust_remote_code=True" if record.remote_code else ""
    needs = (
        "It needs the package metaxc, from which the modules of bigrams, query expansion and exposure are imported.\n"
        if record.remote_code
        else "It needs sentence-transformers and nothing else.\n"
    )
    left_out = (
        "The model's query expansion was left out: the vectors are not those of `metaxc represent --queries`.\n"
        if record.expansion == "left out"
        else ""
    )
    varying = (
        "The model varies the exposure from query to query; here it is the same for all.\n"
        if record.varying_exposure == "left out"
        else ""
    )
    return (
        f"# Query tower of the metaxc model {record.model[:16]}\n\n"
        f'    SentenceTransformer("this folder"{option}).encode_query(["a query"])\n\n'
        f"{needs}{left_out}{varying}"
        f"Vectors have {record.dim} numbers; the last is the exposure, {record.exposure:g}. The score of an item is "
        "their inner product\nwith the item's vector: do not normalize them. `encode_document` is an error: the "
        "vectors of items are not made of their\ntexts alone; `metaxc represent`, a catalog and `metaxc sync` write "
        "them.\n"
    )
