"""MySQL itself, for those who ask for it: SEMEL_TEST_MYSQL_SERVER_URL names one, SEMEL_TEST_MYSQL=1 fetches one.

What always holds: MariaDB is never taken for MySQL, and nothing is fetched unasked, because the version moves.
"""

import os
import subprocess
from pathlib import Path

from tests.servers import programs
from tests.servers.databases import Endpoint
from tests.servers.mariadb import MysqlClient, MysqlKindOfServer
from tests.servers.programs import Programs, ServerMissing
from tests.servers.room import ROOT, Room
from tests.servers.server import Options, arguments
from tests.servers.service import DatabaseService

TREE = programs.UNPACKED / "mysql"
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
        libraries = next(iter(TREE.glob("usr/lib/*-linux-gnu")))
        return [
            self.programs["loader"], "--library-path", str(libraries), self.programs["mysqld"], "--no-defaults",
            f"--datadir={self.data}", f"--lc-messages-dir={TREE}/usr/share/mysql",
            f"--plugin-dir={TREE}/usr/lib/mysql/plugin", "--secure-file-priv=NULL",
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
        server = MysqlServer(_obtain(), room.folder("mysql"), Options(), MysqlClient())
        server.launch()
        return server.endpoint


def _obtain() -> Programs:
    done = subprocess.run([str(ROOT / "scripts" / "unpack-mysql")], capture_output=True, text=True, check=False)
    loader = next(iter(TREE.glob("usr/lib*/ld-linux-*.so.*")), None)
    mysqld = TREE / "usr" / "sbin" / "mysqld"
    if done.returncode or loader is None or not _is_open(loader, mysqld):
        raise ServerMissing(f"MySQL could not be fetched, so it is not tested.\n{done.stderr[-1000:]}".rstrip())
    return Programs({"loader": loader, "mysqld": mysqld})


def _is_open(*paths: Path) -> bool:
    return all(path.exists() and programs.is_open_to_all(path) for path in paths)
