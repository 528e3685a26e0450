"""What the proofs of one guarantee share: another source to compare with, and the record of a run.

`--source SRC` runs a proof against the metaxc in that folder, for example that of an older commit; `--before FILE` puts
the figures of such a run beside the new ones.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn


def use_source() -> str:
    """Import metaxc from the folder given as --source, if there is one; call it before metaxc is imported."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--source", type=Path)
    source = parser.parse_known_args()[0].source
    if source is None:
        return os.environ.get("PYTHONPATH", "")
    sys.path.insert(0, str(source.resolve()))
    os.environ["PYTHONPATH"] = str(source.resolve())
    return str(source.resolve())


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every such proof has."""
    parser.add_argument(
        "--source", type=Path, help="folder of another metaxc to run against (SRC of a checkout)"
    )
    parser.add_argument(
        "--before", type=Path, help="result file of a run against the code before, to be shown too"
    )
    parser.add_argument("--out", type=Path)


def finish_run(found: dict[str, Any], options: argparse.Namespace) -> NoReturn:
    """Print what was found, write it with commit, command and machine, and end: with 1 where a promise is broken."""
    if options.before is not None:
        earlier = json.loads(options.before.read_text())
        found["before"] = {name: earlier[name] for name in earlier if name not in ("before", "machine")}
    write_result(found, options.out)


def write_result(found: dict[str, Any], out: Path | None) -> NoReturn:
    """Print what a proof has found, write it where that is wanted, and end: with 1 where a promise is broken.

    Args:
        found: The figures; `problems` lists the broken promises. Commit, command and machine are added unless the
            proof has named them itself.
        out: The result file; None prints only.
    """
    text = json.dumps(
        {**found, **{name: fact for name, fact in _facts().items() if name not in found}},
        indent=1,
        ensure_ascii=False,
    )
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")
    raise SystemExit(bool(found["problems"]))


def _facts() -> dict[str, Any]:
    import metaxc

    folder = Path(metaxc.__file__).parent
    changed = _git(folder, "status", "--porcelain", "-uno", "--", ".")
    return {
        "commit": _git(folder, "rev-parse", "--short=12", "HEAD") + (" with changes" if changed else ""),
        "command": shlex.join(["python", f"benchmarks/reliability/{Path(sys.argv[0]).name}", *_arguments()]),
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
    }


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
    return done.stdout.strip() or ("" if words[0] == "status" else "unknown")


def _arguments() -> list[str]:
    """The arguments, of paths of this machine only the last part."""
    return [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
