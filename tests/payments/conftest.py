"""What the tests of the payments service share: a gateway, databases, and tills on them."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from examples.payments.parts import opened
from examples.payments.settings import Settings
from tests.hotel.front_desk import Gateway
from tests.hotel.gateway_process import GatewayProcess
from tests.payments.till import Clock, Shop, Till

Build = Callable[..., Awaitable[Till]]
PATIENCE = timedelta(minutes=2)


async def prepare(url: str) -> None:
    """Make the tables."""
    async with opened(Settings(database=url)) as parts:
        await parts.prepare()


async def _clear(url: str) -> None:
    async with opened(Settings(database=url)) as parts, parts.database.engine.begin() as connection:
        await connection.execute(text("TRUNCATE account CASCADE"))


@pytest.fixture(scope="session")
def file_with_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To make the tables takes longer than most tests: this file has them, and is copied."""
    file = tmp_path_factory.mktemp("tables") / "payments.db"
    asyncio.run(prepare(f"sqlite:///{file}"))
    return file


@pytest.fixture
def sqlite_database(file_with_tables: Path, tmp_path: Path) -> str:
    """The URL of an SQLite file with tables, and nothing in them."""
    shutil.copy(file_with_tables, tmp_path / "payments.db")
    return f"sqlite:///{tmp_path}/payments.db"


@pytest.fixture(scope="session")
def server_with_tables(request: pytest.FixtureRequest) -> str:
    """The same on PostgreSQL."""
    url = str(request.getfixturevalue("postgresql").new_database())
    asyncio.run(prepare(url))
    return url


@pytest.fixture
def postgresql_database(server_with_tables: str) -> str:
    """The URL of a PostgreSQL database with tables, and nothing in them but records of other accounts."""
    asyncio.run(_clear(server_with_tables))
    return server_with_tables


@pytest.fixture(params=["sqlite", "postgresql"])
def any_database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, of each kind in turn."""
    return str(request.getfixturevalue(f"{request.param}_database"))


@pytest.fixture(scope="session")
def one_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of this worker: to start one takes longer than most tests."""
    with GatewayProcess(tmp_path_factory.mktemp("gateway") / "ledger.jsonl") as process:
        yield Gateway(process)


@pytest.fixture
def gateway(one_gateway: Gateway) -> Gateway:
    """A gateway that answers, whatever the test before did to it."""
    one_gateway.ready_for_another_test()
    return one_gateway


@pytest.fixture
async def build(gateway: Gateway) -> AsyncIterator[Build]:
    """Builds a service on a database, with leases that no loaded machine lets end."""
    built: list[Till] = []

    async def build(url: str, **changed: Any) -> Till:
        clock = Clock()
        settings = Settings(
            database=url,
            gateway=gateway.address,
            clock=clock,
            lease_for=PATIENCE,
            wait_for=PATIENCE,
            gateway_timeout=PATIENCE,
        )
        till = Till(replace(settings, **changed), clock, gateway)
        built.append(till)
        return till

    yield build
    for till in built:
        await till.parts.close()


@pytest.fixture
async def till(build: Build, sqlite_database: str) -> Till:
    """A service on SQLite."""
    return await build(sqlite_database)


@pytest.fixture
async def any_till(build: Build, any_database: str) -> Till:
    """The same on every kind of database."""
    return await build(any_database)


@pytest.fixture
async def shop(till: Till) -> Shop:
    """An account of that service."""
    return await till.shop()


@pytest.fixture
async def any_shop(any_till: Till) -> Shop:
    """The same on every kind of database."""
    return await any_till.shop()
