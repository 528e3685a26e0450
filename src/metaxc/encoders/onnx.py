"""The backends that compute a pretrained encoder, and how `auto` chooses one.

`auto` takes the fastest backend that agrees with torch on a sample of the texts to encode. Two figures must be high
enough: the mean cosine of the two embeddings of a text, which shows an encoder that is wrong as a whole, and the share
of each text's nearest neighbours that are the same, which is what retrieval needs. The ONNX backends need the extra
`fast`; everything works without it, more slowly.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import atomic_file, json_digest, load_json, save_json
from metaxc.encoders import Backend
from metaxc.errors import MetaxcError
from metaxc.index.topk import top_k

__all__ = ["Backend", "Parity", "choose_backend", "compute_parity", "recall_or_choose", "sample_texts"]

BACKENDS: tuple[Backend, ...] = get_args(Backend)
PACKAGES = ("onnx", "onnxruntime")
INSTALL = "pip install 'metaxc[fast]'"

SETTINGS = {
    "onnx": "float32, fused attention",
    "onnx-int8": "uint8 activations scaled per token, int8 weights per output channel, attention in float32",
}
"""What each ONNX backend computes. The text is part of the encoder's fingerprint, so it changes only when the
computation does. Rounding in the last digits, which differs between CPUs, is not: a model moves between machines."""

SAMPLE = 256
NEAREST = 10


@dataclass(frozen=True)
class Parity:
    """How well two encoders agree on a sample of texts.

    Args:
        cosine: The mean cosine similarity of the two embeddings of a text.
        neighbours: The mean share of a text's nearest neighbours that both encoders agree on.
    """

    cosine: float
    neighbours: float

    def __str__(self) -> str:
        return f"cosine {self.cosine:.4f}, neighbours {self.neighbours:.3f}"

    def reaches(self, required: Parity) -> bool:
        """Whether both figures are at least the required ones; NaN is not."""
        return self.cosine >= required.cosine and self.neighbours >= required.neighbours


REQUIRED = {"onnx-int8": Parity(0.99, 0.9), "onnx": Parity(0.9999, 0.99)}
"""What a backend must reach, the fastest backend first. int8: the default weights are above both figures, and cost 0.3
points of zero-shot R@10 on icd10cm (docs/encoders.md); the bounds are a little below what was measured, and where harm
begins was not measured. float32: equal to torch except for rounding."""


def backend_fingerprint(weights: str, backend: str) -> str:
    """The fingerprint of an encoder, from its weights and the backend that computes it. Torch adds nothing, so that
    models from before there was a choice keep their fingerprint."""
    return weights if backend == "torch" else json_digest([weights, backend, SETTINGS[backend]])


def missing_packages() -> list[str]:
    """The packages that ONNX needs and that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def onnx_versions() -> list[str]:
    """The versions and settings that, with the weights and the texts, decide which backend is chosen."""
    missing = missing_packages()
    return [f"{name} {'missing' if name in missing else version(name)}" for name in PACKAGES] + list(
        SETTINGS.values()
    )


def sample_texts(texts: Sequence[str], size: int = SAMPLE) -> list[str]:
    """At most `size` texts, evenly spaced from first to last: the same texts give the same sample."""
    places = np.linspace(0, len(texts) - 1, min(size, len(texts))).astype(np.int64)
    return [texts[place] for place in places.tolist()]


def compute_parity(reference: Floats, candidate: Floats) -> Parity:
    """How well (texts, dim) unit embeddings agree with the reference embeddings of the same texts."""
    cosine = float((reference * candidate).sum(axis=1).mean())
    k = min(NEAREST, len(reference) - 1)
    if k < 1 or not np.isfinite(candidate).all():
        return Parity(cosine, 1.0 if np.isfinite(cosine) else 0.0)
    expected, found = _nearest_others(reference, k), _nearest_others(candidate, k)
    same = (expected[:, :, None] == found[:, None, :]).any(axis=2)
    return Parity(cosine, float(same.mean()))


def _nearest_others(vectors: Floats, k: int) -> Rows:
    rows, _ = top_k(vectors, vectors, k + 1)
    itself = rows == np.arange(len(rows))[:, None]
    itself[~itself.any(axis=1), -1] = True  # among duplicates a text may not be its own nearest
    others: Rows = rows[~itself].reshape(len(rows), k)
    return others


def choose_backend(
    texts: Sequence[str],
    exportable: bool,
    encoder_for: Callable[[str], Callable[[Sequence[str]], Floats]],
    report: Callable[[str], None],
) -> str:
    """The fastest backend that agrees with torch on a sample of `texts`.

    Args:
        texts: The texts that will be encoded.
        exportable: Whether the model can be exported to ONNX; other models stay on torch.
        encoder_for: Returns the function that encodes texts with the named backend.
        report: Called with one line for each backend that is chosen or rejected, and why.
    """
    if not exportable or not texts:
        return "torch"
    if missing := missing_packages():
        report(
            f"encode with torch: {' and '.join(missing)} not installed; {INSTALL} makes encoding over twice as fast"
        )
        return "torch"
    sample = sample_texts(texts)
    reference = encoder_for("torch")(sample)
    for backend, required in REQUIRED.items():
        try:
            parity = compute_parity(reference, encoder_for(backend)(sample))
        except MetaxcError as error:
            report(f"{backend} rejected: {error.what}, {error.got}")
            continue
        if parity.reaches(required):
            report(f"encode with {backend}: {parity} with torch on {len(sample)} of the texts")
            return backend
        report(f"{backend} rejected: {parity} with torch on {len(sample)} of the texts; {required} required")
    report("encode with torch")
    return "torch"


def recall_or_choose(file: Path | None, choose: Callable[[], str]) -> str:
    """The backend that `file` names, or else the result of `choose`, written to `file` for the next time."""
    if file is None:
        return choose()
    try:
        known = load_json(file)["backend"]
        if known in REQUIRED or known == "torch":
            return str(known)
    except (MetaxcError, KeyError, TypeError):
        pass  # absent or damaged
    chosen = choose()
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as new:
        save_json(new, {"backend": chosen})
    return chosen
