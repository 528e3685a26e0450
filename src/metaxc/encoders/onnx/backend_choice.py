"""Which backend may stand in for torch: the fastest that agrees with it on a sample of the very texts.

The sample is embedded by torch and by the candidate, and both have to hold: the embeddings point the same way (mean
cosine), and they rank the same (each text's nearest others in the sample are mostly the same ones). The second is what
retrieval needs; the first catches an encoder that has gone wrong as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Floats
from metaxc.artifacts import load_json, save_json
from metaxc.encoders.onnx.onnx_install import INSTALL, missing
from metaxc.errors import MetaxcError
from metaxc.index.topk import top_k

Encode = Callable[[Sequence[str]], Floats]

SAMPLE = 256
NEAREST = 10


@dataclass(frozen=True)
class Parity:
    """How far two sets of embeddings of one sample agree.

    Args:
        cosine: Mean cosine of the two embeddings of a text.
        neighbours: Share of a text's nearest others that are the same by both, in the mean.
    """

    cosine: float
    neighbours: float

    def __str__(self) -> str:
        return f"cosine {self.cosine:.4f}, neighbours {self.neighbours:.3f}"

    def reaches(self, asked: Parity) -> bool:
        """Whether both figures are at least those asked for; NaN is not."""
        return self.cosine >= asked.cosine and self.neighbours >= asked.neighbours


LEAST = {"onnx-int8": Parity(0.99, 0.9), "onnx": Parity(0.9999, 0.99)}
"""What a backend has to reach. int8: the default weights stand above both, and cost 0.3 points of zero-shot R@10 on
icd10cm (docs/encoders.md). Where exactly harm begins was not measured: the bounds are set a little below what was.
float32: the same but for rounding."""


def sample_of(texts: Sequence[str], most: int = SAMPLE) -> list[str]:
    """At most `most` texts, evenly from first to last: the same texts give the same sample."""
    places = np.linspace(0, len(texts) - 1, min(most, len(texts))).astype(np.int64)
    return [texts[place] for place in places.tolist()]


def parity(reference: Floats, candidate: Floats) -> Parity:
    """How far (texts, dim) unit embeddings agree with those of a reference."""
    cosine = float((reference * candidate).sum(axis=1).mean())
    most = min(NEAREST, len(reference) - 1)
    if most < 1 or not np.isfinite(candidate).all():
        return Parity(cosine, 1.0 if np.isfinite(cosine) else 0.0)
    near = [_nearest_others(vectors, most) for vectors in (reference, candidate)]
    same = (near[0][:, :, None] == near[1][:, None, :]).any(axis=2)
    return Parity(cosine, float(same.mean()))


def _nearest_others(vectors: Floats, k: int) -> NDArray[np.int64]:
    rows, _ = top_k(vectors, vectors, k + 1)
    itself = rows == np.arange(len(rows))[:, None]
    itself[~itself.any(axis=1), -1] = True  # among duplicates a text may not be its own nearest
    others: NDArray[np.int64] = rows[~itself].reshape(len(rows), k)
    return others


def choose(
    texts: Sequence[str], plain: bool, encoders: Callable[[str], Encode], report: Callable[[str], None]
) -> str:
    """The fastest backend that agrees with torch on a sample of `texts`; every one passed over is reported with
    its reason.

    Args:
        texts: What will be encoded.
        plain: Whether the model takes nothing but token ids; others stay on torch.
        encoders: A backend's name to what encodes with it.
        report: Called with one line per decision.
    """
    if not plain or not texts:
        return "torch"
    if missing():
        report(
            f"encode with torch: {' and '.join(missing())} not installed; {INSTALL} makes encoding over twice as fast"
        )
        return "torch"
    sample = sample_of(texts)
    reference = encoders("torch")(sample)
    for backend, least in LEAST.items():
        try:
            found = parity(reference, encoders(backend)(sample))
        except MetaxcError as error:
            report(f"{backend} passed over: {error.what}, {error.got}")
            continue
        if found.reaches(least):
            report(f"encode with {backend}: {found} with torch on {len(sample)} of the texts")
            return backend
        report(f"{backend} passed over: {found} with torch on {len(sample)} of the texts; {least} asked for")
    report("encode with torch")
    return "torch"


def remembered(file: Path | None, decide: Callable[[], str]) -> str:
    """What was decided before and stands in `file`; decided now, and written there, where nothing does."""
    if file is not None:
        try:
            known = load_json(file)["backend"]
            if known in LEAST or known == "torch":
                return str(known)
        except (MetaxcError, KeyError, TypeError):
            pass  # absent or damaged
    decided = decide()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.{os.getpid()}")
        save_json(new, {"backend": decided})
        new.replace(file)
    return decided
