"""The MySQL store keeps the contract, on MariaDB and on MySQL itself where there is one."""

from __future__ import annotations

import pytest

from semel.stores.mysql import MysqlStore
from semel.testing.clock import VirtualClock
from semel.testing.contract import (
    AuditContract,
    BatchContract,
    InvalidationContract,
    LetterContract,
    MakeStore,
    OutboxContract,
    StoreContract,
)
from tests.contract.engine_rows import ENGINE_ROWS
from tests.servers.databases import Databases
from tests.servers.mysql import Mysql
from tests.servers.records import emptied

pytestmark = pytest.mark.slow


class OnServer(StoreContract, InvalidationContract, LetterContract, OutboxContract, BatchContract, AuditContract):
    """The contract on one kind of server."""

    @pytest.fixture
    def make_store(self, clock: VirtualClock, server: Databases) -> MakeStore:
        url = emptied(server, server.url)
        return lambda: MysqlStore(url, clock=clock.store_clock)


@pytest.mark.covering(shared=("colour", "call_style"), spread=ENGINE_ROWS)
class TestMariadb(OnServer):
    @pytest.fixture
    def server(self, mariadb: Databases) -> Databases:
        return mariadb


if Mysql.is_asked_for():  # otherwise thousands of tests would be collected to be left out again

    @pytest.mark.covering(shared=("colour", "call_style"))  # by itself: it is not there in every run
    class TestMysql(OnServer):
        @pytest.fixture
        def server(self, mysql: Databases) -> Databases:
            return mysql

else:

    def test_mysql_itself_is_skipped_in_plain_sight(mysql: Databases) -> None:
        pytest.fail(f"nobody asked for {mysql}, and its tests were not collected")
