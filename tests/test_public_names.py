"""What a user sees first: the names, a quick import, and the README's code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import metaxc

ROOT = Path(__file__).parent.parent


def test_every_public_name_is_importable():
    for name in metaxc.__all__:
        assert getattr(metaxc, name).__name__ == name
    assert set(metaxc.__all__) <= set(dir(metaxc))
    with pytest.raises(AttributeError, match="nonsense"):
        metaxc.nonsense  # noqa: B018


def test_importing_metaxc_is_light():
    code = "import sys, metaxc; print('torch' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_readmes_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert len(blocks) == 1
    code = blocks[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    assert code.count("assert") >= 2
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "model" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("page", "marker", "table"),
    [("README.md", "novel", "summary"), ("docs/results.md", "whole", "details")],
)
def test_the_tables_of_whole_data_sets_are_the_result_file(page, marker, table):
    command = [sys.executable, "benchmarks/novel.py", "--table", table]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert len(done.stdout.splitlines()) > 4
    assert between_markers(marker, page) == done.stdout.strip()


def test_the_readmes_example_is_what_the_demo_printed():
    printed = (ROOT / "benchmarks" / "results" / "demo.txt").read_text(encoding="utf-8")
    lines = [line.strip() for line in between_markers("demo").splitlines() if line.strip()]
    assert len(lines) > 10
    for line in lines:
        assert line in printed


def between_markers(name, page="README.md"):
    """The part of a page that is copied from elsewhere."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (part,) = re.findall(rf"<!-- {name}: begin -->\n(.*?)<!-- {name}: end -->", text, flags=re.DOTALL)
    return part.strip()


def test_the_results_page_is_what_the_result_files_say(tmp_path):
    page = tmp_path / "results.md"
    page.write_bytes((ROOT / "docs" / "results.md").read_bytes())
    command = [sys.executable, "benchmarks/results_page.py", "--page", str(page)]
    subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    for name in ("results.md", "results-depths.md"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (ROOT / "docs" / name).read_text(
            encoding="utf-8"
        )
