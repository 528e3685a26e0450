"""The digest of the source files that decide a figure."""

import pytest

from metaxc.errors import ConfigError
from metaxc.research.bench import TABLES
from metaxc.research.code_version import (
    BASELINES,
    MEASUREMENT,
    METHOD_SOURCES,
    MODEL,
    PACKAGE,
    digest_sources,
    git_commit,
    hash_sources,
    source_digest,
)

FILES = {
    "metrics.py": "a = 1\n",
    "irene/irene.py": "b = 2\n",
    "irene/config.py": "c = 3\n",
    "irene_notes.py": "d = 4\n",
    "data/clicks.py": "e = 5\n",
    "data/sources/download.py": "f = 6\n",
    "cli/train.py": "g = 7\n",
}
PARTS = ("metrics.py", "irene", "data")


@pytest.fixture
def digest(tmp_path):
    """The digest of a package of these files, some of them changed."""

    def digest(parts=PARTS, **changes):
        for name, text in {**FILES, **changes}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())
        return digest_sources(hash_sources(tmp_path), parts)

    return digest


def test_a_change_to_the_method_changes_the_digest(digest):
    before = digest()
    assert digest() == before
    for name in ("metrics.py", "irene/irene.py", "irene/config.py", "data/clicks.py"):
        assert digest(**{name: "changed = True\n"}) != before
        digest()
    assert digest(**{"irene/new.py": ""}) != before


def test_nothing_else_changes_it(digest):
    before = digest()
    for name in ("cli/train.py", "irene_notes.py", "data/sources/download.py", "irene/README.md"):
        assert digest(**{name: "changed = True\n"}) == before
    assert digest(**{"metrics.py": "a = 1\r\n"}) == before


def test_words_do_not_change_it_and_numbers_do(digest):
    """A comment, a docstring of a module, a function or a constant, and blank lines are no method."""
    plain = {"metrics.py": "a = 1\n\ndef f(x):\n    return '# no comment' + x\n"}
    before = digest(**plain)
    worded = (
        '"""What."""\n# why\na = 1  # one\n"""The number."""\n\n\ndef f(x):\n    """Do it.\n\n    So."""\n\n'
    )
    assert digest(**{"metrics.py": worded + "    return '# no comment' + x\n"}) == before
    assert digest(**{"metrics.py": worded + "    return '# a comment' + x\n"}) != before
    assert (
        digest(**{"metrics.py": worded.replace("a = 1", "a = 2") + "    return '# no comment' + x\n"})
        != before
    )


def test_unusual_characters_in_strings_do_not_shift_the_lines(digest):
    """Python counts lines by line feeds; str.splitlines would also break at these characters."""
    plain = digest(**{"metrics.py": "a = '\u2028 \x0c'\nb = 1\n"})
    assert digest(**{"metrics.py": "a = '\u2028 \x0c'\nb = 1  # why\n"}) == plain


def test_each_row_has_the_digest_of_its_parts(digest):
    assert digest(("irene",)) != digest(("data",)) != digest()
    assert digest(("data", "irene", "metrics.py")) == digest()


def test_the_name_of_a_file_counts(digest, tmp_path):
    before = digest()
    (tmp_path / "irene/config.py").rename(tmp_path / "irene/settings.py")
    assert digest_sources(hash_sources(tmp_path), PARTS) != before


def test_a_part_that_does_not_exist_is_an_error(digest):
    with pytest.raises(ConfigError, match="nothing"):
        digest(("irene", "nothing"))


def test_the_parts_of_this_package_exist_and_leave_out_what_is_no_method():
    assert len(source_digest()) == 64
    assert {*MEASUREMENT, *MODEL, *BASELINES} == {*METHOD_SOURCES}
    outside = {"cli", "serve", "catalog", "integrations", "scale"}
    assert not any(part.split("/")[0] in outside for part in METHOD_SOURCES)
    known = {path.name for path in PACKAGE.iterdir()} - outside - {"__pycache__", "py.typed"}
    # Who adds a module decides whether figures depend on it.
    assert known - {part.split("/")[0] for part in METHOD_SOURCES} == {
        *("__init__.py", "__main__.py", "artifacts.py", "errors.py", "extras.py", "output_claims.py")
    }


def test_the_sources_of_every_row_exist():
    for build in TABLES.values():
        for row in build().rows:
            assert len(source_digest(row.sources)) == 64


def test_no_commit_outside_a_work_tree(tmp_path):
    assert git_commit(tmp_path) is None
