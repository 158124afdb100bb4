"""The option that names the store: a URL, or the one in the environment.

A command that looks at records never creates or migrates a database: a mistyped path is an error, not a new empty file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from semel.api import Semel, open_store
from semel.cli.exit_codes import not_found, refused
from semel.core.store import Store
from semel.stores.urls import split_scheme

VARIABLE = "SEMEL_URL"
CACHE_VARIABLE = "SEMEL_CACHE"
_LOGIN = re.compile(r"[^/]+:[^/]*@")
_WITH_SCHEMA = frozenset({"sqlite", "postgresql", "mysql"})
Url = Annotated[
    str | None,
    typer.Argument(
        metavar="URL",
        help=f"Where the records are: sqlite:///semel.db, or the path of the file. Default: ${VARIABLE}.",
        show_default=False,
    ),
]


def named(url: str | None) -> str:
    """The URL or path to use.

    Raises:
        Refused: there is none.
    """
    chosen = url or os.environ.get(VARIABLE, "")
    if not chosen:
        message = (
            f"No database was named; nothing was done. Give a URL such as sqlite:///semel.db after the command, "
            f"or set the environment variable {VARIABLE}."
        )
        raise refused(message)
    return chosen


def store_at(url: str | None) -> Store:
    """The store at a URL or path, which has to exist and is used as it is.

    Raises:
        Refused: no such database exists, or it lives inside one process only.
        UsageError: the URL is not understood.
    """
    place = named(url)
    if place.lower().startswith("memory:"):
        message = f"{place} lives inside one process and cannot be seen from here; nothing was done. Name a database."
        raise refused(message)
    store = open_store(as_place(place), **_only_looking(place))
    path = getattr(store, "path", None)
    if isinstance(path, str) and not _may_exist(Path(path)):
        message = f"There is no database file {path}; nothing was done. Look at the path, or make it: semel migrate."
        raise not_found(message)
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
        raise refused(f"{message}; nothing was done.")
    return Path(place)


def _only_looking(place: str) -> dict[str, Any]:
    """Settings for looking only: a missing or older schema is reported, not changed."""
    scheme, _ = split_scheme(place)
    return {"migrate": False} if not scheme or scheme in _WITH_SCHEMA else {}


def opened(url: str | None) -> Semel:
    """An engine on the store at a URL or path, behind the cache that the environment names: erasing has to reach it."""
    return Semel(store_at(url), cache=os.environ.get(CACHE_VARIABLE) or None)
