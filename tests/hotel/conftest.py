"""What the tests of the hotel share: a gateway, databases, and a front desk on them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from examples.hotel.settings import Settings
from tests.hotel.front_desk import Clock, FrontDesk, Gateway
from tests.hotel.gateway_process import GatewayProcess

Build = Callable[..., Awaitable[FrontDesk]]
PATIENCE = timedelta(minutes=2)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def any_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/hotel.db"
    return str(request.getfixturevalue(request.param).new_database())


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
    """Builds a hotel on a database, with leases that no loaded machine lets end, and no sweeper in the background."""
    built: list[FrontDesk] = []

    async def build(
        url: str, *, made: bool = True, rooms: int = 1, overbooking: int = 0, gateway_timeout: timedelta = PATIENCE
    ) -> FrontDesk:
        clock = built[0].clock if built else Clock()
        settings = Settings(
            database=url,
            gateway=gateway.address,
            clock=clock,
            lease_for=PATIENCE,
            wait_for=PATIENCE,
            reconcile_after=timedelta(0),
            gateway_timeout=gateway_timeout,
            sweep_every=None,
        )
        desk = FrontDesk(settings, clock, gateway)
        built.append(desk)
        if made:
            await desk.build(rooms, overbooking)
        return desk

    yield build
    for desk in built:
        await desk.parts.close()


@pytest.fixture
async def desk(build: Build, tmp_path: Path) -> FrontDesk:
    """A hotel with one room, on SQLite."""
    return await build(f"sqlite:///{tmp_path}/hotel.db")


@pytest.fixture
async def any_desk(build: Build, any_database: str) -> FrontDesk:
    """The same on every kind of database."""
    return await build(any_database)
