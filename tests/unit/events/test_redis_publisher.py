"""Which commands a publisher for Redis streams uses, by what the server says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ReadOnlyError, ResponseError

from semel.errors import UsageError
from semel.events import Event
from semel.events.brokers import redis_streams

pytestmark = pytest.mark.anyio
EVENT = Event(type="registered", source="/facilities/7", id="e-1", data={"n": 1})


class Server:
    """Answers `INFO server`."""

    def __init__(self, **told: str) -> None:
        self._told = told

    async def info(self, section: str) -> dict[str, str]:
        assert section == "server"
        if not self._told:
            raise NoPermissionError("no right to run INFO")
        return self._told


@pytest.mark.parametrize(
    ("server", "version"),
    [
        (Server(redis_version="7.0.15"), (7, 0)),
        (Server(redis_version="8.4.1"), (8, 4)),
        (Server(redis_version="8.6.3"), (8, 6)),
        (Server(redis_version="10.0.0"), (10, 0)),
        (Server(redis_version="9.0.0", valkey_version="9.1.2"), ()),
        (Server(some_other_version="1.0"), ()),
        (Server(), ()),
    ],
    ids=["7.0", "8.4", "8.6", "10.0", "Valkey", "something else", "told nothing"],
)
async def test_a_server_is_known_by_its_version(server: Any, version: tuple[int, ...]) -> None:
    assert await redis_streams.read_version(server) == version


IDENTITY = ["IDMP", "semel", "/facilities/7|e-1"]
LIMIT = ["MAXLEN", "~", 9]


@pytest.mark.parametrize(
    ("version", "keep_unread", "given"),
    [
        ((), False, LIMIT),
        ((7, 0), False, LIMIT),
        ((8, 4), False, LIMIT),
        ((8, 6), False, [*LIMIT, *IDENTITY]),
        ((10, 0), False, [*LIMIT, *IDENTITY]),
        ((), True, []),
        ((8, 0), True, []),
        ((8, 2), True, [*LIMIT, "ACKED"]),
        ((8, 6), True, [*LIMIT, "ACKED", *IDENTITY]),
    ],
)
async def test_an_entry_is_added_with_what_its_server_knows(
    version: tuple[int, ...], keep_unread: bool, given: list[Any]
) -> None:
    async with redis_streams.publisher(
        "redis://127.0.0.1:1", stream="assets", max_length=9, keep_unread=keep_unread
    ) as publisher:
        publisher._version = version
        entry = publisher._prepare(EVENT)
        assert not isinstance(entry, Exception)
        arguments = publisher._arguments(entry)
    assert arguments[: 2 + len(given)] == ["assets", *given, "*"]
    fields = arguments[2 + len(given) :]
    assert dict(zip(fields[::2], fields[1::2], strict=True))[b"data"] == b'{"n":1}'


@pytest.mark.parametrize(("told", "is_warned"), [("8.0.6", True), ("8.2.0", False)])
async def test_a_server_that_cannot_keep_what_is_unread_is_named(
    told: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with redis_streams.publisher(
        "redis://127.0.0.1:1", stream="assets", max_length=9, keep_unread=True
    ) as publisher:
        client: Any = Server(redis_version=told)
        publisher._client, closed = client, publisher._client
        await publisher._ask_version()
        publisher._client = closed
    assert ("none are dropped" in caplog.text) is is_warned


def test_what_to_keep_of_a_stream_without_a_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="max_length="):
        redis_streams.publisher("redis://127.0.0.1:1", stream="assets", keep_unread=True)


class Pipeline:
    """Entries that go to a server together."""

    def __init__(self, server: ReplacedServer) -> None:
        self._server = server
        self._commands: list[tuple[Any, ...]] = []

    def execute_command(self, *command: Any) -> None:
        self._commands.append(command)

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        return [self._server.answer(command) for command in self._commands]


class ReplacedServer:
    """A server that does not know IDMP, in the place of one that did."""

    def __init__(self) -> None:
        self.added: list[tuple[Any, ...]] = []
        self.refuses: Callable[[tuple[Any, ...]], bool] = lambda command: "IDMP" in command
        self.outage: Exception | None = None
        self.times_asked = 0
        self.connection_pool = self

    async def info(self, _section: str) -> dict[str, str]:
        self.times_asked += 1
        return {"redis_version": "7.0.15"}

    def pipeline(self, *, transaction: bool) -> Pipeline:
        assert not transaction
        return Pipeline(self)

    def answer(self, command: tuple[Any, ...]) -> Any:
        if isinstance(self.outage, ReadOnlyError):
            return self.outage
        if self.outage is not None:
            raise self.outage
        if self.refuses(command):
            return ResponseError("Invalid stream ID specified as stream command argument")
        self.added.append(command)
        return b"1-1"

    async def disconnect(self, *, inuse_connections: bool) -> None: ...

    async def aclose(self) -> None: ...


def replaced() -> tuple[redis_streams.RedisPublisher, ReplacedServer]:
    """A publisher that knows the version of the server before, and the one that is there now."""
    publisher, server = redis_streams.publisher("redis://127.0.0.1:1", stream="assets"), ReplacedServer()
    publisher._client = cast("Any", server)
    publisher._version = (8, 6)
    return publisher, server


async def test_what_another_server_does_not_know_is_left_out_for_it() -> None:
    publisher, server = replaced()
    assert await publisher.publish([EVENT, EVENT]) == [None, None]
    assert [command[:3] for command in server.added] == [("XADD", "assets", "*")] * 2


async def test_what_the_same_server_does_not_take_is_an_error_of_that_event() -> None:
    publisher, server = replaced()
    publisher._version = (7, 0)
    server.refuses = lambda _: True
    (error,) = await publisher.publish([EVENT])
    assert isinstance(error, ValueError)
    assert server.times_asked == 1


@pytest.mark.parametrize("outage", [RedisConnectionError("gone"), ReadOnlyError("READONLY")])
async def test_after_a_lost_connection_the_version_is_asked_again(outage: Exception) -> None:
    publisher, server = replaced()
    server.outage = outage
    with pytest.raises(ConnectionError):
        await publisher.publish([EVENT])
    server.outage = None
    assert await publisher.publish([EVENT]) == [None]
    assert server.times_asked == 1


class Refusing:
    """A server that does not tell of a stream."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def xinfo_groups(self, _stream: str) -> None:
        raise self._error

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (ResponseError("no such key"), UsageError, "There is no stream 'assets'"),
        (ResponseError("WRONGTYPE Operation against a key"), UsageError, "'assets' is no stream"),
        (NoPermissionError("this user has no permissions"), UsageError, "no permissions"),
        (ReadOnlyError("READONLY"), ConnectionError, "takes no commands"),
    ],
)
async def test_a_stream_that_cannot_be_looked_at_is_told_with_the_reason(
    error: Exception, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        await redis_streams.read_stream_of(lambda: cast("Any", Refusing(error)), "assets", None)
