"""The last stage of a training run: its parts as one model, with the vectors of all items and how it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from metaxc.arrays import Floats, release_pages
from metaxc.artifacts import load_arrays, save_arrays
from metaxc.classifiers import Classifiers
from metaxc.emmett import Emmett
from metaxc.emmett.scoring import HEADS, ClassifierResponse
from metaxc.emmett.training_record import TrainingRecord
from metaxc.encoders import Encoder
from metaxc.encoders.adapted import Adapted
from metaxc.generators.generator_training import TrainedGenerator
from metaxc.irene.curves import learning_curves
from metaxc.irene.training_run import TrainingRun
from metaxc.selectors import NearestSelector
from metaxc.tuning import Constants


def assemble_model(
    run: TrainingRun,
    constants: Constants,
    encoder: Encoder,
    classifiers: Classifiers,
    queries: Floats,
    items: Floats,
    trained: TrainedGenerator,
) -> Emmett:
    """The model, with the vectors of all items.

    Args:
        run: The training run whose stages have made the parts.
        constants: What the folds decided.
        encoder: The encoder, adapted to all training clicks.
        classifiers: Of all observed items.
        queries: (queries, dim) embeddings of the training queries.
        items: (items, dim) embeddings of all items.
        trained: The generator.
    """
    embeddings = np.ascontiguousarray(items[run.observed])
    expansion = None
    if constants.expansion is not None:
        transformed = classifiers.transform_queries(queries)
        expansion = run.parts.query_expansion(transformed, run.clicks, embeddings)
        expansion = None if expansion is None else expansion.with_config(constants.expansion)
    calibration = constants.calibration
    if constants.follows_response:
        sample = np.asarray(queries[:: max(1, len(queries) // HEADS)])
        response = ClassifierResponse.fit(classifiers, classifiers.transform_queries(sample))
        calibration = calibration.model_copy(update={"response_unit": response.unit})
    model: dict[str, Any] = {
        "encoder": encoder,
        "classifiers": classifiers,
        "embeddings": embeddings,
        "generator": trained.generator,
        "items": run.dataset.items,
        "observed": run.observed,
        "neighbours": constants.combine.neighbours,
        "neighbour_prior": constants.combine.neighbour_prior,
        "calibration": calibration,
        "neighbour_vectors": trained.classifiers if run.parts.keeps_neighbour_vectors else None,
        "expansion": expansion,
        "selector": NearestSelector(embeddings),
        "trained_on": TrainingRecord.of(run.dataset),
        "selects_itself": run.config.observed_items == "generator",
        "about": _describe_training(run, constants, encoder, trained.losses),
    }

    for mapped in (queries, items):  # read, and hardly needed from here on
        release_pages(mapped)

    def build_index(out: Path) -> None:
        vectors = Emmett(**model, item_embeddings=items).vectors
        save_arrays(out / "index.safetensors", {"vectors": vectors})

    folder = run.stages.run("index", {}, build_index)
    recall = model["selector"].items.measure_recall()
    if recall is not None:
        run.stages.report(f"neighbours through an index: {recall:.1%} of the ten nearest are found")
        model["about"]["neighbour_recall"] = recall
    return Emmett(**model, vectors=load_arrays(folder / "index.safetensors")["vectors"])


def _describe_training(
    run: TrainingRun, constants: Constants, encoder: Encoder, losses: list[float]
) -> dict[str, Any]:
    """How the model was trained, for people and reports."""
    chosen = constants.to_dict()
    return {
        "inputs": run.inputs,
        "data": {"name": run.dataset.name, "fingerprint": run.dataset.fingerprint},
        "config": run.config.model_dump(),
        "constants": {
            "generator": constants.generator,
            **chosen["combine"],
            **chosen["calibration"],
            "expansion": chosen["expansion"],
            "adaptation": constants.adaptation,
            "follows_response": constants.follows_response,
            "word_matches": constants.word_matches,
        },
        "compared": constants.compared,
        "adaptations": constants.adaptations,
        "exposure_curve": constants.exposure_curve,
        "pseudo_novel": constants.pseudo_novel,
        "curves": learning_curves(
            {
                "encoder": encoder.towers.losses if isinstance(encoder, Adapted) else [],
                "generator": losses,
            }
        ),
        "fine_tuning": [list(one) for one in run.bases.validation],
        "novel_items": run.novel_items,
        "clicks": int(run.clicks.nnz),
        "queries": len(run.query_rows),
        **({"exclude_self": True} if run.dataset.exclude_self else {}),
    }
