"""Watches a folder for new models and switches the service to them, as `POST /v1/model` would.

A model counts once it is complete: every file that its manifest lists is there with the size that the manifest says;
the switch itself verifies the checksums. So models may be moved into the folder, copied slowly, or named by a symbolic
link `current`, which then alone decides. What was tried is not tried again until its files change: a model that is
refused is logged once. The folder is looked at every few seconds, which every file system supports.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from metaxc.artifacts import MANIFEST, load_json
from metaxc.catalog import ConflictError
from metaxc.errors import MetaxcError
from metaxc.serve.http_errors import BusyError, NotReadyError

log = logging.getLogger("metaxc.serve")
WATCH_SECONDS = 2.0  # between two looks, each of which reads the names, sizes and times of a few dozen files
CURRENT = "current"
"""The link, or folder, that alone decides where it exists."""


@dataclass(frozen=True)
class SeenModel:
    """A model folder at one moment.

    Args:
        name: Its name, or that of the link to it, in the watched folder.
        folder: Where it is, without symbolic links.
        files: Name, size in bytes and time of change of each file.
        missing: The file that is missing or has another size than the manifest says; None where it is complete.
    """

    name: str
    folder: Path
    files: tuple[tuple[str, int, int], ...]
    missing: str | None

    @property
    def written(self) -> int:
        """When its newest file was written, in nanoseconds."""
        return max(changed for _, _, changed in self.files)


def read_model_folder(folder: Path) -> SeenModel | None:
    """The state of a model folder; None where it has no manifest that can be read."""
    try:
        resolved = folder.resolve(strict=True)
        listed = load_json(resolved / MANIFEST)["files"]
        wanted = {str(name): int(facts["bytes"]) for name, facts in listed.items()}
        found = {
            file.relative_to(resolved).as_posix(): file.stat()
            for file in sorted(resolved.rglob("*"))
            if file.is_file()
        }
    except (OSError, MetaxcError, KeyError, TypeError, ValueError, AttributeError, RuntimeError):
        return None
    absent = (name for name, size in wanted.items() if name not in found or found[name].st_size != size)
    files = tuple((name, facts.st_size, facts.st_mtime_ns) for name, facts in found.items())
    return SeenModel(folder.name, resolved, files, next(absent, None))


class ModelWatcher:
    """Looks into a folder again and again, in a thread of its own.

    Args:
        folder: The folder of models.
        switch: Begins a switch to a model folder; raises a `MetaxcError` where it cannot begin.
        known: The folders of the model in use and of the one before: what is in them at the start is not tried.
    """

    def __init__(self, folder: Path, switch: Callable[[Path], object], known: Callable[[], set[Path]]):
        self._folder, self._switch, self._known = folder, switch, known
        self._tried: dict[str, SeenModel] = {}
        self._incomplete: set[Path] = set()
        self._started = self._by_link = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metaxc-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking, and wait for a look that is under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Look once, and begin a switch where there is a new complete model: the one that `current` names, or else the
        newest. At the first look only the newest is new, unless it is in use or was in use before."""
        candidates = self._find_candidates()
        if not candidates and not self._started:
            return
        if not self._started:
            self._started = True
            newest, known = max(candidates, key=lambda model: model.written), self._known()
            old = [model for model in candidates if model is not newest or model.folder in known]
            self._tried = {model.name: model for model in old}
        new = [model for model in candidates if self._tried.get(model.name) != model]
        if new:
            self._try(max(new, key=lambda model: model.written), new)

    def _find_candidates(self) -> list[SeenModel]:
        """The complete models in the folder; those that are not complete are logged once."""
        current = self._folder / CURRENT
        self._by_link = self._by_link or current.exists()  # also while the link is replaced
        try:
            folders = [current] if self._by_link else sorted(self._folder.iterdir())
        except OSError as error:
            self._report_incomplete(self._folder, f"it cannot be read: {error.strerror or error}")
            return []
        complete = []
        for folder in folders:
            model = None if folder.name.startswith(".") else read_model_folder(folder)
            if model is None:
                continue
            if model.missing is None:
                self._incomplete.discard(model.folder)
                complete.append(model)
            else:
                self._report_incomplete(model.folder, f"{model.missing} is missing or has another size")
        return complete

    def _report_incomplete(self, folder: Path, reason: str) -> None:
        if folder not in self._incomplete:
            self._incomplete.add(folder)
            log.warning("%s is not used until it is complete: %s", folder, reason)

    def _try(self, model: SeenModel, new: list[SeenModel]) -> None:
        try:
            self._switch(model.folder)
            log.warning("Switching to the new model %s", model.folder)
        except (BusyError, ConflictError, NotReadyError):
            return  # another switch or many writes: the next look tries again
        except MetaxcError as error:
            log.error("The new model %s is not used: %s", model.folder, error)
        self._tried.update({one.name: one for one in new})

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
            except Exception:  # the service goes on without this look
                log.exception("The folder of models could not be watched")
            self._stopping.wait(WATCH_SECONDS)
