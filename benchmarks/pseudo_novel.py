"""What the studies on pseudo-novel items share: fitted folds of a data set, and result files that are merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metaxc import EmbeddingCache, Pretrained, read_folder
from metaxc.data.clicks import training_clicks
from metaxc.data.folds import Fold, draw_folds
from metaxc.encoders.learning import CachedEncoding, Encoding, FixedEncoding, TowerEncoding
from metaxc.irene import IreneConfig
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.tuning import FittedFold, choose_constants, fit_fold, learn_fold_encoder


class FoldLab:
    """A data set whose settings are compared on pseudo-novel items.

    Args:
        folder: The data set's folder.
        encoders: A folder that keeps adapted encoders, so that each is trained once.
        cache: A folder for embeddings; the default one when None.
    """

    def __init__(self, folder: Path, encoders: Path, cache: Path | None = None):
        self.dataset = read_folder(folder)
        self.encoders = encoders
        self.base = Pretrained(cache=EmbeddingCache(cache))
        self.observed, self.query_rows, self.clicks = training_clicks(self.dataset)

    def folds(self, config: IreneConfig) -> list[Fold]:
        """The folds of a configuration."""
        training = (self.observed, self.query_rows, self.clicks)
        return draw_folds(self.dataset, training, config.folds, config.seed)

    def fit(self, config: IreneConfig) -> list[FittedFold]:
        """The folds, with everything but the generator fitted."""
        parts, encoding = ConfiguredParts(config), self._encoding(config)
        data = (self.observed, self.query_rows, self.clicks)
        folds = self.folds(config)
        encoders = [learn_fold_encoder(parts, encoding, fold, *data) for fold in folds]
        return [
            fit_fold(parts, encoding, encoder, fold, *data)
            for fold, encoder in zip(folds, encoders, strict=True)
        ]

    def tune(self, config: IreneConfig) -> dict[str, Any]:
        """The constants of a configuration, and its quality on pseudo-novel items."""
        return choose_constants(ConfiguredParts(config), self.fit(config))[0].to_dict()

    def _encoding(self, config: IreneConfig) -> Encoding:
        if config.encoder == "pretrained":
            return FixedEncoding(self.base, self.dataset)
        static = config.encoder == "static"
        return CachedEncoding(
            TowerEncoding(self.base, self.dataset, config.adapter, static=static), self.encoders
        )


def merge_results(out: Path, name: str, found: dict[str, Any]) -> None:
    """Update the entry of one data set in a result file."""
    results = json.loads(out.read_text()) if out.exists() else {}
    results.setdefault(name, {}).update(found)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def format_quality(found: dict[str, Any]) -> str:
    """P@1 / R@10 of both settings, for printing."""
    names = ("zero_shot", "generalized")
    return "   ".join(f"{name} {found[name]['P@1']:5.1f} / {found[name]['R@10']:5.1f}" for name in names)


def compare(
    folders: list[Path], rows: list[tuple[str, dict[str, Any]]], folds: int, encoders: Path, out: Path
) -> None:
    """Tune every named configuration on every data set, print as it goes, and merge into the result file."""
    for folder in folders:
        lab = FoldLab(folder, encoders)
        for name, settings in rows:
            found = lab.tune(IreneConfig.model_validate({**settings, "folds": folds}))
            print(f"{folder.name:15} {name:45} {format_quality(found['pseudo_novel'])}", flush=True)
            merge_results(out, folder.name, {name: {"settings": settings, "folds": folds, **found}})
