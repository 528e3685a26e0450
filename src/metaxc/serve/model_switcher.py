"""Switches a running service to another model: builds the new generation in a thread, checks it, and lets the write
queue take the last step, so that no write comes between (`metaxc.catalog.model_switch`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from metaxc.catalog import Catalog, CatalogError, ConflictError, NotFoundError
from metaxc.catalog.generation_checks import GenerationChecks, compare_generations
from metaxc.catalog.generation_record import MODEL_FOLDER, read_previous
from metaxc.catalog.model_switch import ModelSwitch
from metaxc.emmett import Emmett
from metaxc.errors import ConfigError, DataError, MetaxcError
from metaxc.serve.api_types import ModelStatus, SwitchRequest
from metaxc.serve.http_errors import BusyError, ForbiddenError
from metaxc.serve.serve_settings import SwitchSettings
from metaxc.serve.served_catalog import ServedCatalog

log = logging.getLogger("metaxc.serve")
RETRY_SECONDS = 0.05
"""After which the last step is tried again where the write queue was full."""


@dataclass(frozen=True)
class ModelFolders:
    """The models that a service may load.

    Args:
        root: Models that a client names lie in this folder or below it.
        served: The folder of the model that the service was started with.
        load: Reads a model folder.
        watched: The folder that is watched for new models (`metaxc.serve.model_watcher`); None for none.
    """

    root: Path
    served: Path
    load: Callable[[Path], Emmett] = Emmett.load
    watched: Path | None = None

    def find(self, given: str) -> Path:
        """The model folder that a client names, absolute or relative to `root`; symbolic links are resolved first."""
        root = self.root.resolve()
        try:
            folder = (root / given).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a null byte, or a link to itself
            raise DataError("Not the name of a folder", got=repr(given), expected="a model folder") from error
        if not folder.is_relative_to(root):
            raise ForbiddenError(
                "The model is outside the folder of models",
                got=repr(given),
                expected="a model in the folder that the service was started with as --models",
                fix="put the model there, or start the service with another --models",
            )
        if not folder.is_dir():
            raise NotFoundError(
                "No such model folder",
                got=repr(given),
                expected="the folder of a model, absolute or relative to --models",
            )
        return folder


class SwitchStopped(Exception):  # noqa: N818 - it is no error
    """The service is closing; a later switch to the same model continues the build."""


class ModelSwitcher:
    """Switches the served catalog, one switch at a time.

    Args:
        served: Holds the catalog.
        settings: The thresholds of the checks.
        models: The models that may be loaded; None refuses every switch.
        run_in_write_queue: Runs a function in the thread of the write queue and waits for it; a `BusyError` where the
            queue is full.
        on_switched: Called with the new catalog, in the thread of the write queue, when requests use it.
        on_closed: Called when the old catalog is closed.
        on_ended: Called with "switched" or "failed" when a switch has ended.
    """

    def __init__(
        self,
        served: ServedCatalog,
        settings: SwitchSettings,
        models: ModelFolders | None,
        run_in_write_queue: Callable[[Callable[[], None]], Any],
        on_switched: Callable[[Catalog], None],
        on_closed: Callable[[], None] = lambda: None,
        on_ended: Callable[[str], None] = lambda outcome: None,
    ):
        self._served, self._settings, self._models = served, settings, models
        self._run_in_write_queue, self._on_switched = run_in_write_queue, on_switched
        self._on_closed, self._on_ended = on_closed, on_ended
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._status = ModelStatus("", None, "none", thresholds=settings.thresholds())

    def status(self) -> ModelStatus:
        """What is served, and how far the switch under way is, or how the last one ended."""
        with self._served.use() as catalog:
            previous = read_previous(catalog.store)
            model = catalog.model.fingerprint
        return replace(self._status, model=model, previous=None if previous is None else previous.model)

    def find_known_folders(self) -> set[Path]:
        """The folders of the model in use and of the one before it, as far as they are known."""
        with self._served.use() as catalog:
            previous, recorded = read_previous(catalog.store), catalog.store.metadata.get(MODEL_FOLDER)
        started_with = None if self._models is None else str(self._models.served)
        folders = (recorded or started_with, None if previous is None else previous.folder or started_with)
        return {Path(folder).resolve() for folder in folders if folder}

    def start(self, request: SwitchRequest) -> ModelStatus:
        """Begin a switch; called in the thread of the write queue, one request at a time."""
        if self._models is None:
            raise ForbiddenError(
                "This service does not switch models",
                expected="a service that was started with a folder of models",
                fix="start it with `metaxc serve MODEL --models FOLDER`",
            )
        if self._thread is not None and self._thread.is_alive():
            raise ConflictError(
                "A switch is under way",
                got=self._status.state,
                expected="one switch at a time",
                fix="wait until GET /v1/model says that it has ended",
            )
        folder, wanted = self._find_target(self._models, request)
        self._status = ModelStatus(
            "", None, "loading", request.model or folder.name, thresholds=self._settings.thresholds()
        )
        checked = not (request.force or request.rollback)
        self._thread = threading.Thread(
            target=self._run, args=(self._models, folder, wanted, checked), name="metaxc-switch", daemon=True
        )
        self._thread.start()
        return self.status()

    def stop(self) -> None:
        """Stop a build that is under way, and wait for it."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _find_target(self, models: ModelFolders, request: SwitchRequest) -> tuple[Path, str | None]:
        """The folder of the model to switch to, and the fingerprint that it must have, if that is known."""
        if request.model is not None:
            return models.find(request.model), None
        previous = read_previous(self._served.catalog.store)
        if previous is None:
            raise NotFoundError(
                "There is no previous generation",
                expected="a catalog that was switched to its present model",
                fix="name the model to switch to",
            )
        return Path(previous.folder) if previous.folder else models.served, previous.model

    def _run(self, models: ModelFolders, folder: Path, wanted: str | None, checked: bool) -> None:
        try:
            model = models.load(folder)
            if wanted not in (None, model.fingerprint):
                raise ConfigError(
                    "The model folder of the previous generation has another model now",
                    got=f"model {model.fingerprint[:16]}",
                    expected=f"model {str(wanted)[:16]}",
                    fix="put that model back, or name the model to switch to",
                )
            self._switch(models, folder, model, checked)
            self._on_closed()
            self._report(state="switched")
        except SwitchStopped:
            self._report(state="failed", reason="The service is closing; another switch continues the build")
        except MetaxcError as error:
            log.error("The model was not switched: %s", error)
            details = f": {error.got}" if isinstance(error, CatalogError) and error.got else ""
            self._report(state="failed", reason=f"{error.what}{details}")
        except Exception:
            log.exception("The model was not switched")
            self._report(state="failed", reason="Internal error; see the service's log")
        finally:
            self._on_ended(self._status.state)

    def _switch(self, models: ModelFolders, folder: Path, model: Emmett, checked: bool) -> None:
        old = self._served.catalog
        known = old.store.metadata.get(MODEL_FOLDER)
        switch = ModelSwitch(old, model, folder, models.served if known is None else None, self._progress)
        switched = False
        try:
            self._report(state="building")
            switch.build()
            if checked:
                self._report(state="checking")
                self._check(compare_generations(old, switch.catalog, self._settings.sample))
                switch.catch_up()
            self._report(state="switching")

            def finish() -> None:
                nonlocal switched
                new = switch.finish()
                switched = True
                self._served.replace(new)
                self._on_switched(new)

            self._finish(finish)
        finally:
            if not switched:
                switch.abandon()
        self._served.wait_until_unused(old)
        try:
            old.close()
            switch.remove_unused()
        except (MetaxcError, OSError) as error:  # the switch itself is complete
            log.warning("The previous generation could not be closed in order: %s", error)

    def _finish(self, finish: Callable[[], None]) -> None:
        while True:
            try:
                self._run_in_write_queue(finish)
                return
            except BusyError:
                if self._stopping.wait(RETRY_SECONDS):
                    raise SwitchStopped from None

    def _check(self, checks: GenerationChecks) -> None:
        self._report(checks=checks)
        problems = self._settings.find_problems(checks)
        if problems:
            raise CatalogError(
                "The new model fails the checks",
                got="; ".join(problems),
                fix="train it again, change the thresholds ([switch] in the configuration), or repeat with force",
            )

    def _progress(self, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise SwitchStopped
        self._report(done=done, total=total)

    def _report(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
