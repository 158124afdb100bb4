"""Settings at the wrong place: whoever gives one is told where it belongs, and nothing is opened."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import SHARED, AsyncSemel, Cache, Limits, Policy, Semel
from semel.client import AsyncClient, AsyncOnceTransport, Client, OnceTransport
from semel.client.requests import OnceAdapter
from semel.errors import SemelError, UsageError
from semel.http import Route, asgi, fastapi, flask, wsgi
from semel.stores.memory import MemoryStore
from semel.validation import BELONGS

PLACES: dict[str, Any] = {
    "memory": "memory://",
    "sqlite": "sqlite:///never.db",
    "sqlite path": Path("never.db"),
    "postgresql": "postgresql://host/shop",
    "mysql": "mysql://host/shop",
    "redis": "redis://host",
    "redis cluster": "redis+cluster://host",
    "dynamodb": "dynamodb://records",
    "django": "django://default",
    "a store": MemoryStore(),
}
places = pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
CLASSES = ("Policy", "Limits", "Cache")
kinds = pytest.mark.parametrize("kind", [Semel, AsyncSemel])


@kinds
@places
@pytest.mark.parametrize(
    ("name", "belongs"),
    [("keep_for", "policy=Policy(keep_for=…)"), ("max_queue", "limits=Limits(max_queue=…)"), ("local", "cache=Cache(")],
)
def test_a_setting_of_something_else_is_told_where_it_belongs(kind: Any, place: Any, name: str, belongs: str) -> None:
    with pytest.raises(UsageError, match=re.escape(belongs)) as refused:
        kind(place, **{name: 5})
    assert f"setting {name!r}" in str(refused.value)
    assert "nothing was opened" in str(refused.value)


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("memory://", "memory:// has no setting 'colour'; nothing was opened. It has clock, table."),
        ("sqlite:///never.db", "It has busy_for, clock, migrate, synchronous."),
        (Path("never.db"), "It has busy_for, clock, migrate, synchronous."),
        (
            "postgresql://host/shop",
            "It has clock, connect_timeout, idle_for, lifetime, listen, listen_url,",
        ),
        ("mysql://host/shop", "It has clock, connect_timeout, idle_for, lifetime, listen, listen_url,"),
        ("redis://host", "It has clock, connect_timeout, db, evicting,"),
        ("dynamodb://records", "It has clock, connect_timeout, endpoint, pk, pool_size,"),
    ],
    ids=str,
)
def test_an_unknown_setting_is_answered_with_those_of_the_scheme(place: Any, named: str) -> None:
    with pytest.raises(UsageError, match="has no setting 'colour'; nothing was opened") as refused:
        Semel(place, colour="blue")
    assert named in str(refused.value)


def test_a_misspelt_setting_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError, match="Did you mean 'busy_for'"):
        Semel("sqlite:///never.db", busyfor=1)


def test_a_mistake_inside_a_store_of_somebody_else_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(url: str) -> Any:
        raise TypeError(url)

    monkeypatch.setattr("semel.stores.urls._third_party", lambda scheme: broken)
    with pytest.raises(TypeError, match="acme://here"):
        Semel("acme://here")


def test_a_store_of_somebody_else_has_the_settings_of_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    def store(url: str, *, depth: int = 1) -> Any:
        return MemoryStore()

    monkeypatch.setattr("semel.stores.urls._third_party", lambda scheme: store)
    with pytest.raises(UsageError, match=r"acme:// has no setting 'dept'.*Did you mean 'depth'"):
        Semel("acme://here", dept=1)


def test_the_places_of_settings_are_those_of_the_classes() -> None:
    policy, limits, cache = ({name for name, told in BELONGS.items() if f"{kind}(" in told} for kind in CLASSES)
    assert policy == {field.name for field in fields(Policy)}
    assert limits == {field.name for field in fields(Limits)}
    assert cache == {field.name for field in fields(Cache)} - {"url", "timeout"}  # names that stores have too


def client_of(kind: Any) -> Callable[..., Any]:
    return lambda **given: kind("memory://", **given)


def once(**given: Any) -> Any:
    with Semel("memory://") as semel:
        return semel.once(key="order", **given)


def run(**given: Any) -> Any:
    with Semel("memory://") as semel:
        return semel.run("o-1", lambda: 1, operation="pay", fingerprint=None, **given)


def run_awaited(**given: Any) -> Any:
    async def pay() -> int:
        return 1

    async def play() -> Any:
        async with AsyncSemel("memory://") as semel:
            return await semel.run("o-1", pay, operation="pay", fingerprint=None, **given)

    return asyncio.run(play())


def call_open(**given: Any) -> Any:
    with Semel("memory://") as semel:
        return semel.open("o-1", operation="pay", fingerprint=None, **given)


TAKERS: dict[str, Callable[..., Any]] = {
    "Policy": Policy,
    "Limits": Limits,
    "Cache": lambda **given: Cache("redis://host", **given),
    "once": once,
    "run": run,
    "run awaited": run_awaited,
    "open": call_open,
    "Route": lambda **given: Route("/pay", **given),
    "asgi": lambda **given: asgi.IdempotencyMiddleware(None, semel=AsyncSemel("memory://"), scope=SHARED, **given),  # type: ignore[arg-type]
    "wsgi": lambda **given: wsgi.IdempotencyMiddleware(None, semel=Semel("memory://"), scope=SHARED, **given),  # type: ignore[arg-type]
    "flask": lambda **given: flask.Idempotency(semel=Semel("memory://"), scope=SHARED, **given),
    "fastapi": lambda **given: fastapi.Idempotency(AsyncSemel("memory://"), scope=SHARED, **given),
    "Client": client_of(Client),
    "AsyncClient": client_of(AsyncClient),
    "OnceTransport": client_of(OnceTransport),
    "AsyncOnceTransport": client_of(AsyncOnceTransport),
    "OnceAdapter": client_of(OnceAdapter),
}
OWN = {"Policy": {"wait_for"}, "once": {"wait_for"}, "Limits": {"max_queue"}, "Cache": {"local_bytes"}}
"""What a taker has itself."""


@pytest.mark.parametrize("name", ["wait_for", "max_queue", "local_bytes"])
@pytest.mark.parametrize("taker", TAKERS)
def test_whoever_is_given_a_setting_of_something_else_says_where_it_belongs(taker: str, name: str) -> None:
    if name in OWN.get(taker, ()):
        TAKERS[taker](**{name: 5})
        return
    with pytest.raises(SemelError, match=re.escape(BELONGS[name])) as refused:
        TAKERS[taker](**{name: 5})
    assert f"no setting {name!r}; nothing " in str(refused.value)


@pytest.mark.parametrize("taker", TAKERS)
def test_whoever_is_given_a_setting_that_nobody_has_says_so(taker: str) -> None:
    with pytest.raises(SemelError, match=r"no setting 'colour'; nothing (ran|was set up)\. It has "):
        TAKERS[taker](colour="blue")


def test_a_client_takes_the_settings_of_its_library() -> None:
    with Client("memory://", base_url="http://shop", timeout=3, give_up_after=timedelta(seconds=5)) as client:
        assert client.base_url == "http://shop"


URLS = [str(place) for name, place in PLACES.items() if isinstance(place, str)]


@pytest.mark.parametrize("name", ["wait_for", "max_queue", "local_bytes"])
@pytest.mark.parametrize("url", URLS)
def test_a_url_with_a_setting_of_something_else_is_told_where_it_belongs(url: str, name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(BELONGS[name])) as refused:
        Semel(f"{url}?{name}=5")
    assert "nothing was opened" in str(refused.value)
