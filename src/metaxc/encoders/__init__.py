"""Text to vectors: pretrained, adapted to the clicks, static, or your own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metaxc.artifacts import load_json
from metaxc.encoders.adapted import Adapted, Static
from metaxc.encoders.adapter import AdapterConfig
from metaxc.encoders.cache import EmbeddingCache
from metaxc.encoders.encoder import Encoder, unit_rows
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.vectors import Vectors
from metaxc.errors import ModelError

__all__ = [
    "Adapted",
    "AdapterConfig",
    "EmbeddingCache",
    "Encoder",
    "Pretrained",
    "Static",
    "Vectors",
    "frozen_base",
    "load_encoder",
    "unit_rows",
]


def load_encoder(
    folder: Path, *, base: str | Path | None = None, cache: EmbeddingCache | None = None
) -> Encoder:
    """The encoder that `Encoder.save` wrote into `folder`.

    Args:
        folder: Verified by the caller.
        base: Where the pretrained weights are, when not where they were at training.
        cache: For the base's embeddings.
    """
    facts = load_json(folder / "encoder.json")
    kind = facts.get("kind")
    if kind == Vectors.kind:
        return Vectors.load(folder)
    if kind == Static.kind:
        return Static.load(folder, None)
    if kind == Pretrained.kind:
        return _checked_base(facts, base, cache)
    if kind == Adapted.kind:
        return Adapted.load(folder, _checked_base(facts["base"], base, cache))
    raise ModelError(
        "An encoder of an unknown kind", got=kind, expected="adapted, pretrained, static or vectors"
    )


def frozen_base(
    encoder: Encoder, source: str | Path, cache: EmbeddingCache | None, texts: Sequence[str]
) -> Encoder:
    """What an encoder began with: the pretrained weights with the backend it was trained with, or the user's own
    vectors.

    Args:
        encoder: Of a model.
        source: The pretrained weights, for a static encoder, which has none of its own.
        cache: For their embeddings.
        texts: What will be encoded, to choose a backend by where the encoder has none.
    """
    if encoder.kind in (Vectors.kind, Pretrained.kind):
        return encoder
    if isinstance(encoder, Adapted) and encoder.base is not None:
        return encoder.base
    return Pretrained(source, cache, "auto", texts=texts)


def _checked_base(facts: dict[str, str], base: str | Path | None, cache: EmbeddingCache | None) -> Pretrained:
    encoder = Pretrained(base or facts["source"], cache, facts.get("backend", "torch"))
    if encoder.fingerprint != facts["fingerprint"]:
        raise ModelError(
            "The encoder is not the one the model was trained with",
            got=f"{encoder.source} with fingerprint {encoder.fingerprint[:16]}",
            expected=f"{facts['source']} with fingerprint {facts['fingerprint'][:16]}",
            fix="give the folder of the original weights as the base encoder, or train again",
        )
    return encoder
