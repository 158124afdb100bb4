"""A store that cannot be connected to: why, that nothing was recorded, and whether trying again is of any use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from semel import AsyncSemel, Semel
from semel.cli import main
from semel.core.circuit import Limits
from semel.errors import SchemaOutdated, SemelError, StoreMisconfigured, StoreUnavailable
from semel.stores.dynamodb import driver
from tests.servers.databases import Databases
from tests.servers.ministack import CREDENTIALS, Tables
from tests.servers.postgresql import PostgresqlServer
from tests.servers.redis import RedisServer

LEFT_ALONE = Limits(open_after=1, backoff=60.0, max_backoff=60.0)
"""After the first failure the store is not asked again in a test."""
_NO_USE = "Trying again does not help"
_NOBODY = 65534


@dataclass(frozen=True)
class Case:
    """One way in which a store cannot be used, and what is said of it."""

    place: str
    situation: str
    error: type[SemelError]
    exit_code: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {self.situation}"


_UNREACHED = (StoreUnavailable, 75)
_REFUSED = (StoreMisconfigured, 2)
CASES = [
    Case("postgresql", "connection refused", *_UNREACHED, ("cannot be reached", "host and the port")),
    Case("postgresql", "unknown host", *_UNREACHED, ("cannot be reached", "host and the port")),
    Case("postgresql", "unknown database", *_REFUSED, ("no such database", _NO_USE)),
    Case("postgresql", "unknown role", *_REFUSED, ("look at the name of the user", _NO_USE)),
    Case("postgresql", "bad password", *_REFUSED, ("the password is wrong", _NO_USE)),
    Case("mariadb", "connection refused", *_UNREACHED, ("cannot be reached", "host and the port")),
    Case("mariadb", "unknown host", *_UNREACHED, ("cannot be reached", "host and the port")),
    Case("mariadb", "unknown database", *_REFUSED, ("no such database", _NO_USE)),
    # The server does not say which of the two is wrong, so that nobody can try out names.
    Case("mariadb", "unknown role", *_REFUSED, ("the user or the password is wrong", _NO_USE)),
    Case("mariadb", "bad password", *_REFUSED, ("the user or the password is wrong", _NO_USE)),
    Case("redis", "connection refused", *_UNREACHED, ("cannot be reached", "the address and the server")),
    Case("redis", "unknown host", *_UNREACHED, ("cannot be reached", "the address and the server")),
    Case("redis", "unknown database", *_REFUSED, ("no database of that number", _NO_USE)),
    Case("redis", "unknown role", *_REFUSED, ("does not know this user and password", _NO_USE)),
    Case("redis", "bad password", *_REFUSED, ("does not know this user and password", _NO_USE)),
    Case("redis", "no password", *_REFUSED, ("wants a user and a password", _NO_USE)),
    Case("dynamodb", "connection refused", *_UNREACHED, ("cannot be reached", "region and the endpoint")),
    Case("dynamodb", "no credentials", *_REFUSED, ("look at the credentials", _NO_USE)),
    Case("dynamodb", "unknown table", SchemaOutdated, 1, ("look at the name", "semel migrate")),
    Case("sqlite", "missing folder", *_REFUSED, ("does not exist; create it",)),
    Case("sqlite", "a folder, not a file", *_REFUSED, ("it is a folder",)),
]


@pytest.fixture(scope="module")
def guarded_postgresql(
    start_postgresql: Callable[..., AbstractContextManager[PostgresqlServer]],
) -> Iterator[PostgresqlServer]:
    """A server with a user who needs a password."""
    with start_postgresql() as server:
        server.admin("CREATE ROLE careful LOGIN PASSWORD 'right'")
        hba = server.data / "pg_hba.conf"
        hba.write_text("host all careful all scram-sha-256\n" + hba.read_text())
        server.restart()
        yield server


@pytest.fixture(scope="module")
def guarded_redis(start_redis: Callable[..., AbstractContextManager[RedisServer]]) -> Iterator[RedisServer]:
    """A server that wants a password."""
    with start_redis() as server:
        server.keys().said("CONFIG", "SET", "requirepass", "right")
        yield server


def _changed(url: str, *, netloc: str | None = None, path: str | None = None) -> str:
    parts = urlsplit(url)
    return urlunsplit(
        parts._replace(netloc=parts.netloc if netloc is None else netloc, path=parts.path if path is None else path)
    )


def _sql_url(server: Databases, situation: str, user: str = "semel") -> str:
    address = urlsplit(server.url).netloc.rpartition("@")[2]
    match situation:
        case "connection refused":
            return _changed(server.url, netloc="semel@127.0.0.1:1")
        case "unknown host":
            return _changed(server.url, netloc="semel@host.invalid")
        case "unknown database":
            return _changed(server.url, path="/nowhere")
        case "unknown role":
            return _changed(server.url, netloc=f"stranger@{address}")
    return _changed(server.url, netloc=f"{user}:s3cret@{address}")


def _redis_url(server: RedisServer, situation: str) -> str:
    address = f"127.0.0.1:{server.port}"
    return {
        "connection refused": "redis://127.0.0.1:1/0",
        "unknown host": "redis://host.invalid/0",
        "unknown database": f"redis://:right@{address}/99",
        "unknown role": f"redis://stranger:s3cret@{address}/0",
        "bad password": f"redis://:s3cret@{address}/0",
        "no password": f"redis://{address}/0",
    }[situation]


def _dynamodb_url(tables: Tables, situation: str, monkeypatch: pytest.MonkeyPatch) -> str:
    if situation == "connection refused":
        return "dynamodb://records?region=eu-west-1&endpoint=http://127.0.0.1:1"
    if situation == "unknown table":
        return tables.url.replace(urlsplit(tables.url).netloc, "nowhere", 1)
    url = tables.url
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    driver._session.cache_clear()
    driver._async_session.cache_clear()
    return url


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def url(case: Case, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    match case.place:
        case "postgresql":
            yield _sql_url(request.getfixturevalue("guarded_postgresql"), case.situation, user="careful")
        case "mariadb":
            yield _sql_url(request.getfixturevalue("mariadb"), case.situation)
        case "redis":
            yield _redis_url(request.getfixturevalue("guarded_redis"), case.situation)
        case "dynamodb":
            yield _dynamodb_url(request.getfixturevalue("dynamodb"), case.situation, monkeypatch)
            monkeypatch.undo()
            driver._session.cache_clear()
            driver._async_session.cache_clear()
        case _:
            folder = tmp_path / "folder"
            folder.mkdir()
            yield (
                f"sqlite:///{tmp_path}/nowhere/semel.db"
                if case.situation == "missing folder"
                else f"sqlite:///{folder}"
            )


def _check(case: Case, error: SemelError) -> None:
    assert type(error) is case.error, f"{case}: {error!r}"
    for words in (*case.words, "nothing r" if case.error is SchemaOutdated else "nothing was recorded"):
        assert words.lower() in error.message.lower(), f"{case}: {error.message}"
    assert "s3cret" not in error.message


def test_a_call_says_what_is_wrong_and_that_nothing_was_recorded(case: Case, url: str) -> None:
    ran: list[int] = []
    with Semel(url) as semel, pytest.raises(SemelError) as caught:
        semel.run("k", lambda: ran.append(1), operation="o", fingerprint=None)
    _check(case, caught.value)
    assert ran == []


def test_an_awaited_call_says_the_same(case: Case, url: str) -> None:
    ran: list[int] = []

    async def handler() -> None:
        ran.append(1)

    async def call() -> None:
        async with AsyncSemel(url) as semel:
            await semel.run("k", handler, operation="o", fingerprint=None)

    with pytest.raises(SemelError) as caught:
        asyncio.run(call())
    _check(case, caught.value)
    assert ran == []


def _check_left_alone(case: Case, first: SemelError, second: SemelError) -> None:
    """The call that failed, and the one after it for which nothing is sent any more."""
    for error in (first, second):
        _check(case, error)
        assert "s3cret" not in "".join(traceback.format_exception(error))
    if isinstance(second, StoreUnavailable):
        assert not second.asked, f"{case}: it was asked again"


def test_a_call_on_a_store_that_is_left_alone_says_the_same(case: Case, url: str) -> None:
    errors = []
    with Semel(url, limits=LEFT_ALONE) as semel:
        for key in ("first", "second"):
            with pytest.raises(SemelError) as caught:
                semel.run(key, lambda: None, operation="o", fingerprint=None)
            errors.append(caught.value)
    _check_left_alone(case, *errors)


def test_an_awaited_call_on_a_store_that_is_left_alone_says_the_same(case: Case, url: str) -> None:
    errors = []

    async def handler() -> None:
        """Never run."""

    async def call() -> None:
        async with AsyncSemel(url, limits=LEFT_ALONE) as semel:
            for key in ("first", "second"):
                with pytest.raises(SemelError) as caught:
                    await semel.run(key, handler, operation="o", fingerprint=None)
                errors.append(caught.value)

    asyncio.run(call())
    _check_left_alone(case, *errors)


@pytest.mark.parametrize("command", ["list", "doctor", "sweep"])
def test_a_command_ends_with_2_where_trying_later_is_of_no_use(
    case: Case, url: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if case.situation == "missing folder":
        pytest.skip("a file that is not there is an answer of its own: exit code 3")
    if case.situation == "unknown table" and command == "doctor":
        pytest.skip("a missing table is a finding, not an error")
    code = main([command, url])
    line = capsys.readouterr().err
    assert code == case.exit_code, f"{case}: {line}"
    assert line.startswith(f"semel: {case.error.code}: ")
    assert line.count("\n") == 1
    for words in case.words:
        assert words.lower() in line.lower(), f"{case}: {line}"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody without rights")
def test_a_folder_that_may_not_be_entered_is_told_by_function_and_command() -> None:
    above = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    above.chmod(0o755)
    folder = above / "locked"
    folder.mkdir(mode=0o700)
    program = f"""if True:
        import os
        from semel import Semel, errors
        from semel.cli import main
        # Afterwards all that is needed is loaded.
        Semel("sqlite:///{above}/semel.db").run("k", int, operation="o", fingerprint=None)
        main(["list", "sqlite:///{above}/semel.db"])
        os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY})
        try: Semel("sqlite:///{folder}/semel.db").run("k", int, operation="o", fingerprint=None)
        except errors.StoreMisconfigured as error: print(error)
        print(main(["list", "sqlite:///{folder}/semel.db"]))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    *_, message, code = ["", *done.stdout.splitlines()]
    assert "the right to enter the folders" in message, done.stderr
    assert "Nothing was recorded" in message
    assert code == "2", done.stderr
    assert message in done.stderr
