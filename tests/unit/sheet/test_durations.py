"""Every public duration: a `timedelta` or a number of seconds, and nothing that has no end. One table for all."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Policy, Semel
from semel.client.settings import Settings as ClientSettings
from semel.core.circuit import Limits
from semel.errors import SemelError, UsageError
from semel.http import Route
from semel.stores.cache import Cache
from semel.stores.dynamodb.settings import Settings as DynamoSettings
from semel.stores.redis.settings import Settings as RedisSettings
from semel.stores.sql.settings import Settings as SqlSettings
from semel.stores.sqlite import SqliteStore
from semel.testing import VirtualClock

Take = Callable[[Any], Any]
"""Gives a duration to one setting, and answers what became of it."""


def policy(name: str) -> Take:
    return lambda given: getattr(Policy(**{name: given}), name)


def limits(name: str) -> Take:
    longest: dict[str, Any] = {"max_backoff": timedelta(days=1)} if name == "backoff" else {}
    return lambda given: getattr(Limits(**{**longest, name: given}), name)


def client(name: str) -> Take:
    return lambda given: getattr(ClientSettings(**{name: given}), name)


def cache(name: str) -> Take:
    return lambda given: getattr(Cache("redis://host", **{name: given}), name)


def server(kind: Any, url: str, name: str) -> Take:
    return lambda given: getattr(kind.of(url, **{name: given}), name)


def once(given: Any) -> Any:
    """A field of the policy that stands beside the decorator's own arguments."""
    with Semel("memory://") as semel:

        @semel.once(key="order", keep_for=given)
        def pay(order: str) -> str:
            return order

        return pay._rules.policy.keep_for


def advanced(given: Any) -> float:
    clock = VirtualClock()
    clock.advance(given)
    return clock.monotonic()


TABLE: dict[str, Take] = {
    **{
        f"Policy.{name}": policy(name)
        for name in ("keep_for", "lease_for", "max_runtime", "wait_for", "reconcile_after")
    },
    "once(keep_for=)": once,
    **{f"Limits.{name}": limits(name) for name in ("slow_call", "backoff", "max_backoff")},
    "Route.after_disconnect": lambda given: Route("/pay", after_disconnect=given).settings.after_disconnect,
    **{
        f"Client({name}=)": client(name)
        for name in ("give_up_after", "first_pause", "longest_pause", "retention", "keep_for", "lease_for")
    },
    **{f"Cache.{name}": cache(name) for name in ("cap", "timeout", "local_for")},
    "sqlite busy_for": lambda given: SqliteStore(Path("/tmp/never.db"), busy_for=given)._settings.busy_for,  # noqa: S108 - not opened
    **{
        f"postgresql {name}": server(SqlSettings, "postgresql://host/shop", name)
        for name in ("connect_timeout", "statement_timeout", "lock_timeout")
    },
    **{
        f"mysql {name}": server(SqlSettings, "mysql://host/shop", name)
        for name in ("connect_timeout", "statement_timeout", "lock_timeout")
    },
    **{f"redis {name}": server(RedisSettings, "redis://host", name) for name in ("connect_timeout", "timeout")},
    **{
        f"dynamodb {name}": server(DynamoSettings, "dynamodb://records", name)
        for name in ("connect_timeout", "read_timeout", "throttled_for")
    },
    "VirtualClock.advance": advanced,
}
every = pytest.mark.parametrize("take", TABLE.values(), ids=list(TABLE))


@every
@pytest.mark.parametrize("given", [7, 7.0, timedelta(seconds=7)], ids=str)
def test_a_duration_is_a_timedelta_or_a_number_of_seconds(take: Take, given: Any) -> None:
    assert take(given) in (7.0, timedelta(seconds=7))


@every
@pytest.mark.parametrize("given", [2.5, timedelta(seconds=2.5)], ids=str)
def test_a_duration_may_hold_a_part_of_a_second(take: Take, given: Any) -> None:
    assert take(given) in (2.5, timedelta(seconds=2.5))


@every
@pytest.mark.parametrize(
    "wrong",
    [
        True,
        float("nan"),
        float("inf"),
        float("-inf"),
        -1,
        timedelta(seconds=-1),
        10**400,
        10**5000,
        timedelta.max,
        None,
        "a day",
        [5],
    ],
    ids=lambda wrong: "many" if wrong == 10**5000 else str(wrong)[:12],
)
def test_what_is_no_duration_is_refused_with_a_typed_error(take: Take, wrong: Any) -> None:
    with pytest.raises(SemelError, match="must be"):
        take(wrong)


URLS = {
    "sqlite:////nowhere/shop.db": ("busy_for",),
    "postgresql://host/shop": ("connect_timeout", "statement_timeout", "lock_timeout"),
    "mysql://host/shop": ("connect_timeout", "statement_timeout", "lock_timeout"),
    "redis://host": ("connect_timeout", "timeout"),
    "redis+cluster://host": ("connect_timeout", "timeout"),
    "dynamodb://records": ("connect_timeout", "read_timeout", "throttled_for"),
}
in_urls = pytest.mark.parametrize(("url", "name"), [(url, name) for url, names in URLS.items() for name in names])


@in_urls
@pytest.mark.parametrize("kind", [Semel, AsyncSemel])
def test_a_store_takes_a_duration_as_a_keyword_and_as_seconds_in_its_url(kind: Any, url: str, name: str) -> None:
    assert repr(kind(url, **{name: timedelta(seconds=2.5)})) == repr(kind(url, **{name: 2.5})) == repr(kind(url))
    assert repr(kind(f"{url}?{name}=2.5")) == repr(kind(url))


@in_urls
@pytest.mark.parametrize("wrong", ["soon", "-1", "nan", "inf"])
def test_what_is_no_duration_in_a_url_is_refused_by_its_name(url: str, name: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be .*; nothing was opened"):
        Semel(f"{url}?{name}={wrong}")


def test_every_duration_of_a_policy_is_in_the_table() -> None:
    found = {name for name, default in _defaults(Policy).items() if isinstance(default, timedelta)}
    assert {f"Policy.{name}" for name in found} <= TABLE.keys()


def test_every_duration_of_limits_and_clients_is_in_the_table() -> None:
    found = {f"Limits.{name}" for name, default in _defaults(Limits).items() if isinstance(default, timedelta)}
    found |= {
        f"Client({name}=)" for name, default in _defaults(ClientSettings).items() if isinstance(default, timedelta)
    }
    assert found <= TABLE.keys()


def _defaults(settings: Any) -> dict[str, Any]:
    return {name: field.default for name, field in settings.__dataclass_fields__.items()}
