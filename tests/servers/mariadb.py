"""MariaDB for tests, crash tests and benchmarks: `with mariadb.running(fsync=True) as server: ...`.

What always holds: nobody but this machine reaches the server, and it is gone when the block is left.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.servers import programs
from tests.servers.databases import Endpoint, Session, session_on
from tests.servers.room import Room
from tests.servers.server import HOST, Options, Server, arguments, running_by
from tests.servers.service import DatabaseService

_NAMES = ("mariadb-install-db", "mariadbd", "my_print_defaults")
_USER = f"""\
CREATE USER IF NOT EXISTS semel@'{HOST}';
GRANT ALL ON *.* TO semel@'{HOST}' WITH GRANT OPTION;
"""
# Tables are made and dropped by the hundred, and each time the disk would be waited for.
_UNSYNCED = {"loose-innodb-flush-method": "nosync", "loose-sync-frm": 0, "loose-aria-sync-log-dir": "NEVER"}


class MysqlClient:
    """Speaks to MariaDB and to MySQL."""

    @contextmanager
    def session(self, url: str) -> Iterator[Session]:
        import pymysql

        at = urlsplit(url)
        with pymysql.connect(
            host=at.hostname or HOST,
            port=at.port or 3306,
            user=unquote(at.username or ""),
            password=unquote(at.password or ""),
            database=at.path.lstrip("/") or None,
            autocommit=True,
        ) as connection:
            yield session_on(connection)

    def create(self, name: str) -> str:
        return f"CREATE DATABASE {name}"

    def drop(self, name: str) -> str:
        return f"DROP DATABASE {name}"


class MysqlKindOfServer(Server):
    """What MariaDB and MySQL have in common."""

    stop_signal = signal.SIGTERM

    def write_init_file(self) -> None:
        """Write down what the server does first whenever it starts: let the tests in."""
        init = self.folder / "init.sql"
        init.write_text(_USER)
        init.chmod(0o644)

    def common_settings(self) -> dict[str, Any]:
        """The settings that both know by the same names."""
        return {
            "bind-address": HOST,
            "port": self.port,
            "socket": self.folder / "socket",
            "pid-file": self.folder / "server.pid",
            # A server that starts deletes the temporary tables that it finds there, those of a running one as well.
            "tmpdir": self.folder,
            "init-file": self.folder / "init.sql",
            "max-connections": self.options.max_connections,
            "innodb-buffer-pool-size": "64M",
            "innodb-flush-log-at-trx-commit": 1 if self.options.fsync else 0,
            "general-log-file": self.folder / "statements.log",
            "general-log": 1 if self.options.log_statements else 0,
        }

    def describe(self) -> Endpoint:
        return Endpoint(
            f"mysql://semel@{HOST}:{self.port}/", str(self.folder / "server.log"), str(self.folder / "statements.log")
        )

    def where_its_data_is(self) -> str:
        return str(self.admin("SELECT @@datadir")[0][0])

    def refusal(self) -> type[Exception]:
        import pymysql

        return pymysql.OperationalError


class MariadbServer(MysqlKindOfServer):
    """One private MariaDB."""

    def prepare(self) -> None:
        self.write_init_file()
        self.prepare_with([
            self.programs["mariadb-install-db"], "--no-defaults", *self._base(), f"--datadir={self.data}",
            "--auth-root-authentication-method=normal", "--skip-test-db",
        ])  # fmt: skip

    def command(self) -> list[str]:
        settings = {
            **self.common_settings(),
            "datadir": self.data,
            "skip-name-resolve": 1,
            "character-set-server": "utf8mb4",
            "innodb-doublewrite": 1 if self.options.fsync else 0,
            **({} if self.options.fsync else _UNSYNCED),
        }
        return [
            self.programs["mariadbd"], "--no-defaults", *self._base(), *arguments([], settings, self.options.settings)
        ]  # fmt: skip

    def _base(self) -> list[str]:
        tree = self.programs.tree
        return [] if tree == programs.SYSTEM else [f"--basedir={tree}/usr", f"--lc-messages-dir={tree}/usr/share/mysql"]


class Mariadb(DatabaseService):
    """How tests come by MariaDB."""

    name = "mariadb"
    variable = "SEMEL_TEST_MYSQL_URL"
    client = MysqlClient

    def start(self, room: Room) -> Endpoint:
        return start(room, Options()).endpoint


def start(room: Room, options: Options) -> MariadbServer:
    """Start a server that ends with the room."""
    found = programs.obtain("mariadb", lambda: programs.find(_NAMES, ["usr/sbin", "usr/bin"]))
    server = MariadbServer(found, room.folder("mariadb"), options, MysqlClient())
    server.launch()
    return server


running = partial(running_by, start)
"""A private server for the length of the block: `running_by` says with which options."""
