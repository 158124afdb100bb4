"""A password is nowhere to be read: not in what is printed of a store, an engine or its parts, nor in errors and logs.

One table of URLs for all stores. Each is looked at in the same ways.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.errors import SemelError

PASSWORD = "s3cr3t-Pa55"
NOWHERE = "127.0.0.1:1"  # nobody listens there, so it is refused at once

URLS = {
    "postgresql": f"postgresql://ann:{PASSWORD}@{NOWHERE}/shop",
    "postgresql, in the query": f"postgresql://{NOWHERE}/shop?user=ann&password={PASSWORD}",
    "postgresql, of SQLAlchemy": f"postgresql+asyncpg://ann:{PASSWORD}@{NOWHERE}/shop",
    "postgresql, behind a proxy": f"postgresql://ann:{PASSWORD}@{NOWHERE}/shop?pooled=true",
    "postgresql, where to listen": (
        f"postgresql://{NOWHERE}/shop?listen_url=postgresql%3A%2F%2Fann%3A{PASSWORD}%40{NOWHERE}%2Fshop"
    ),
    "mysql": f"mysql://ann:{PASSWORD}@{NOWHERE}/shop",
    "redis": f"redis://ann:{PASSWORD}@{NOWHERE}/0",
    "redis, password alone": f"redis://:{PASSWORD}@{NOWHERE}/0",
    "redis, in the query": f"redis://{NOWHERE}/0?password={PASSWORD}",
    "redis, of the key": f"rediss://{NOWHERE}/0?ssl_password={PASSWORD}",
    "redis cluster": f"redis+cluster://ann:{PASSWORD}@{NOWHERE}",
    "redis sentinel": f"redis+sentinel://ann:{PASSWORD}@{NOWHERE}/main",
    "redis sentinel, its own": f"redis+sentinel://{NOWHERE}/main?sentinel_password={PASSWORD}",
}
# What comes of a password that was not escaped, or was escaped wrong.
MALFORMED = {
    "postgresql, wrong escape": f"postgresql://ann:{PASSWORD}%zz@{NOWHERE}/shop",
    "postgresql, a question mark": f"postgresql://ann:1?{PASSWORD}@{NOWHERE}/shop",
    "postgresql, a slash": f"postgresql://ann:1/{PASSWORD}@{NOWHERE}/shop",
    "postgresql, a hash": f"postgresql://ann:1#{PASSWORD}@{NOWHERE}/shop",
    "mysql, wrong escape": f"mysql://ann:{PASSWORD}%zz@{NOWHERE}/shop",
    "mysql, a question mark": f"mysql://ann:1?{PASSWORD}@{NOWHERE}/shop",
    "mysql, a slash": f"mysql://ann:1/{PASSWORD}@{NOWHERE}/shop",
    "mysql, a hash": f"mysql://ann:1#{PASSWORD}@{NOWHERE}/shop",
    "redis, wrong escape": f"redis://ann:{PASSWORD}%zz@{NOWHERE}/0",
    "redis, a question mark": f"redis://ann:1?{PASSWORD}@{NOWHERE}/0",
    "redis, a slash": f"redis://ann:1/{PASSWORD}@{NOWHERE}/0",
    "redis, a hash": f"redis://ann:1#{PASSWORD}@{NOWHERE}/0",
    "dynamodb, not its own": f"dynamodb://ann:{PASSWORD}@records",
    "dynamodb, in the endpoint": f"dynamodb://records?region=eu-west-1&endpoint=http://ann:{PASSWORD}@{NOWHERE}",
    "sqlite, not its own": f"sqlite://ann:{PASSWORD}@{NOWHERE}/shop",
    "unknown scheme": f"pigeon://ann:{PASSWORD}@{NOWHERE}/shop",
    "no scheme": f"ann:{PASSWORD}@{NOWHERE}/shop",
}
ALL = {**URLS, **MALFORMED}


def _in_threads(url: str, **settings: Any) -> None:
    with Semel(url, **settings) as semel:
        semel.read("k", operation="charge")


def _in_tasks(url: str, **settings: Any) -> None:
    async def read() -> None:
        async with AsyncSemel(url, **settings) as semel:
            await semel.read("k", operation="charge")

    asyncio.run(read())


in_each_colour = pytest.mark.parametrize("read", [_in_threads, _in_tasks], ids=["threads", "tasks"])


@pytest.mark.parametrize("make", [Semel, AsyncSemel])
@pytest.mark.parametrize("url", URLS.values(), ids=URLS.keys())
def test_no_part_of_an_engine_shows_a_password(url: str, make: Callable[[str], Any]) -> None:
    engine = make(url)
    shown = list(_shown(engine, set()))
    assert len(shown) > 5, "the parts were not looked at"
    assert [text for text in shown if PASSWORD in text] == []


@pytest.mark.parametrize("url", [url for url in URLS.values() if url.startswith("redis")])
def test_no_part_of_a_cache_shows_a_password(url: str) -> None:
    shown = list(_shown(Semel("sqlite:///unused.db", cache=url), set()))
    assert [text for text in shown if PASSWORD in text] == []


@in_each_colour
@pytest.mark.parametrize("url", ALL.values(), ids=ALL.keys())
def test_no_error_and_no_log_line_shows_a_password(
    url: str, read: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(SemelError) as caught:
        read(url)
    assert PASSWORD not in repr(caught.value)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert PASSWORD not in repr(vars(caught.value))
    assert PASSWORD not in caplog.text


def _shown(part: object, known: set[int]) -> Iterator[str]:
    """What is printed of an object of semel's, and of all that it is made of."""
    if id(part) in known:
        return
    known.add(id(part))
    if isinstance(part, (list, tuple, set, frozenset, dict)):
        yield repr(part)
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _shown(inner, known)
    elif type(part).__module__.startswith("semel."):
        yield from (repr(part), str(part))
        slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
        hidden = {"password", "sentinel_password", "tls_options", "url", "listen_url"}  # where it has to be
        for name in {*getattr(part, "__dict__", {}), *slots} - hidden:
            yield from _shown(getattr(part, name, None), known)
