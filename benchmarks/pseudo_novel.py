"""What the studies on pseudo-novel items share: fitted folds of a data set, and result files that are merged."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import metaxc as package
from metaxc import EmbeddingCache, Irene, read_folder
from metaxc.artifacts import Stages
from metaxc.data.clicks import training_clicks
from metaxc.irene import IreneConfig
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.irene.training_run import TrainingRun
from metaxc.research.code_version import git_commit
from metaxc.tuning import (
    ENCODER_ALONE,
    FittedFold,
    MixedQuality,
    Setting,
    Shortlist,
    choose_constants,
    compare_generators,
    tune_query_expansion,
)


class FoldLab:
    """A data set whose settings are compared on pseudo-novel items, by the code that training uses.

    Args:
        folder: The data set's folder.
        encoders: A folder that keeps adapted encoders, so that each is trained once.
        cache: A folder for embeddings; the default one when None.
    """

    def __init__(self, folder: Path, encoders: Path, cache: Path | None = None):
        self.dataset = read_folder(folder)
        self.encoders, self.cache = encoders, EmbeddingCache(cache)
        self.observed, self.query_rows, self.clicks = training_clicks(self.dataset)

    def fit(self, config: IreneConfig) -> list[FittedFold]:
        """The folds of a configuration, with everything but the generator fitted."""
        irene = Irene(config, cache=self.cache, encoder_cache=self.encoders)
        with tempfile.TemporaryDirectory() as folder:
            stages = Stages(Path(folder), lambda line: None)
            run = TrainingRun(
                config, self.dataset, stages, None, self.cache, self.encoders, irene.inputs(self.dataset)
            )
            choice = run.constant_choice()
            return choice.fit_folds(choice.learn_encoders())

    def tune(self, config: IreneConfig) -> dict[str, Any]:
        """The constants of a configuration, and its quality on pseudo-novel items."""
        return choose_constants(ConfiguredParts(config), self.fit(config))[0].to_dict()

    def shortlists(self) -> tuple[list[Shortlist], list[MixedQuality], Setting]:
        """What the default's calibration is chosen on, with an exposure that follows the query: the shortlists of all
        folds, the quality of the encoder alone on each, and the setting that the search starts from."""
        config = IreneConfig()
        folds = self.fit(config)
        candidate = compare_generators(ConfiguredParts(config), folds)[0]
        plain = [fold.shortlist(one) for fold, one in zip(folds, candidate.items, strict=True)]
        alone = [one.quality(ENCODER_ALONE) for one in plain]
        expansion = tune_query_expansion(folds, candidate.items, candidate.choice.setting)
        if expansion is None:
            return plain, alone, candidate.choice.setting
        pairs = zip(folds, candidate.items, strict=True)
        expanded = [fold.expanded(expansion).shortlist(one) for fold, one in pairs]
        return expanded, alone, candidate.choice.setting


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
    folders: list[Path],
    rows: list[tuple[str, dict[str, Any]]],
    folds: int,
    encoders: Path,
    out: Path,
    cache: Path | None = None,
) -> None:
    """Tune every named configuration on every data set, print as it goes, and merge into the result file."""
    for folder in folders:
        lab = FoldLab(folder, encoders, cache)
        for name, settings in rows:
            config = IreneConfig.model_validate({**settings, "folds": folds})
            found = lab.tune(config)
            print(f"{folder.name:15} {name:45} {format_quality(found['pseudo_novel'])}", flush=True)
            origin = {
                "commit": git_commit(Path(package.__file__).parent),
                "command": f"python benchmarks/{Path(sys.argv[0]).name} {folder.name} --rows {name!r}",
                "data": lab.dataset.fingerprint,
                "seed": config.seed,
            }
            merge_results(out, folder.name, {name: {"settings": settings, "folds": folds, **origin, **found}})
