"""Builds the source distribution and the wheel, and checks the wheel in a fresh environment (`make wheel-check`).

The fresh environment has the wheel itself, and beside it the dependencies of the environment that runs this script, so
that nothing is downloaded. Nothing is written outside a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECK = """
import sys
from pathlib import Path

import metaxc

names = {name: getattr(metaxc, name) for name in metaxc.__all__}
assert Path(metaxc.__file__).is_relative_to(sys.prefix), metaxc.__file__
print(f"metaxc {metaxc.__version__}, {len(names)} public names")
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The output of a command; a command that fails ends the check with what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def package_files(folder: Path) -> set[str]:
    """The files of the package in a source folder, without what Python leaves there."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"metaxc/{path.relative_to(folder).as_posix()}" for path in found}


def build(folder: Path) -> Path:
    """Build both distributions of a copy of the sources, the wheel from the source distribution; returns the wheel."""
    sources = folder / "sources"
    shutil.copytree(ROOT / "src" / "metaxc", sources / "src" / "metaxc")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, sources)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", sources)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def main() -> None:
    """Build, compare the files, install, import, run the command."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build(folder)
        contents = set(zipfile.ZipFile(wheel).namelist())
        missing = package_files(ROOT / "src" / "metaxc") - contents
        if missing:
            sys.exit(
                f"{wheel.name} lacks {', '.join(sorted(missing))}: name them in pyproject.toml, package-data"
            )
        fresh = folder / "fresh"
        venv.create(fresh)
        variables = {"base": str(fresh), "platbase": str(fresh)}
        packages = Path(sysconfig.get_path("purelib", "venv", variables))
        # A folder that a .pth file names does not have its own .pth files read: no editable install comes along.
        shared = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (packages / "dependencies.pth").write_text("\n".join(shared) + "\n", encoding="utf-8")
        python = fresh / "bin" / "python"
        run(sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-deps", wheel)
        print(run(python, "-c", CHECK, cwd=folder), end="")
        if "evaluate" not in run(fresh / "bin" / "metaxc", "--help", cwd=folder):
            sys.exit("metaxc --help does not name its commands")
        print(f"{wheel.name}: {len(contents):,} files, installed and run")


if __name__ == "__main__":
    main()
