"""The documentation: the tutorial runs, the reference is complete, and the check of the site finds what is broken."""

import importlib.util
from pathlib import Path

import pytest

import metaxc

ROOT = Path(__file__).parent.parent
TUTORIAL = ROOT / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def site():
    pytest.importorskip("nbconvert", reason="needs the extra docs")
    specification = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_tutorial_runs():
    nbclient = pytest.importorskip("nbclient", reason="needs the extra dev")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(TUTORIAL, as_version=4)
    saved = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert saved
    assert all(saved), "the notebook is kept with its results: run it, and save it"
    nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3").execute()
    for before, cell in zip(saved, (c for c in notebook.cells if c.cell_type == "code"), strict=True):
        results = [
            [one for one in outputs if one.output_type == "execute_result"]
            for outputs in (before, cell.outputs)
        ]
        assert len(results[0]) == len(results[1])
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert code.count("assert ") >= 5


def test_the_tutorial_becomes_a_page_with_its_results(site, tmp_path):
    site.write_tutorial(TUTORIAL, tmp_path)
    page = (tmp_path / "tutorial.md").read_text(encoding="utf-8")
    assert page.startswith("# Tutorial")
    assert "dataset = Dataset.of(items, queries, clicks)" in page
    assert "minimalist running sandals: its own text" in page


def test_the_reference_has_every_public_name(site):
    page = site.render_reference()
    for name in metaxc.__all__:
        assert f"\n## {name}\n\n::: metaxc." in page
    for path in site.MORE_NAMES:
        module, name = path.rsplit(".", 1)
        assert getattr(importlib.import_module(module), name)


def test_broken_links_and_foreign_hosts_are_found(site, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "file.json").write_text("{}")
    good = '<a href="../file.json">f</a> <a href="#here">h</a> <a href="https://example.org">e</a>'
    (tmp_path / "docs" / "page.html").write_text(good)
    assert list(site.find_problems(tmp_path)) == []
    bad = (
        '<img src="missing.png"> <script src="https://example.org/x.js"></script> <a href="gone.html#a">g</a>'
    )
    (tmp_path / "docs" / "page.html").write_text(bad)
    found = list(site.find_problems(tmp_path))
    assert len(found) == 3
    for one in ("refers to missing.png", "loads https://example.org/x.js", "refers to gone.html#a"):
        assert any(one in problem for problem in found)


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f'"docs/{page.name}"' in navigation
