"""What the benchmarks of choices share: one fold of pseudo-novel items, its encoders trained once each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metaxc import EmbeddingCache, Pretrained, read_folder
from metaxc.data.clicks import training_clicks
from metaxc.data.folds import Fold
from metaxc.encoders import AdapterConfig, Encoder
from metaxc.encoders.learning import Encoding, FixedEncoding, TowerEncoding
from metaxc.irene import IreneConfig
from metaxc.irene.choosing import choose_constants

CACHE = EmbeddingCache()


class Remembered:
    """An encoding that learns once from the same part of the clicks, whoever asks."""

    def __init__(self, encoding: Encoding):
        self.encoding = encoding
        self.encoders: dict[bytes, Encoder] = {}

    def learn(self, query_rows, item_rows, clicks, seed):
        key = query_rows.tobytes() + item_rows.tobytes()
        if key not in self.encoders:
            self.encoders[key] = self.encoding.learn(query_rows, item_rows, clicks, seed)
        return self.encoders[key]

    def embed(self, *arguments):
        return self.encoding.embed(*arguments)


class Lab:
    """A data set whose choices are compared on pseudo-novel items."""

    def __init__(self, folder: Path):
        self.dataset = read_folder(folder)
        self.base = Pretrained(cache=CACHE)
        self.clicks = training_clicks(self.dataset)
        self.encodings: dict[str, Remembered] = {}

    def tune(self, config: IreneConfig) -> dict[str, Any]:
        """Constants and pseudo-novel quality of a configuration; equal encoders are trained once."""
        key = f"{config.encoder} {config.adapter}"
        if key not in self.encodings:
            self.encodings[key] = Remembered(self._encoding(config.encoder, config.adapter))
        folds = Fold.partition(self.clicks[2], config.seed, config.folds)
        return choose_constants(config, self.encodings[key], *self.clicks, folds).constants

    def _encoding(self, kind: str, adapter: AdapterConfig) -> Encoding:
        if kind == "pretrained":
            return FixedEncoding(self.base, self.dataset)
        return TowerEncoding(self.base, self.dataset, adapter, static=kind == "static")


def compare(folders: list[Path], rows: list[tuple[str, dict[str, Any]]], folds: int, out: Path) -> None:
    """Judge every named configuration on every data set, print as it goes, and merge into the result file."""
    for folder in folders:
        lab = Lab(folder)
        for name, settings in rows:
            found = lab.tune(IreneConfig.model_validate({**settings, "folds": folds}))
            scores = found["pseudo_novel"]
            cells = "   ".join(f"{s} {v['P@1']:5.1f} / {v['R@10']:5.1f}" for s, v in scores.items())
            print(f"{folder.name:15} {name:45} {cells}", flush=True)
            results = json.loads(out.read_text()) if out.exists() else {}
            results.setdefault(folder.name, {})[name] = {"settings": settings, "folds": folds, **found}
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
