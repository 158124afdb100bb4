"""Connections of redis-py, sync and async: opening, checking the server, sending and receiving.

- The client library retries nothing. A connection on which an error occurred is not used again.
- A replica is refused before anything is read from it, because it would answer "absent" for what the primary holds. So
  is a server that evicts keys when its memory is full, because it would forget claims.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Any, Final

from hiredis import pack_command
from redis.asyncio.connection import Connection as AsyncConnection
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import NoPermissionError
from redis.retry import Retry
from redis.sentinel import Sentinel

from semel.core.flow import arun, run
from semel.errors import StoreUnavailable
from semel.stores.redis.errors import REPLIES, WIRE, lost_reply_error, unreached_error
from semel.stores.redis.pipeline import HOME, Args
from semel.stores.redis.plan import Reply
from semel.stores.redis.settings import Address, Settings

ServerCheck = Generator[list[tuple[Any, ...]], list[Reply], None]
NEVER: Final = "noeviction"
EVERY = 60.0
"""Seconds after which a server is looked at again: its settings may be changed while connections stand."""


class RecheckSchedule:
    """When which node has to be looked at again, over a connection that stands."""

    def __init__(self, settings: Settings) -> None:
        self._watched = settings.evicting != "allowed"
        self._due: dict[Address | None, float] = {}

    def is_due(self, address: Address | None) -> bool:
        """Whether the last look at a node is too long ago."""
        return self._watched and time.monotonic() >= self._due.get(address, -inf)

    def done(self, address: Address | None) -> None:
        """A node was looked at."""
        self._due[address] = time.monotonic() + EVERY


def check_server(settings: Settings) -> ServerCheck:
    """Look at a connection.

    Raises:
        StoreUnavailable: what it leads to cannot keep records.
    """
    (reply,) = yield [("INFO",)]
    if isinstance(reply, NoPermissionError) and settings.evicting == "allowed":
        return  # neither is looked at; a write to a replica is refused by itself
    if isinstance(reply, Exception):
        raise reply
    check(info_of(reply), settings)


def info_of(reply: bytes) -> dict[str, str]:
    """What INFO says, by name."""
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def check(info: dict[str, str], settings: Settings) -> None:
    """Refuse what cannot keep records.

    Raises:
        StoreUnavailable: it is a replica, it is not ready, or it may evict.
    """
    # In a cluster a replica points to its primary by itself, and it may be asked for the map.
    if info.get("role") == "slave" and settings.kind != "cluster":
        message = (
            f"{settings.name} is a replica, and would answer that nothing is there; nothing ran. "
            f"Give the address of the primary."
        )
        raise StoreUnavailable(message)
    if info.get("loading", "0") != "0":
        message = f"{settings.name} is still reading its data; nothing ran. Try again."
        raise StoreUnavailable(message)
    if evicts(info) and settings.evicting != "allowed":
        message = (
            f"{settings.name} removes keys when its memory is full (maxmemory-policy {info['maxmemory_policy']}), so "
            f"it would forget who runs and what came of it; nothing ran. Set maxmemory-policy noeviction, or accept "
            f"that operations run twice with evicting=allowed."
        )
        raise StoreUnavailable(message)


def evicts(info: Mapping[str, str]) -> bool:
    """Whether the server removes keys by itself once its memory is full."""
    return info.get("maxmemory", "0") != "0" and info.get("maxmemory_policy", NEVER) != NEVER


_PROTOCOL: Final = 2
_KINDS: Final = frozenset({bytes, int, list, type(None)})
"""What replies are in that protocol, beside errors."""


def options(settings: Settings, address: Address, **further: Any) -> dict[str, Any]:
    """What both colours of a connection are given."""
    return {
        "host": address[0],
        "port": address[1],
        "db": settings.db,
        "username": settings.username,
        "password": settings.password,
        "socket_connect_timeout": settings.connect_timeout,
        "retry_on_timeout": False,
        "protocol": _PROTOCOL,
        **(settings.tls_options if settings.tls else {}),
        **further,
    }


def _sentinel_options(settings: Settings) -> dict[str, Any]:
    return {
        "username": settings.sentinel_username,
        "password": settings.sentinel_password,
        "socket_connect_timeout": settings.connect_timeout,
        "socket_timeout": settings.timeout,
        "protocol": _PROTOCOL,
        "ssl": settings.tls,
        **(settings.tls_options if settings.tls else {}),
    }


def packed(words: Sequence[Args]) -> list[bytes]:
    """Commands as they go over the wire; hiredis does it far quicker than a connection of either kind."""
    return [b"".join(map(pack_command, words))]


def _at_hand(connection: Any, most: int) -> list[Reply]:
    """The next replies that have arrived with the one before, errors among them, without the client library's detour.

    It goes through three functions, of either kind, for each reply; of a round only the first has to be waited for.
    """
    # There is no public way to more than one reply. Where a release of redis-py has none here, each is awaited.
    reader = getattr(getattr(connection, "_parser", None), "_reader", None)
    replies: list[Reply] = []
    while reader is not None and len(replies) < most:
        reply = reader.gets()
        if type(reply) not in _KINDS and not isinstance(reply, Exception):
            break  # it says so with an object of its own that no more has arrived
        replies.append(reply)
    return replies


def _async_options(_settings: Settings) -> dict[str, Any]:
    # One time limit around a whole exchange, in the driver, costs less than one around each reply.
    return {"socket_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}


def _sync_options(settings: Settings) -> dict[str, Any]:
    return {"socket_timeout": settings.timeout, "retry": Retry(NoBackoff(), 0)}


async def async_disconnect(connection: Any) -> None:
    """Close a connection that cannot be used any more; nobody waits for the server to agree."""
    await connection.disconnect(nowait=True)


def sync_disconnect(connection: Any) -> None:
    """Close a connection that cannot be used any more."""
    connection.disconnect()


async_time_limit: Final = asyncio.timeout


def sync_time_limit(_seconds: float) -> AbstractContextManager[None]:
    """None: each reply has its own in a thread."""
    return nullcontext()


def is_open(connection: Any) -> bool:
    """Whether it has not been closed by whatever went wrong on it."""
    told = getattr(connection, "is_connected", None)
    return connection._sock is not None if told is None else bool(told)  # noqa: SLF001 - as it was before redis-py 8


def sync_is_stale(connection: Any) -> bool:
    """Whether the server has closed it, or said what nobody asked for: known before anything is sent."""
    try:
        return bool(connection.can_read(0))
    except WIRE:
        return True


async def async_is_stale(connection: Any) -> bool:
    """Whether the server has closed it, or said what nobody asked for: known before anything is sent."""
    try:
        can_read = getattr(connection, "can_read", None) or connection.can_read_destructive  # before redis-py 8
        return bool(await can_read())
    except WIRE:
        return True


async def async_find_address(settings: Settings, address: Address | None) -> Address:
    """Where to connect: as told, or as the Sentinels say now."""
    if address is not HOME:
        return address
    if settings.kind != "sentinel":
        return settings.addresses[0]
    further = {**_sentinel_options(settings), "retry": AsyncRetry(NoBackoff(), 0)}
    sentinel: Any = AsyncSentinel(list(settings.addresses), sentinel_kwargs=further)  # type: ignore[no-untyped-call]
    try:
        host, port = await sentinel.discover_master(settings.service)
    finally:
        for client in sentinel.sentinels:
            await client.aclose()
    return str(host), int(port)


async def async_connect(settings: Settings, address: Address | None, *, greet: bool = True) -> Any:
    """A new connection, looked at.

    Raises:
        StoreUnavailable: there is none to be had.
    """
    connection: Any = None
    try:
        kind = AsyncSSLConnection if settings.tls else AsyncConnection
        async with async_time_limit(settings.connect_timeout + settings.timeout):
            where = await async_find_address(settings, address)
            connection = kind(**options(settings, where, **_async_options(settings)))
            await connection.connect()
            if greet:
                await arun(check_server(settings), lambda words: async_ask(connection, words, settings.name))
    except Exception as error:
        if connection is not None:
            await async_disconnect(connection)
        raise unreached_error(error, settings.name) from error
    return connection


async def async_recheck(connection: Any, settings: Settings) -> None:
    """Look at what a connection leads to; it is closed where that may not decide any more.

    Raises:
        StoreUnavailable: it may not, or does not answer.
    """
    try:
        async with async_time_limit(settings.timeout):
            await arun(check_server(settings), lambda words: async_ask(connection, words, settings.name))
    except Exception as error:
        await async_disconnect(connection)
        raise unreached_error(error, settings.name) from error


async def async_ask(connection: Any, words: Sequence[Args], name: str) -> list[Reply]:
    """Send commands together and read their replies; those that do not come are errors."""
    await connection.send_packed_command(packed(words))
    return await async_receive(connection, len(words), name, [])


async def async_receive(connection: Any, count: int, name: str, replies: list[Reply]) -> list[Reply]:
    """Add the replies to what was sent; those that do not come are errors, and the connection is closed then."""
    while len(replies) < count:
        try:
            replies.append(await connection.read_response())
            replies += _at_hand(connection, count - len(replies))
        except REPLIES as error:
            replies.append(error)
        except WIRE as error:
            replies.extend([lost_reply_error(error, name)] * (count - len(replies)))
    return replies


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
def sync_find_address(settings: Settings, address: Address | None) -> Address:
    """Where to connect: as told, or as the Sentinels say now."""
    if address is not HOME:
        return address
    if settings.kind != "sentinel":
        return settings.addresses[0]
    further = {**_sentinel_options(settings), "retry": Retry(NoBackoff(), 0)}
    sentinel: Any = Sentinel(list(settings.addresses), sentinel_kwargs=further)  # type: ignore[no-untyped-call]
    try:
        host, port = sentinel.discover_master(settings.service)
    finally:
        for client in sentinel.sentinels:
            client.close()
    return str(host), int(port)


def sync_connect(settings: Settings, address: Address | None, *, greet: bool = True) -> Any:
    """A new connection, looked at.

    Raises:
        StoreUnavailable: there is none to be had.
    """
    connection: Any = None
    try:
        kind = SSLConnection if settings.tls else Connection
        with sync_time_limit(settings.connect_timeout + settings.timeout):
            where = sync_find_address(settings, address)
            connection = kind(**options(settings, where, **_sync_options(settings)))
            connection.connect()
            if greet:
                run(check_server(settings), lambda words: sync_ask(connection, words, settings.name))
    except Exception as error:
        if connection is not None:
            sync_disconnect(connection)
        raise unreached_error(error, settings.name) from error
    return connection


def sync_recheck(connection: Any, settings: Settings) -> None:
    """Look at what a connection leads to; it is closed where that may not decide any more.

    Raises:
        StoreUnavailable: it may not, or does not answer.
    """
    try:
        with sync_time_limit(settings.timeout):
            run(check_server(settings), lambda words: sync_ask(connection, words, settings.name))
    except Exception as error:
        sync_disconnect(connection)
        raise unreached_error(error, settings.name) from error


def sync_ask(connection: Any, words: Sequence[Args], name: str) -> list[Reply]:
    """Send commands together and read their replies; those that do not come are errors."""
    connection.send_packed_command(packed(words))
    return sync_receive(connection, len(words), name, [])


def sync_receive(connection: Any, count: int, name: str, replies: list[Reply]) -> list[Reply]:
    """Add the replies to what was sent; those that do not come are errors, and the connection is closed then."""
    while len(replies) < count:
        try:
            replies.append(connection.read_response())
            replies += _at_hand(connection, count - len(replies))
        except REPLIES as error:
            replies.append(error)
        except WIRE as error:
            replies.extend([lost_reply_error(error, name)] * (count - len(replies)))
    return replies
