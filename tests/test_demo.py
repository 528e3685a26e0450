"""What `make demo` shows, on the shop's small world, and the commands that it runs."""

import importlib.util
import re
import sys
from itertools import count
from pathlib import Path

import pytest

from metaxc import EmbeddingCache, Irene
from metaxc.data import split
from metaxc.encoders.training import recipes

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def demo():
    specification = importlib.util.spec_from_file_location("demo", ROOT / "demo.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trained(shop, tiny):
    dataset, _ = split(shop, novel=0.1, test=0.2, seed=0)
    how, better_and_better = {"steps": 4, "batch": 16}, count().__next__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaxc.data.folds.FEWEST_QUERIES", 3)  # the shop is small
        patch.setattr(recipes, "_build_validation", lambda data: lambda encoder: better_and_better())
        return Irene(base=str(tiny), folds=1, fine_tuning=how, adapter={"epochs": 2}).fit(dataset), dataset


def test_four_rows_with_the_figures_of_the_evaluation(demo, trained, capsys, tmp_path):
    model, dataset = trained
    demo.print_accuracy(model, dataset, EmbeddingCache(tmp_path))
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    names = ["bare encoder", "fine-tuned encoder alone", "adapted encoder alone", "metaxc"]
    assert [row[0].strip() for row in rows] == names
    found = model.evaluate(dataset, intervals=False)
    expected = [
        found[setting][metric] for setting in ("zero_shot", "generalized") for metric in ("P@1", "R@10")
    ]
    expected.append(found.by_kind.kinds["novel"]["R@10"].value)
    assert [cell.strip() for cell in rows[3][1:]] == [f"{value:.1f}" for value in expected]


def clicked_ids(dataset, row):
    return {dataset.items.ids[item] for item in dataset.test.clicks[[row]].indices}


def test_three_queries_with_marks(demo, trained, capsys):
    model, dataset = trained
    demo.print_answers(model, dataset)
    printed = capsys.readouterr().out
    queries = re.findall(r"^query: (.+?) *$", printed, re.MULTILINE)
    assert len(queries) == 3
    rows = [dataset.test.queries.texts.index(query) for query in queries]
    found = model.search(dataset.test.queries.texts, k=5)
    right = [
        sum(hit.novel and hit.id in clicked_ids(dataset, row) for hit in hits)
        for row, hits in enumerate(found)
    ]
    best = {}  # the first query of each first answer, in the order of what it finds
    for row in sorted(range(len(found)), key=lambda row: -right[row]):
        best.setdefault(found[row][0].id, row)
    assert rows == list(best.values())[:3]
    assert right[rows[0]] > 0
    answers = [line for line in printed.splitlines() if line.startswith("│")]
    assert len(answers) == 15
    clicked = [clicked_ids(dataset, row) for row in rows]
    hits = [hit for found in model.search(queries, k=5) for hit in found]
    for place, (line, hit) in enumerate(zip(answers, hits, strict=True)):
        assert ("novel" in line) == hit.novel
        assert ("clicked" in line) == (hit.id in clicked[place // 5])


def test_the_novel_item_has_neighbours_with_weight_and_a_click_moves_it(demo, trained, capsys):
    model, dataset = trained
    row = demo.choose_novel(model, dataset)
    assert dataset.novel_mask[row]
    explained = model.explain(dataset.items.texts[row])
    assert explained.neighbour_share > 1
    demo.print_first_click(model, dataset, row)
    printed = capsys.readouterr().out
    for neighbour in explained.neighbours:
        assert re.search(
            rf"│ {neighbour.text} +│ +{neighbour.similarity:.3f} │ +{neighbour.weight:.3f} ", printed
        )
    (click,) = [line for line in printed.splitlines() if "the click" in line]
    before, after = (float(score) for score in re.findall(r"\((-?\d+\.\d+)\)", click))
    assert after > before
    made = dict(re.findall(r"^(before|after) +(\w+): ", printed, re.MULTILINE))
    assert made == {"before": "novel", "after": "clicked"}
    assert re.search(r"^after .*its own clicks [\d.]+ %", printed, re.MULTILINE)


def test_a_command_that_fails_ends_the_demo(demo, tmp_path, capfd):
    with pytest.raises(SystemExit) as ended:
        demo.metaxc("data", "check", tmp_path / "nothing")
    assert ended.value.code
    assert "$ metaxc data check" in capfd.readouterr().out


def test_an_unknown_source_is_refused(demo, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo.py", "penguins"])
    with pytest.raises(SystemExit):
        demo.main()
    printed = capsys.readouterr().err
    assert all(source in printed for source in ("penguins", *demo.SOURCES))
