"""MySQL itself, for those who have one: tests use the server that SEMEL_TEST_MYSQL_SERVER_URL names, or skip.

What always holds: nothing is installed or started; MariaDB is never taken for MySQL.
"""

from tests.servers.databases import Databases, Endpoint
from tests.servers.mariadb import MysqlClient
from tests.servers.programs import ServerMissing
from tests.servers.room import Room
from tests.servers.service import Service


class Mysql(Service[Databases]):
    """How tests come by MySQL."""

    name = "mysql"
    variable = "SEMEL_TEST_MYSQL_SERVER_URL"
    # Debian has no package of it, so a run is complete without.
    optional = True

    def start(self, room: Room) -> Endpoint:
        raise ServerMissing(
            "MySQL itself was not tested (MariaDB is apart): Debian has no package of it. "
            f"Name a server: {self.variable}=mysql://user:password@host/"
        )

    def connect(self, endpoint: Endpoint) -> Databases:
        return Databases(MysqlClient(), endpoint)
