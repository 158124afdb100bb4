"""Settings at the wrong place: whoever gives one is told where it belongs, and nothing is opened."""

import re
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.stores.memory import MemoryStore

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
        ("postgresql://host/shop", "It has clock, connect_timeout, listen, listen_url, lock_timeout, migrate,"),
        ("mysql://host/shop", "It has clock, connect_timeout, listen, listen_url, lock_timeout, migrate,"),
        ("redis://host", "It has clock, connect_timeout, db, evicting,"),
        ("dynamodb://records", "It has clock, connect_timeout, endpoint, pool_size,"),
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
