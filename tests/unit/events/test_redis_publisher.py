"""Which commands a publisher for Redis streams uses, by what the server says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import NoPermissionError

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
    ("server", "is_able"),
    [
        (Server(redis_version="7.0.15"), False),
        (Server(redis_version="8.4.1"), False),
        (Server(redis_version="8.6.3"), True),
        (Server(redis_version="10.0.0"), True),
        (Server(redis_version="9.0.0", valkey_version="9.1.2"), False),
        (Server(), False),
    ],
    ids=["7.0", "8.4", "8.6", "10.0", "Valkey", "told nothing"],
)
async def test_identities_are_given_to_servers_that_know_them(server: Any, is_able: bool) -> None:
    assert await redis_streams._can_deduplicate(server) is is_able


@pytest.mark.parametrize(("is_able", "given"), [(True, ["IDMP", "semel", "/facilities/7|e-1"]), (False, [])])
async def test_an_entry_is_added_with_its_limit_and_its_identity(is_able: bool, given: list[str]) -> None:
    async with redis_streams.publisher("redis://127.0.0.1:1", stream="assets", max_length=9) as publisher:
        publisher._is_deduplicating = is_able
        entry = publisher._prepare(EVENT)
        assert not isinstance(entry, Exception)
        arguments = publisher._arguments(entry)
    assert arguments[: 5 + len(given)] == ["assets", "MAXLEN", "~", 9, *given, "*"]
    assert dict(zip(arguments[5 + len(given) :: 2], arguments[6 + len(given) :: 2], strict=True))[b"data"] == b'{"n":1}'
