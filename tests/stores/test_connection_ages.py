"""How long connections to servers are kept: replaced after `lifetime`, closed after `idle_for`, but for `min_idle`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from semel import AsyncSemel, Key, Semel
from semel.core.operations import Read
from semel.stores.mysql import MysqlStore
from semel.stores.postgresql import PostgresStore
from semel.stores.redis import RedisStore, connections

KINDS: dict[str, Callable[..., Any]] = {"postgresql": PostgresStore, "mariadb": MysqlStore, "redis_keys": RedisStore}


class Time:
    """What ages are measured by here."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Pool:
    """A driver of a store, with an account of the connections that it opened and closed."""

    def __init__(self, server: str, kind: str, url: str, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.store: Any = KINDS[server](url, **settings)
        self.time = Time()
        self.store._context.monotonic = self.time
        self.kind = kind
        self.opened: list[Any] = []
        self.closed: list[Any] = []
        self.driver: Any = self.store.driver() if kind == "sync" else self.store.async_driver()
        place, names = (connections, (f"{kind}_connect", f"{kind}_disconnect"))
        if server != "redis_keys":
            place, names = self.driver._adapter, ("connect", "close")
        for name, noting in zip(names, (self._noting_opened, self._noting_closed), strict=True):
            monkeypatch.setattr(place, name, noting(getattr(place, name)))

    def _noting_opened(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        if self.kind == "sync":

            def sync_connect(*args: Any, **settings: Any) -> Any:
                self.opened.append(connect(*args, **settings))
                return self.opened[-1]

            return sync_connect

        async def async_connect(*args: Any, **settings: Any) -> Any:
            self.opened.append(await connect(*args, **settings))
            return self.opened[-1]

        return async_connect

    def _noting_closed(self, close: Callable[..., Any]) -> Callable[..., Any]:
        def noting(connection: Any, *args: Any) -> Any:
            self.closed.append(connection)
            return close(connection, *args)

        return noting

    async def use(self, number: int = 1) -> None:
        """Read so many records, side by side where that needs as many connections."""
        for _ in range(1 if self.kind == "async" else number):
            digest = Key.of("k", operation="pay").digest
            plans = [self.store.plan([Read(digest, operation="pay")], joined=False) for _ in range(number)]
            replies = self.driver.perform(plans)
            for reply in await replies if self.kind == "async" else replies:
                assert not isinstance(reply, Exception), reply

    async def close(self) -> None:
        closing = self.driver.close()
        if self.kind == "async":
            await closing


Play = Callable[..., None]
Script = Callable[[Pool], Awaitable[None]]


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sync", "async"])
def play(request: pytest.FixtureRequest, server: str, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Plays a script with a driver of every kind, on every server whose connections have ages."""

    def play(script: Script, **settings: Any) -> None:
        async def main() -> None:
            pool = Pool(server, request.param, request.getfixturevalue(server).url, monkeypatch, **settings)
            try:
                await script(pool)
            finally:
                await pool.close()

        asyncio.run(main())

    return play


def test_a_connection_is_kept_where_nothing_else_is_said(play: Play) -> None:
    async def script(pool: Pool) -> None:
        for _ in range(3):
            await pool.use()
            pool.time.now += 10 * 86_400
        assert (len(pool.opened), pool.closed) == (1, [])

    play(script)


def test_a_connection_is_replaced_after_its_lifetime(play: Play) -> None:
    async def script(pool: Pool) -> None:
        for pause in (0, 59, 0.9):
            pool.time.now += pause
            await pool.use()
        assert (len(pool.opened), pool.closed) == (1, []), "it was replaced too early"
        pool.time.now += 0.1
        await pool.use()
        assert (len(pool.opened), pool.closed) == (2, pool.opened[:1])

    play(script, lifetime=60)


def test_a_connection_that_nobody_used_is_closed(play: Play) -> None:
    async def script(pool: Pool) -> None:
        for _ in range(4):
            await pool.use()
            pool.time.now += 59
        assert (len(pool.opened), pool.closed) == (1, []), "it was closed although it was used"
        pool.time.now += 1
        await pool.use()
        assert (len(pool.opened), pool.closed) == (2, pool.opened[:1])

    play(script, idle_for=60)


@pytest.mark.parametrize("server", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize(("min_idle", "kept"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_so_many_are_kept_however_long_nobody_uses_them(
    request: pytest.FixtureRequest, server: str, monkeypatch: pytest.MonkeyPatch, min_idle: int, kept: int
) -> None:
    async def main() -> None:
        url = request.getfixturevalue(server).url
        pool = Pool(server, "async", url, monkeypatch, min_idle=min_idle, idle_for=60, pool_size=3)
        try:
            await pool.use(3)
            assert len(pool.opened) == 3
            pool.time.now += 60
            await pool.use()
            assert len(pool.closed) == 3 - kept
        finally:
            await pool.close()

    asyncio.run(main())


def test_connections_in_use_are_left_alone(play: Play) -> None:
    async def script(pool: Pool) -> None:
        await pool.use()
        pool.time.now += 30
        await pool.use(2)
        pool.time.now += 40
        await pool.use()
        assert pool.closed == pool.opened[:1]

    play(script, lifetime=60)


@pytest.mark.parametrize("kind", [Semel, AsyncSemel])
@pytest.mark.parametrize("server", ["postgresql", "mariadb", "redis_keys"])
def test_an_engine_goes_on_over_replaced_connections(
    request: pytest.FixtureRequest, server: str, kind: type[Any]
) -> None:
    async def main() -> list[Any]:
        semel = kind(request.getfixturevalue(server).url, lifetime=0.000001)
        values = []
        for number in range(3):

            async def async_handler(number: int = number) -> int:
                return number

            handler: Any = async_handler if kind is AsyncSemel else lambda number=number: number
            for _ in range(2):
                found = semel.run(f"replaced-{number}", handler, operation="ages", fingerprint=None, scope=server)
                values.append((await found if kind is AsyncSemel else found).value)
        closing = semel.close()
        if kind is AsyncSemel:
            await closing
        return values

    assert asyncio.run(main()) == [0, 0, 1, 1, 2, 2]
