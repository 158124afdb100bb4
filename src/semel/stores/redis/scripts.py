"""The scripts by name: package data, put together once, known to the server by their digest.

What always holds: a script is sent by its digest, and in full only where the server says that it does not know it; in
that case it has not run. With a virtual clock the scripts are others, which a real store never loads.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from semel.stores.redis.fields import FIELDS

NAMES: Final = (
    "claim",
    "renew",
    "complete",
    "fail",
    "checkpoint",
    "read",
    "resolve",
    "erase",
    "purge",
    "lapse",
    "tally",
)
CACHE_NAMES: Final = ("cache_look", "cache_fill", "cache_drop")
"""Scripts on the entries of a cache, which are no records."""


class Text(NamedTuple):
    """A script, and what the server calls it."""

    body: str
    sha: str


@cache
def scripts(*, virtual: bool) -> dict[str, Text]:
    """Every script by name."""
    names = ", ".join(f"'{name}'" for name in FIELDS)
    time = _file("virtual_time" if virtual else "time")
    head = time + _file("rules").replace("{fields}", names)
    cache_head = time + _file("cache_rules")
    return {
        **{name: _text(head + _file(name)) for name in NAMES},
        **{name: _text(cache_head + _file(name)) for name in CACHE_NAMES},
    }


def _text(body: str) -> Text:
    return Text(body, hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest())


def _file(name: str) -> str:
    return files(__package__).joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")
