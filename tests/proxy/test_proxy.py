"""The proxy in front of real servers, seen through four client libraries: what was lost, what happened all the same."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import psycopg
import pymysql
import pytest

from tests.proxy.plan import Cut, How
from tests.proxy.proxy import Proxy, Seen
from tests.proxy.wire import Direction
from tests.servers.databases import Databases

SERVER, CLIENT = Direction.TO_SERVER, Direction.TO_CLIENT
SOON = 30.0
INSERT = "INSERT INTO effect VALUES (1)"
LOST = (OSError, psycopg.OperationalError, asyncpg.PostgresError, pymysql.Error, asyncmy.errors.Error)


def _address(url: str) -> dict[str, Any]:
    at = urlsplit(url)
    return {"host": at.hostname, "port": at.port, "user": at.username, "database": at.path.lstrip("/")}


def with_psycopg(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSERT.encode())


def with_asyncpg(url: str) -> None:
    async def insert() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(INSERT)
        finally:
            await connection.close()

    asyncio.run(insert())


def with_pymysql(url: str) -> None:
    connection = pymysql.connect(**_address(url), password="", autocommit=True)
    try:
        with connection.cursor() as cursor:
            cursor.execute(INSERT)
    finally:
        with contextlib.suppress(pymysql.Error):
            connection.close()


def with_asyncmy(url: str) -> None:
    async def insert() -> None:
        connection = await asyncmy.connect(**_address(url), password="", autocommit=True)
        try:
            async with connection.cursor() as cursor:
                await cursor.execute(INSERT)
        finally:
            connection.close()

    asyncio.run(insert())


@dataclass
class Scene:
    """A table, the way around the proxy to it, and a client that inserts one row."""

    databases: Databases
    url: str
    insert: Callable[[str], None]

    def rows(self) -> int:
        """How often the effect happened, asked without the proxy."""
        (count,) = self.databases.admin("SELECT COUNT(*) FROM effect", self.url)[0]
        return int(count)


CLIENTS = {
    "psycopg": ("postgresql", with_psycopg),
    "asyncpg": ("postgresql", with_asyncpg),
    "pymysql": ("mariadb", with_pymysql),
    "asyncmy": ("mariadb", with_asyncmy),
}


@pytest.fixture(params=CLIENTS)
def scene(request: pytest.FixtureRequest) -> Scene:
    kind, insert = CLIENTS[request.param]
    databases: Databases = request.getfixturevalue(kind)
    databases.admin("DROP TABLE IF EXISTS effect", databases.url)
    databases.admin("CREATE TABLE effect (a INT)", databases.url)
    return Scene(databases, databases.url, insert)


@pytest.fixture
def proxy(scene: Scene) -> Iterator[Proxy]:
    with Proxy(scene.url) as proxy:
        yield proxy


def at_insert(how: How) -> Cut:
    return Cut(SERVER, 1, how, kind="Query", containing=INSERT.encode())


def test_without_a_cut_nothing_changes(scene: Scene, proxy: Proxy) -> None:
    scene.insert(proxy.url)
    assert scene.rows() == 1


def test_what_came_by_is_listed_in_order(scene: Scene, proxy: Proxy) -> None:
    scene.insert(proxy.url)
    begin, answer = (
        (Seen(SERVER, "StartupMessage"), Seen(CLIENT, "CommandComplete"))
        if proxy.url.startswith("postgresql")
        else (Seen(CLIENT, "Greeting"), Seen(CLIENT, "Ok"))
    )
    seen = proxy.seen
    query = max(at for at, one in enumerate(seen) if one == (SERVER, "Query"))
    assert seen.index(begin) < query < len(seen) - 1 - seen[::-1].index(answer)


def test_a_dropped_request_never_happened(scene: Scene, proxy: Proxy) -> None:
    proxy.plan(at_insert(How.DROP))
    with pytest.raises(LOST):
        scene.insert(proxy.url)
    assert scene.rows() == 0


def test_a_request_whose_reply_was_dropped_happened(scene: Scene, proxy: Proxy) -> None:
    cut = at_insert(How.DROP_REPLY)
    proxy.plan(cut)
    with pytest.raises(LOST):
        scene.insert(proxy.url)
    assert cut.done.wait(SOON)
    assert scene.rows() == 1


def test_half_a_request_never_happened(scene: Scene, proxy: Proxy) -> None:
    proxy.plan(at_insert(How.SPLIT))
    with pytest.raises(LOST):
        scene.insert(proxy.url)
    assert scene.rows() == 0


@pytest.mark.parametrize("how", [How.DROP, How.SPLIT], ids=["none of it", "half of it"])
def test_without_its_reply_a_client_does_not_know_what_happened(scene: Scene, how: How) -> None:
    with Proxy(scene.url) as proxy:
        scene.insert(proxy.url)
        seen = proxy.seen
    # The reply to the insert is the first message to the client after it.
    query = max(at for at, one in enumerate(seen) if one == (SERVER, "Query"))
    number = 1 + sum(one.direction is CLIENT for one in seen[:query])
    with Proxy(scene.url, Cut(CLIENT, number, how)) as proxy, pytest.raises(LOST):
        scene.insert(proxy.url)
    assert scene.rows() == 2


def test_a_held_request_happens_when_it_is_released(scene: Scene, proxy: Proxy) -> None:
    cut = at_insert(How.HOLD)
    proxy.plan(cut)
    with ThreadPoolExecutor(1) as pool:
        inserted = pool.submit(scene.insert, proxy.url)
        assert cut.reached.wait(SOON)
        assert scene.rows() == 0
        cut.release.set()
        inserted.result(SOON)
    assert scene.rows() == 1


def test_a_request_still_held_when_the_proxy_closes_never_happens(scene: Scene) -> None:
    cut = at_insert(How.HOLD)
    with ThreadPoolExecutor(1) as pool:
        with Proxy(scene.url, cut) as proxy:
            inserted = pool.submit(scene.insert, proxy.url)
            assert cut.reached.wait(SOON)
        with pytest.raises(LOST):
            inserted.result(SOON)
    assert scene.rows() == 0


def test_a_cut_happens_once(scene: Scene, proxy: Proxy) -> None:
    proxy.plan(at_insert(How.DROP))
    with pytest.raises(LOST):
        scene.insert(proxy.url)
    scene.insert(proxy.url)
    assert scene.rows() == 1


def test_only_the_message_of_that_number_is_cut(scene: Scene, proxy: Proxy) -> None:
    proxy.plan(Cut(SERVER, 3, How.DROP, containing=INSERT.encode()))
    scene.insert(proxy.url)
    scene.insert(proxy.url)
    with pytest.raises(LOST):
        scene.insert(proxy.url)
    assert scene.rows() == 2


def test_every_message_to_the_server_can_be_cut(scene: Scene) -> None:
    with Proxy(scene.url) as proxy:
        scene.insert(proxy.url)
        requests = [one.kind for one in proxy.seen if one.direction is SERVER]
    until_insert = len(requests) - requests[::-1].index("Query")
    for number in range(1, until_insert + 1):
        with Proxy(scene.url, Cut(SERVER, number, How.DROP)) as proxy, pytest.raises(LOST):
            scene.insert(proxy.url)
    assert scene.rows() == 1


def test_a_severed_connection_is_lost_and_a_new_one_is_not(postgresql: Databases) -> None:
    with Proxy(postgresql.url) as proxy:
        with psycopg.connect(proxy.url) as connection:
            connection.execute("SELECT 1")
            proxy.sever()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        with psycopg.connect(proxy.url) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_the_reply_of_a_statement_with_parameters_can_be_dropped(postgresql: Databases) -> None:
    url = postgresql.new_database()
    postgresql.admin("CREATE TABLE effect (a INT)", url)
    cut = Cut(SERVER, 1, How.DROP_REPLY, kind="Execute")
    with (
        Proxy(url, cut) as proxy,
        psycopg.connect(proxy.url, autocommit=True) as connection,
        pytest.raises(psycopg.OperationalError),
    ):
        connection.execute("INSERT INTO effect VALUES (%s)", (1,))
    assert postgresql.admin("SELECT a FROM effect", url) == [(1,)]


def test_a_client_of_a_server_that_is_down_is_turned_away() -> None:
    with Proxy("postgresql://semel@127.0.0.1:1/postgres") as proxy, pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url)


def test_only_requests_have_replies_to_drop() -> None:
    with pytest.raises(ValueError, match="needs TO_SERVER"):
        Cut(CLIENT, 1, How.DROP_REPLY)
