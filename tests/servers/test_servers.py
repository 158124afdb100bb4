"""The servers that other tests stand on: they start, keep apart, survive what tests do to them, and leave nothing."""

import contextlib
import fcntl
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from semel import Semel
from tests.servers import ministack, process, programs
from tests.servers import room as room_module
from tests.servers.databases import Databases, Endpoint
from tests.servers.mariadb import Mariadb
from tests.servers.ministack import Ministack, Tables
from tests.servers.plugin import obtain_or_skip
from tests.servers.postgresql import Postgresql
from tests.servers.programs import ServerMissing
from tests.servers.redis import Keys
from tests.servers.room import ROOT, Room
from tests.servers.server import Server
from tests.servers.service import Service, not_there

BOTH = pytest.mark.parametrize("kind", ["postgresql", "mariadb"])

SERVICES = {"postgresql": Postgresql, "mariadb": Mariadb}

LISTED = {
    "postgresql": "SELECT datname FROM pg_database",
    "mariadb": "SELECT schema_name FROM information_schema.schemata",
}

DIES = """
import os, signal
from tests.servers import {kind}
with {kind}.running() as server:
    keeper = (server.folder.parent / "keeper.pid").read_text()
    print(server.folder.parent, server.pid, keeper, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def databases(kind: str, request: pytest.FixtureRequest) -> Databases:
    found = request.getfixturevalue(kind)
    assert isinstance(found, Databases)
    return found


@pytest.fixture
def start(kind: str, request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Server]]:
    found: Callable[..., AbstractContextManager[Server]] = request.getfixturevalue(f"start_{kind}")
    return found


@pytest.fixture
def own_room(tmp_path: Path) -> Room:
    return Room(tmp_path / "room", 0)


@BOTH
def test_the_server_of_the_run_answers(databases: Databases) -> None:
    assert databases.admin("SELECT 1", databases.url) == [(1,)]


def test_mysql_is_not_mariadb(mysql: Databases) -> None:
    ((version,),) = mysql.admin("SELECT VERSION()", mysql.url)
    assert "MariaDB" not in version


def test_the_newest_redis_has_commands_that_stable_suites_lack(newest_redis_keys: Keys) -> None:
    arguments = newest_redis_keys.said("COMMAND", "DOCS", "XADD")
    assert b"IDMP" in repr(arguments).encode()


@BOTH
def test_the_database_of_a_worker_stays_the_same(databases: Databases) -> None:
    assert databases.url == databases.url


@BOTH
def test_two_databases_do_not_see_each_other(databases: Databases) -> None:
    one, other = databases.new_database(), databases.new_database()
    databases.admin("CREATE TABLE mine (a INT)", one)
    databases.admin("CREATE TABLE mine (b INT)", other)
    assert databases.admin("SELECT a FROM mine", one) == databases.admin("SELECT b FROM mine", other) == []


@BOTH
def test_what_was_made_on_a_named_server_is_dropped(
    kind: str, databases: Databases, own_room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = SERVICES[kind]()
    monkeypatch.setenv(service.variable, databases.endpoint.url)
    named = service.obtain(own_room)
    name = urlsplit(named.new_database()).path.lstrip("/")
    assert (name,) in databases.admin(LISTED[kind])
    named.drop_all()
    assert (name,) not in databases.admin(LISTED[kind])


def test_a_named_server_is_used_and_nothing_is_started(own_room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Postgresql.variable, "postgresql://nowhere/")
    assert Postgresql().obtain(own_room).endpoint == Endpoint("postgresql://nowhere/")
    assert not own_room.path.exists()


@pytest.mark.slow
@BOTH
def test_commits_survive_kill_and_restart(start: Callable[..., AbstractContextManager[Server]]) -> None:
    with start(fsync=True) as server:
        url = server.url
        server.admin("CREATE TABLE kept (a INT)", url)
        server.admin("INSERT INTO kept VALUES (7)", url)
        server.kill()
        assert not server.is_alive
        server.restart()
        assert server.admin("SELECT a FROM kept", url) == [(7,)]


@pytest.mark.slow
@BOTH
def test_statements_can_be_read_back(start: Callable[..., AbstractContextManager[Server]]) -> None:
    with start(log_statements=True) as server:
        server.admin("SELECT 4711")
        assert server.statement_log is not None
        assert server.statement_log.read_text().count("SELECT 4711") == 1


@pytest.mark.slow
@BOTH
def test_settings_of_the_caller_win(kind: str, start: Callable[..., AbstractContextManager[Server]]) -> None:
    name, ask = {
        "postgresql": ("max_connections", "SHOW max_connections"),
        "mariadb": ("max-connections", "SELECT @@max_connections"),
    }[kind]
    with start(max_connections=20, settings={name: "33"}) as server:
        assert str(server.admin(ask)[0][0]) == "33"


@pytest.mark.slow
def test_kill_ends_the_processes_of_connections_too(
    start_postgresql: Callable[..., AbstractContextManager[Server]],
) -> None:
    import psycopg

    with start_postgresql() as server, psycopg.connect(server.url) as connection:
        (backend,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        assert process.is_alive(backend)
        server.kill()
        assert not process.is_alive(backend)
        connection.close()


@pytest.mark.slow
@BOTH
def test_a_killed_run_leaves_neither_server_nor_folder(kind: str, databases: Databases) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES.format(kind=kind)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    room, server, keeper = done.stdout.split()
    assert process.wait_for_end(int(keeper), process.LONG)
    assert not process.is_alive(int(server))
    assert not Path(room).exists()


def test_a_room_is_removed_and_its_logs_are_kept_on_request(
    own_room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_module, "_LOGS", tmp_path / "logs")
    for name in ("one.log", "two.sql"):
        (own_room.path / "server").mkdir(parents=True, exist_ok=True)
        (own_room.path / "server" / name).touch()
    own_room.close(keep_logs=True)
    assert not own_room.path.exists()
    assert [path for path in own_room.logs.rglob("*") if path.is_file()] == [own_room.logs / "server" / "one.log"]


class Counted(Service[Endpoint]):
    """A service that counts how often it is started, and looks whether somebody else could start it meanwhile."""

    name = "counted"
    variable = "SEMEL_TEST_COUNTED_URL"

    def __init__(self, *, there: bool = True) -> None:
        self.there = there
        self.starts = 0
        self.could_start_twice = False

    def start(self, room: Room) -> Endpoint:
        self.starts += 1
        with (room.path / f"{self.name}.lock").open() as other, contextlib.suppress(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.could_start_twice = True
        if not self.there:
            raise ServerMissing("There is none. Run: scripts/setup-system counted")
        return Endpoint(f"counted://{self.starts}")

    def connect(self, endpoint: Endpoint) -> Endpoint:
        return endpoint


class Optional(Counted):
    optional = True


def test_everybody_in_a_run_gets_the_same_instance(own_room: Room) -> None:
    service = Counted()
    gate = threading.Barrier(8)

    def ask(_: int) -> Endpoint:
        gate.wait()
        return service.obtain(own_room)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {Endpoint("counted://1")}
    assert not service.could_start_twice


def test_a_missing_server_is_looked_for_once(own_room: Room) -> None:
    service = Counted(there=False)
    for _ in range(2):
        with pytest.raises(ServerMissing):
            service.obtain(own_room)
    assert service.starts == 1
    assert list(not_there(own_room)) == [("counted", "There is none. Run: scripts/setup-system counted")]


@pytest.mark.parametrize("variable", ["CI=true", "SEMEL_REQUIRE_ALL=1"])
def test_a_missing_server_is_a_failure_where_all_is_required(
    variable: str, own_room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*variable.split("="))
    with pytest.raises(pytest.fail.Exception, match="Run: scripts/setup-system counted"):
        obtain_or_skip(Counted(there=False), own_room)


def test_a_missing_server_is_a_skip_elsewhere(own_room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("SEMEL_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Run: scripts/setup-system counted"):
        obtain_or_skip(Counted(there=False), own_room)


def test_an_optional_server_is_never_required(own_room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception):
        obtain_or_skip(Optional(there=False), own_room)


def test_programs_that_cannot_be_installed_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_install", lambda part: "the package manager said no")
    with pytest.raises(ServerMissing, match=r"scripts/setup-system nothing\nthe package manager said no$"):
        programs.obtain("nothing", lambda: None)


def test_programs_are_installed_when_they_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = programs.Programs({})
    answers = iter([None, found])
    asked: list[str] = []
    monkeypatch.setattr(programs, "_install", asked.append)
    assert programs.obtain("something", lambda: next(answers)) is found
    assert asked == ["something"]


def test_the_newest_version_is_taken(tmp_path: Path) -> None:
    for version in ("9", "15", "14"):
        (tmp_path / version).mkdir()
    assert programs._matching(tmp_path, ["*"])[0] == str(tmp_path / "15")


def test_ministack_answers_and_is_gone_with_its_room(dynamodb: Tables) -> None:
    with ministack.running() as server:
        assert ministack.client(server.url).list_tables()["TableNames"] == []
        assert process.is_alive(server.pid)
    assert not process.is_alive(server.pid)
    assert not server.folder.exists()


def test_two_tables_do_not_see_each_other(dynamodb: Tables) -> None:
    one, other = dynamodb.new_table(), dynamodb.new_table()
    with Semel(one) as semel:
        semel.run("o-1", lambda: None, operation="charge", fingerprint=None)
    assert dynamodb.items(one), "the record, and soon the worker that made it"
    assert dynamodb.items(other) == []


def test_a_named_place_for_tables_is_used_and_nothing_is_started(
    own_room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    for named, address in (("http://localhost:8000", "http://localhost:8000"), ("dynamodb://", "")):
        monkeypatch.setenv(Ministack.variable, named)
        assert Ministack().obtain(own_room).endpoint.url == address
    assert not own_room.path.exists()
