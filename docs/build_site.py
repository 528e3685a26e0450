"""Builds the documentation site in site/, offline. `make docs` runs it; a broken link is an error.

The pages are put together in build/site-source/ in the places that they have in the repository, so that their links are
right in both: the README is the home page, the tutorial is the notebook with its results, and the API reference has the
public names of `metaxc`, from their docstrings.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
from nbconvert import MarkdownExporter

import metaxc

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "build" / "site-source"
MORE_NAMES = (
    "metaxc.emmett.hits.Hits",
    "metaxc.emmett.pipeline.Explanation",
    "metaxc.evaluation.protocol.Evaluation",
    "metaxc.scale.partitions.represent_files",
    "metaxc.scale.represent_batch.RepresentBatch",
    "metaxc.serve.client.Client",
)
"""What public functions return, vectors of large data, and the client of the service."""


def render_reference() -> str:
    """A page with a heading and a directive of mkdocstrings for each public name."""
    public = [getattr(metaxc, name) for name in metaxc.__all__]
    paths = [f"{one.__module__}.{one.__qualname__}" for one in public]
    sections = [
        f"## {path.rsplit('.', 1)[1]}\n\n::: {path}\n" for path in (*sorted(paths, key=_last), *MORE_NAMES)
    ]
    return "\n".join(["# API reference\n", "From the docstrings of the public names.\n", *sections])


def _last(path: str) -> str:
    return path.rsplit(".", 1)[1].lower()


def write_tutorial(notebook: Path, folder: Path) -> None:
    """Write a notebook as a page, with the results that are saved in it."""
    body, resources = MarkdownExporter().from_notebook_node(nbformat.read(notebook, as_version=4))
    (folder / f"{notebook.stem}.md").write_text(body, encoding="utf-8")
    for name, content in resources.get("outputs", {}).items():
        (folder / name).write_bytes(content)


def assemble() -> None:
    """Put the pages together."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(
        ROOT / "docs", SOURCE / "docs", ignore=shutil.ignore_patterns("*.py", "*.ipynb", "__pycache__")
    )
    shutil.copytree(ROOT / "benchmarks" / "results", SOURCE / "benchmarks" / "results")
    readme = (
        (ROOT / "README.md").read_text(encoding="utf-8").replace("docs/tutorial.ipynb", "docs/tutorial.md")
    )
    (SOURCE / "README.md").write_text(readme, encoding="utf-8")
    for name in ("CHANGELOG.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, SOURCE)
    write_tutorial(ROOT / "docs" / "tutorial.ipynb", SOURCE / "docs")
    (SOURCE / "docs" / "reference.md").write_text(render_reference(), encoding="utf-8")


class _References(HTMLParser):
    """Collects what a page links to, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and {"stylesheet", "icon", "preload"} & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])


def find_problems(site: Path) -> Iterator[str]:
    """Links to files that are not there, which zensical does not look for, and what is loaded from other hosts."""
    for page in sorted(site.rglob("*.html")):
        references = _References()
        references.feed(page.read_text(encoding="utf-8"))
        for target in references.loaded:
            if urlsplit(target).netloc:
                yield f"{page.relative_to(site)} loads {target} from another host"
        for target in (*references.links, *references.loaded):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or not parts.path or page.name == "404.html":
                continue
            if not (page.parent / unquote(parts.path)).exists():
                yield f"{page.relative_to(site)} refers to {target}, which the site does not have"


def main() -> None:
    """Assemble, build and check."""
    assemble()
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        "zensical.toml",
    ]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(1)
    problems = list(find_problems(ROOT / "site"))
    sys.exit("\n".join(problems) or None)


if __name__ == "__main__":
    main()
