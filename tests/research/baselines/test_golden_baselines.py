"""Every baseline gives what it gave when its record was made."""

import pytest

from metaxc import Irene, IreneConfig, evaluate
from metaxc.research.baselines import BASELINES, Retrained, scorer_search


@pytest.mark.parametrize("kind", [*BASELINES, "Retrained"])
def test_baseline(kind, market, hashed, golden):
    if kind == "Retrained":
        baseline = Retrained(Irene(IreneConfig(folds=0), encoder=hashed))
    else:
        baseline = BASELINES[kind].build(hashed)
    fitted = baseline.fit(market)
    found = evaluate(scorer_search(fitted, len(market.items)), market, intervals=False)
    scores = fitted.scores(market.test.queries.texts)
    value = {setting: dict(found[setting]) for setting in ("zero_shot", "generalized")}
    value["scores"] = [round(float(score), 5) for score in scores[:3].ravel()]
    golden(f"baseline_{kind}", value)
