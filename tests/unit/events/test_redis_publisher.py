"""Which commands a publisher for Redis streams uses, by what the server says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import NoPermissionError

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
