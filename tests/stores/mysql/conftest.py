"""A store on MariaDB, and on MySQL itself where there is one: empty tables, a clock that stands still."""

from collections.abc import Iterator

import pytest

from semel.stores.mysql import MysqlStore
from tests.servers.databases import Databases
from tests.stores.mysql.kit import Asker, emptied
from tests.unit.stores.operations import Clock


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Databases:
    databases: Databases = request.getfixturevalue(request.param)
    return databases


@pytest.fixture
def url(server: Databases) -> str:
    MysqlStore(server.url)._fetch_install_id()
    emptied(server.url)
    return server.url


@pytest.fixture
def asker(url: str, clock: Clock) -> Iterator[Asker]:
    asker = Asker(MysqlStore(url, clock=clock), clock)
    yield asker
    asker.driver.close()
