"""Both servers of two tiers, each of one's own, to be taken away under load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from semel.core.circuit import Limits
from semel.stores.cache import Cache, TieredStore
from semel.stores.postgresql import PostgresStore
from tests.decorated import CallStyle
from tests.faults.crowd import Crowd
from tests.faults.tiered.pressing import OLD, Heard
from tests.faults.users import Colour
from tests.servers.postgresql import PostgresqlServer
from tests.servers.redis import RedisServer, said

Tiered = Callable[..., Any]


@pytest.fixture(scope="module")
def redis_of_file(start_redis: Callable[..., AbstractContextManager[RedisServer]]) -> Iterator[RedisServer]:
    with start_redis() as server:
        yield server


@pytest.fixture(scope="module")
def sql_of_file(
    start_postgresql: Callable[..., AbstractContextManager[PostgresqlServer]],
) -> Iterator[PostgresqlServer]:
    with start_postgresql(log_statements=True) as server:
        yield server


@pytest.fixture
def redis_server(redis_of_file: RedisServer) -> RedisServer:
    if not redis_of_file.is_alive:
        redis_of_file.start()
    said(redis_of_file.keys().plain_url, "FLUSHALL")
    return redis_of_file


@pytest.fixture
def sql_server(sql_of_file: PostgresqlServer) -> PostgresqlServer:
    if not sql_of_file.is_alive:
        sql_of_file.start()
    return sql_of_file


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def crowd(
    redis_server: RedisServer, sql_server: PostgresqlServer, heard: Heard, colour: Colour, call_style: CallStyle
) -> Iterator[Crowd]:
    """Callers of one process on both servers, with a few records completed and cached."""
    store = TieredStore(
        PostgresStore(sql_server.new_database(), connect_timeout=1, statement_timeout=3, lock_timeout=1),
        Cache(redis_server.keys().plain_url, timeout=0.5),
        observer=heard,
    )
    with Crowd(store, colour, Limits(), size=8, style=call_style) as crowd:
        for key in OLD:
            crowd.run(key, lambda: "kept")
            crowd.run(key)
        for key in OLD:
            assert crowd.run(key).cache == "hit"
        yield crowd
