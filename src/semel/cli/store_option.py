"""The options that name the store: a URL, a settings file, or the user's own engine, `--app module:object`.

Where nothing is named, the environment is looked at, and then `semel.toml` in the working directory. A broker may be
named beside the store, and a workflow engine.

A command that looks at records never creates or migrates a database: a mistyped path is an error, not a new empty file.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from semel.api import AsyncSemel, Semel, keyring_of, open_store
from semel.cli.exit_codes import not_found_error, usage_error
from semel.core.observer import Observer
from semel.core.store import Store, path_of
from semel.engine.async_engine import AsyncSemelBase
from semel.engine.engine import engine_of
from semel.engine.sync_engine import SyncSemelBase
from semel.settings import FILE, FILE_VARIABLE, Settings, find_file, read_settings
from semel.stores.urls import pool_settings, split_scheme

VARIABLE = "SEMEL_URL"
CACHE_VARIABLE = "SEMEL_CACHE"
BROKER_VARIABLE = "SEMEL_BROKER"
ENGINE_VARIABLE = "SEMEL_ENGINE"
SETTINGS_FILE: Final[ContextVar[str | None]] = ContextVar("semel_settings_file", default=None)
"""The file that `semel --settings` names, while the command runs."""
_STORE_VARIABLE: Final = "SEMEL_STORE"
_LOGIN = re.compile(r"[^/]+:[^/]*@")
_WITH_SCHEMA = frozenset({"sqlite", "postgresql", "mysql"})
Url = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help=(
            f"Where the records are: sqlite:///semel.db, the path of the file, or of a settings file such as {FILE}. "
            f"Default: ${VARIABLE}, --settings, ${FILE_VARIABLE}, or {FILE} here."
        ),
        show_default=False,
    ),
]

BrokerUrl = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="URL",
        help=f"amqp://user:password@host/vhost, nats://host:4222, redis://host:6379/0 or sqs://REGION; to publish to, "
        f"also eventbridge://REGION. Default: ${BROKER_VARIABLE}, which stays hidden.",
        envvar=BROKER_VARIABLE,
        show_envvar=False,
        show_default=False,
    ),
]
EngineUrl = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="URL",
        help=f"Temporal: temporal://host:7233/namespace. Camunda 7: http://user:password@host:8080/engine-rest. "
        f"Default: ${ENGINE_VARIABLE}, which stays hidden.",
        envvar=ENGINE_VARIABLE,
        show_envvar=False,
        show_default=False,
    ),
]
Queue = Annotated[str | None, typer.Option(help="RabbitMQ and SQS: the queue.", show_default=False)]
Stream = Annotated[str | None, typer.Option("--stream", help="NATS and Redis: the stream.", show_default=False)]
Durable = Annotated[
    str | None,
    typer.Option(help="NATS: the durable consumer. Default: the name of the consumer.", show_default=False),
]
Group = Annotated[
    str | None, typer.Option(help="Redis: the group. Default: the name of the consumer.", show_default=False)
]


def chosen_settings(url: str | None) -> Settings | None:
    """The settings to use; None: a URL was given, after the command or in the environment.

    Raises:
        UsageError: the settings file cannot be read or used.
    """
    if url is not None and "://" not in url and url.endswith(".toml"):
        return read_settings(url)
    named = SETTINGS_FILE.get()
    if url or (named is None and os.environ.get(VARIABLE)):
        return None
    file = find_file() if named is None else Path(named)
    return read_settings(file) if file is not None or os.environ.get(_STORE_VARIABLE) else None


def chosen_url(url: str | None, settings: Settings | None = None) -> str:
    """The URL or path to use.

    Raises:
        Refused: there is none.
    """
    if settings is not None:
        return settings.store
    chosen = url or os.environ.get(VARIABLE, "")
    if not chosen:
        message = (
            f"No database was named; nothing was done. Give a URL such as sqlite:///semel.db after the command, "
            f"set the environment variable {VARIABLE}, or write {FILE} here."
        )
        raise usage_error(message)
    return chosen


def store_at(url: str | None) -> Store:
    """The store at a URL or path, which has to exist and is used as it is.

    Raises:
        Refused: no such database exists, or it lives inside one process only.
        UsageError: the URL is not understood.
    """
    settings = chosen_settings(url)
    place = chosen_url(url, settings)
    if place.lower().startswith("memory:"):
        message = f"{place} lives inside one process and cannot be seen from here; nothing was done. Name a database."
        raise usage_error(message)
    store = open_store(as_place(place), **_pool_of(settings), **_read_only_settings(place))
    path = path_of(store)
    if path is not None and not _may_exist(Path(path)):
        message = f"There is no database file {path}; nothing was done. Look at the path, or make it: semel migrate."
        raise not_found_error(message)
    return store


def _may_exist(file: Path) -> bool:
    """Whether there is such a file, or this user may not know: then opening it says what is wrong."""
    try:
        return file.exists()
    except PermissionError:
        return True


def as_place(place: str) -> str | Path:
    """The URL itself, or a path where it is none.

    Raises:
        Refused: it is neither, but a URL that lost its scheme; as a path it would be shown, with the password in it.
    """
    if "://" in place:
        return place
    if _LOGIN.match(place):
        message = "A database was named with a user and a password but without a scheme such as postgresql://"
        raise usage_error(f"{message}; nothing was done.")
    return Path(place)


def _pool_of(settings: Settings | None) -> dict[str, Any]:
    if settings is None:
        return {}
    pool = {name: value for name, value in settings.pool.items() if name != "log_statements"}
    return pool_settings(split_scheme(settings.store)[0], pool)


def _read_only_settings(place: str) -> dict[str, Any]:
    """Settings for looking only: a missing or older schema is reported, not changed."""
    scheme, _ = split_scheme(place)
    return {"migrate": False} if not scheme or scheme in _WITH_SCHEMA else {}


def open_engine(url: str | None) -> Semel:
    """An engine on the store at a URL or path, behind the cache that is named: erasing has to reach it.

    What is sealed is opened with the keys of the settings file, and what is written is sealed with them. Where none
    are named, what is sealed says which key it needs, and nothing is written unsealed beside it.
    """
    store, tiers = _open_tiers(url)
    return Semel(store, **tiers)


def open_async_engine(url: str | None, *, observer: Observer | None = None) -> AsyncSemel:
    """The same for what awaits."""
    store, tiers = _open_tiers(url)
    return AsyncSemel(store, observer=observer, **tiers)


def _open_tiers(url: str | None) -> tuple[Store, dict[str, Any]]:
    """A store, the cache in front of it, and the keys that seal what is in it, as settings or the environment say."""
    from semel.stores.sealing.keyless import KeylessStore

    store, settings = store_at(url), chosen_settings(url)
    cache = os.environ.get(CACHE_VARIABLE) if settings is None else settings.cache
    sealer = None if settings is None else keyring_of(settings)
    return KeylessStore(store) if sealer is None else store, {"cache": cache or None, "seal": sealer}


def app_option(purpose: str) -> Any:
    """The option `--app` of a command that wants an engine for `purpose`."""
    text = f"Your Semel or AsyncSemel object, {purpose}; it brings its own database."
    return typer.Option(metavar="MODULE:OBJECT", help=text, show_default=False)


def check_alone(url: str | None, app: str | None) -> None:
    """Refuse a URL beside `--app`."""
    if app is not None and url is not None:
        message = "--app brings its own database, so no URL can be given beside it; nothing was done."
        raise usage_error(message)


def as_sync(semel: SyncSemelBase | AsyncSemelBase) -> SyncSemelBase:
    """What was given, or one for threads on the same store, which knows the same operations and keeps of persons."""
    if isinstance(semel, SyncSemelBase):
        return semel
    engine = engine_of(semel)
    made = Semel(engine.store, policy=engine.policy, observer=engine.observer)
    other = engine_of(made)
    other.known.update(engine.known)
    other.erasables = engine.erasables
    other.secrets = engine.secrets
    return made


def load_engine(path: str) -> SyncSemelBase | AsyncSemelBase:
    """The engine named `package.module:object`, imported as from the current folder.

    Raises:
        Refused: there is no such module or object, or it is no engine.
    """
    found = load_object(path, "--app ")
    if not isinstance(found, SyncSemelBase | AsyncSemelBase):
        message = f"{path} is a {type(found).__qualname__}, not a Semel or AsyncSemel; nothing was done."
        raise usage_error(message)
    return found


def load_object(path: str, option: str = "") -> Any:
    """The object named `package.module:object`, imported as from the current folder.

    Raises:
        Refused: there is no such module or object.
    """
    module, separator, names = path.partition(":")
    if not (module and separator and names):
        message = f"{option}{path!r} names no object; nothing was done. Write package.module:object."
        raise usage_error(message)
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not (module == missing.name or module.startswith(f"{missing.name}.")):
            raise  # a module that the app itself wants and lacks
        message = f"There is no module {missing.name} here or among the installed ones; nothing was done."
        raise usage_error(message) from None
    for name in names.split("."):
        if not hasattr(found, name):
            message = f"The module {module} has no {names}; nothing was done."
            raise usage_error(message)
        found = getattr(found, name)
    return found
