"""MySQL itself, for those who ask for it: SEMEL_TEST_MYSQL_SERVER_URL names one, SEMEL_TEST_MYSQL=1 fetches one.

What always holds: MariaDB is never taken for MySQL, and nothing is fetched unasked, because the version moves.
"""

import os

from tests.servers import unstable
from tests.servers.databases import Endpoint
from tests.servers.mariadb import MysqlClient, MysqlKindOfServer
from tests.servers.programs import ServerMissing
from tests.servers.room import Room
from tests.servers.server import Options, arguments
from tests.servers.service import DatabaseService

_WISH = "SEMEL_TEST_MYSQL"


class MysqlServer(MysqlKindOfServer):
    """One private MySQL, run by the loader and the libraries of the tree it was unpacked in."""

    def prepare(self) -> None:
        self.write_init_file()
        self.prepare_with([*self._program(), "--initialize-insecure"])

    def command(self) -> list[str]:
        settings = {**self.common_settings(), "mysqlx": "OFF", "skip-name-resolve": "ON", "skip-log-bin": "ON"}
        return [*self._program(), *arguments([], settings, self.options.settings)]

    def _program(self) -> list[str]:
        tree = self.programs.tree
        return [
            *unstable.command(self.programs, "mysqld"), "--no-defaults",
            f"--datadir={self.data}", f"--lc-messages-dir={tree}/usr/share/mysql",
            f"--plugin-dir={tree}/usr/lib/mysql/plugin", "--secure-file-priv=NULL",
        ]  # fmt: skip


class Mysql(DatabaseService):
    """How tests come by MySQL."""

    name = "mysql"
    variable = "SEMEL_TEST_MYSQL_SERVER_URL"
    client = MysqlClient
    # Debian's stable suites have no package of it, so a run is complete without.
    optional = True

    @classmethod
    def is_asked_for(cls) -> bool:
        """Whether the environment names one, or wants one to be fetched."""
        return bool(os.environ.get(cls.variable)) or os.environ.get(_WISH) == "1"

    def start(self, room: Room) -> Endpoint:
        if not self.is_asked_for():
            raise ServerMissing(
                "MySQL itself was not asked for, so it is not tested (MariaDB is apart). "
                f"Fetch one with {_WISH}=1, or name one: {self.variable}=mysql://user:password@host/"
            )
        server = MysqlServer(
            unstable.obtain("mysql", "usr/sbin/mysqld"), room.folder("mysql"), Options(), MysqlClient()
        )
        server.launch()
        return server.endpoint
