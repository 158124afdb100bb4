"""MySQL itself, for those who ask for it: SEMEL_TEST_MYSQL_SERVER_URL names one, SEMEL_TEST_MYSQL=1 fetches one.

What always holds: MariaDB is never taken for MySQL, and nothing is fetched unasked, because the version moves.
"""

import os
import signal
import subprocess
from pathlib import Path

from tests.servers import programs
from tests.servers.databases import Databases, Endpoint
from tests.servers.mariadb import USER, MysqlClient
from tests.servers.programs import Programs, ServerMissing
from tests.servers.room import ROOT, Room
from tests.servers.server import HOST, Options, Server, arguments
from tests.servers.service import Service

TREE = programs.UNPACKED / "mysql"
_WISH = "SEMEL_TEST_MYSQL"


class MysqlServer(Server):
    """One private MySQL, run by the loader and the libraries of the tree it was unpacked in."""

    stop_signal = signal.SIGTERM

    def prepare(self) -> None:
        init = self.folder / "init.sql"
        init.write_text(USER)
        init.chmod(0o644)
        self.prepare_with([*self._program(), "--initialize-insecure"])

    def command(self) -> list[str]:
        settings = {
            "bind-address": HOST,
            "port": self.port,
            "socket": self.folder / "socket",
            "pid-file": self.folder / "server.pid",
            "init-file": self.folder / "init.sql",
            "mysqlx": "OFF",
            "skip-name-resolve": "ON",
            "skip-log-bin": "ON",
            "max-connections": self.options.max_connections,
            "innodb-buffer-pool-size": "64M",
            "innodb-flush-log-at-trx-commit": 1 if self.options.fsync else 0,
            "general-log-file": self.folder / "statements.log",
            "general-log": 1 if self.options.log_statements else 0,
        }
        return [*self._program(), *arguments([], settings, self.options.settings)]

    def describe(self) -> Endpoint:
        return Endpoint(
            f"mysql://semel@{HOST}:{self.port}/", str(self.folder / "server.log"), str(self.folder / "statements.log")
        )

    def where_its_data_is(self) -> str:
        return str(self.admin("SELECT @@datadir")[0][0])

    def refusal(self) -> type[Exception]:
        import pymysql

        return pymysql.err.OperationalError

    def _program(self) -> list[str]:
        libraries = next(iter(TREE.glob("usr/lib/*-linux-gnu")))
        return [
            self.programs["loader"], "--library-path", str(libraries), self.programs["mysqld"], "--no-defaults",
            f"--datadir={self.data}", f"--lc-messages-dir={TREE}/usr/share/mysql",
            f"--plugin-dir={TREE}/usr/lib/mysql/plugin", "--secure-file-priv=NULL",
        ]  # fmt: skip


class Mysql(Service[Databases]):
    """How tests come by MySQL."""

    name = "mysql"
    variable = "SEMEL_TEST_MYSQL_SERVER_URL"
    # Debian's stable suites have no package of it, so a run is complete without.
    optional = True

    def start(self, room: Room) -> Endpoint:
        if os.environ.get(_WISH) != "1":
            raise ServerMissing(
                "MySQL itself was not asked for, so it is not tested (MariaDB is apart). "
                f"Fetch one with {_WISH}=1, or name one: {self.variable}=mysql://user:password@host/"
            )
        server = MysqlServer(_obtain(), room.folder("mysql"), Options(), MysqlClient())
        server.launch()
        return server.endpoint

    def connect(self, endpoint: Endpoint) -> Databases:
        return Databases(MysqlClient(), endpoint)


def _obtain() -> Programs:
    done = subprocess.run([str(ROOT / "scripts" / "unpack-mysql")], capture_output=True, text=True, check=False)
    loader = next(iter(TREE.glob("usr/lib*/ld-linux-*.so.*")), None)
    mysqld = TREE / "usr" / "sbin" / "mysqld"
    if done.returncode or loader is None or not _is_open(loader, mysqld):
        raise ServerMissing(f"MySQL could not be fetched, so it is not tested.\n{done.stderr[-1000:]}".rstrip())
    return Programs({"loader": loader, "mysqld": mysqld})


def _is_open(*paths: Path) -> bool:
    return all(path.exists() and programs.is_open_to_all(path) for path in paths)
