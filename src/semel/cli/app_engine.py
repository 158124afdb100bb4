"""The engine of the user's own program, for commands that need to know its operations: `--app module:object`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import typer

from semel.cli.exit_codes import refused
from semel.engine.async_engine import AsyncEngine
from semel.engine.sync_engine import SyncEngine


def app_option(purpose: str) -> Any:
    """The option `--app` of a command that wants an engine for `purpose`."""
    text = f"Your Semel or AsyncSemel object, {purpose}; it brings its own database."
    return typer.Option(metavar="MODULE:OBJECT", help=text, show_default=False)


def check_alone(url: str | None, app: str | None) -> None:
    """Refuse a URL beside `--app`."""
    if app is not None and url is not None:
        message = "--app brings its own database, so no URL can be given beside it; nothing was done."
        raise refused(message)


def as_sync(engine: SyncEngine | AsyncEngine) -> SyncEngine:
    """The engine itself, or one for threads on the same store, which knows the same operations."""
    if isinstance(engine, SyncEngine):
        return engine
    sync = SyncEngine(engine.store, policy=engine.policy, observer=engine.observer)
    sync.known.update(engine.known)
    return sync


def load(path: str) -> SyncEngine | AsyncEngine:
    """The engine named `package.module:object`, imported as from the current folder.

    Raises:
        Refused: there is no such module or object, or it is no engine.
    """
    module, separator, names = path.partition(":")
    if not (module and separator and names):
        message = f"--app {path!r} names no object; nothing was done. Write package.module:object."
        raise refused(message)
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not (module == missing.name or module.startswith(f"{missing.name}.")):
            raise  # a module that the app itself wants and lacks
        message = f"There is no module {missing.name} here or among the installed ones; nothing was done."
        raise refused(message) from None
    for name in names.split("."):
        if not hasattr(found, name):
            message = f"The module {module} has no {names}; nothing was done."
            raise refused(message)
        found = getattr(found, name)
    if not isinstance(found, SyncEngine | AsyncEngine):
        message = f"{path} is a {type(found).__qualname__}, not a Semel or AsyncSemel; nothing was done."
        raise refused(message)
    return found
