"""The files of deploy/: they agree with the program and with one another. Where the linters are installed, they run."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from metaxc.serve.config_file import build_settings, read_config_file, render_config_file
from metaxc.serve.serve_settings import WRITE_TOKEN, NetworkSettings

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_example_configuration_is_the_one_that_the_command_prints():
    assert (DEPLOY / "metaxc.toml").read_text(encoding="utf-8") == render_config_file()


def test_the_container_serves_what_compose_mounts(monkeypatch):
    monkeypatch.setenv(WRITE_TOKEN, "w" * 20)
    path = DEPLOY / "container.toml"
    sources, settings = build_settings(read_config_file(path), {}, path)
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["metaxc"]
    targets = {volume.split(":")[1 if ":-" not in volume else 2] for volume in service["volumes"]}
    assert targets == {str(sources.model), "/data"}
    assert sources.catalog.is_relative_to("/data")
    port = settings.network.port
    assert service["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert port == NetworkSettings().port
    assert f"EXPOSE {port}\n" in DOCKERFILE
    assert f"127.0.0.1:{port}/readyz" in DOCKERFILE
    assert WRITE_TOKEN in service["environment"]
    assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}


def test_the_container_needs_a_token(monkeypatch):
    monkeypatch.delenv(WRITE_TOKEN, raising=False)
    path = DEPLOY / "container.toml"
    with pytest.raises(Exception, match="without a token"):
        build_settings(read_config_file(path), {}, path)


def test_the_image_has_only_files_that_exist_and_are_not_ignored():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert len(copied) == 7
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in allowed, source
    extras = re.search(r'"\.\[([\w,]+)\]"', DOCKERFILE)[1].split(",")
    assert set(extras) <= PROJECT["optional-dependencies"].keys()
    pinned = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    assert f"torch=={pinned}\n" in DOCKERFILE


def test_the_container_does_not_run_as_root():
    (user,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert f"--uid {user} " in DOCKERFILE
    assert DOCKERFILE.index("\nUSER") < DOCKERFILE.index("\nENTRYPOINT")


HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_the_dockerfile_is_linted(tmp_path):
    checked = subprocess.run([HADOLINT, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert not checked.returncode, checked.stdout
    (tmp_path / "Dockerfile").write_text(
        DOCKERFILE.replace("WORKDIR /build", "WORKDIR build"), encoding="utf-8"
    )
    assert subprocess.run([HADOLINT, tmp_path / "Dockerfile"], capture_output=True, check=False).returncode


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_systemd_unit_is_valid(tmp_path):
    unit = (
        (DEPLOY / "metaxc.service").read_text(encoding="utf-8").replace("/opt/metaxc/bin/metaxc", "/bin/true")
    )
    (tmp_path / "metaxc.service").write_text(unit, encoding="utf-8")
    checked = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "metaxc.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "metaxc.service:" not in checked.stderr
