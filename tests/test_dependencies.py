"""Minimum versions are the tested ones, and the lock file is that of the pinned versions."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


NOT_PINNED = {"sync-lance"}
"""Extras that CI does without because of their size (pylance: 85 MB); their tests are skipped without them."""

FRAMEWORKS = {"langchain", "llama-index", "haystack", "ray"}
"""Extras that `make test-integrations` installs beside the environment of all other tests."""


def pinned(file):
    """Version of each package of a file of `name==version` lines."""
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / file).read_text(), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in lines}


def required(*extras):
    """The requirements of the package and of some extras."""
    found = PROJECT["dependencies"] + [
        one for extra in extras for one in PROJECT["optional-dependencies"][extra]
    ]
    return [Requirement(one) for one in found]


def test_every_minimum_is_the_version_that_the_lowest_set_has():
    lowest = pinned("constraints-lowest.txt")
    for one in required("minilm", "fast", "icd10cm", "taxa", "research", "serve"):
        (limit,) = one.specifier
        assert limit.operator == ">="
        found = lowest[canonicalize_name(one.name)]
        assert found.release[: len(Version(limit.version).release)] == Version(limit.version).release, one
        assert not any(found.release[len(Version(limit.version).release) :]), one


def test_the_pinned_versions_satisfy_every_requirement():
    versions = pinned("constraints.txt")
    known = NOT_PINNED | FRAMEWORKS
    for one in required(*(extra for extra in PROJECT["optional-dependencies"] if extra not in known)):
        assert one.specifier.contains(versions[canonicalize_name(one.name)]), one
    frameworks = pinned("constraints-integrations.txt")
    assert not frameworks.keys() & versions.keys(), "one version of each package"
    for extra in FRAMEWORKS:
        for one in map(Requirement, PROJECT["optional-dependencies"][extra]):
            assert one.specifier.contains(frameworks[canonicalize_name(one.name)]), one


def test_the_lock_file_has_a_hash_for_every_pinned_version_but_torch():
    locked, versions = pinned("requirements.lock"), pinned("constraints.txt")
    assert versions.pop("torch") == pinned("constraints-lowest.txt")["torch"]
    assert locked == versions
    assert pinned("requirements-integrations.lock") == pinned("constraints-integrations.txt")
    for file in ("requirements.lock", "requirements-integrations.lock"):
        text = (ROOT / file).read_text()
        for entry in re.split(r"\n(?=[\w.-]+==)", text)[1:]:
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:80]
        assert not re.search(r"://|--index|--find-links|--extra-index", text)
