"""A member of a group of a Redis stream, and the scripts by which it settles, extends and delays entries.

- Acknowledging, extending and delaying compare the owner first, so nobody settles or takes back what somebody else has
  by now.
- What has to wait belongs to a member that nobody is, and its due time stands beside the stream. One process of the
  group at a time looks for what is due, and for what a member left behind that is gone.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from semel.deadlines import Extend
from semel.events.brokers.listening import log
from semel.extras import requires

with requires("semel.events.brokers.redis_group", "redis"):
    from redis.asyncio import Redis
    from redis.exceptions import (
        ClusterDownError,
        MasterDownError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
        TryAgainError,
    )

WAITING: Final = "semel-waiting"
"""The member of a group that has what has to wait."""
ANSWER_WITHIN: Final = 5.0
"""Seconds that a server is waited for: not every release of the client stops waiting by itself."""
SWEEP_EVERY: Final = 0.2
"""Seconds between two looks for what is due."""
_SWEEP_LEASE_MS: Final = 2000
NEVER: Final = 2**53
"""Milliseconds after which no member is removed."""
_LOOKS: Final = 500
"""How many entries one look takes from others, and a tenth of how many it passes over."""
_UNAVAILABLE: Final = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_UNAVAILABLE_CODES: Final = ("BUSY", "MISCONF", "NOREPLICAS")
"""How answers begin that the client has no class of its own for."""

# KEYS of every script: the stream, the set of due times, the lease of the sweep, the cursor of the sweep.
# ARGV of every script begin with: the group, the member who says it, and the one that nobody is.
_HEAD: Final = """
local stream, due, group, me, waiting = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local function belongs_to(id, member)
    return #redis.call('XPENDING', stream, group, id, id, 1, member) > 0
end
local function was_dropped(id)
    return #redis.call('XRANGE', stream, id, id) == 0
end
local function now_ms()
    local now = redis.call('TIME')
    return now[1] * 1000 + math.floor(now[2] / 1000)
end
local function give_to(member, id)
    redis.call('XCLAIM', stream, group, member, 0, id, 'JUSTID')
end
local function set_aside(id, at)
    give_to(waiting, id)
    redis.call('ZADD', due, at, id)
end
"""
EXTEND: Final = f"""{_HEAD}
for place = 4, #ARGV do
    if belongs_to(ARGV[place], me) then give_to(me, ARGV[place]) end
end
"""
ACKNOWLEDGE: Final = f"""{_HEAD}
for place = 4, #ARGV do
    if belongs_to(ARGV[place], me) then redis.call('XACK', stream, group, ARGV[place]) end
end
"""
# Answers whether there is no such entry any more, so that none can come again.
DELAY: Final = f"""{_HEAD}
if belongs_to(ARGV[4], me) then set_aside(ARGV[4], now_ms() + ARGV[5]) end
if was_dropped(ARGV[4]) then
    redis.call('ZREM', due, ARGV[4])
    return 1
end
return 0
"""
# What is due, and what a member left behind that is gone. Answers false where somebody else looks; otherwise what was
# taken, whether the pass is over, and what had to come and is there no more. A pass goes on where the cursor stands
# until all that is pending was looked at.
# What only waits takes no room. Redis does nothing else meanwhile, so one call looks at so many and no more.
SWEEP: Final = f"""{_HEAD}
local room, idle_ms = tonumber(ARGV[4]), tonumber(ARGV[5])
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= me then return false end
redis.call('SET', KEYS[3], me, 'PX', ARGV[6])
local taken, dropped = {{}}, {{}}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now_ms(), 'LIMIT', 0, room)) do
    redis.call('ZREM', due, id)
    if was_dropped(id) then
        redis.call('XACK', stream, group, id)
        dropped[#dropped + 1] = id
    elseif belongs_to(id, waiting) then
        for _, entry in ipairs(redis.call('XCLAIM', stream, group, me, 0, id)) do taken[#taken + 1] = entry end
    end
end
if idle_ms == 0 or #taken >= room then return {{taken, 0, dropped}} end
local cursor, looks = redis.call('GET', KEYS[4]) or '0-0', {_LOOKS}
repeat
    local count = math.min(room - #taken, looks)
    local found = redis.call('XAUTOCLAIM', stream, group, me, idle_ms, cursor, 'COUNT', count)
    for _, entry in ipairs(found[2]) do
        if entry and entry[1] then
            local is_waiting = redis.call('ZSCORE', due, entry[1])
            if is_waiting then give_to(waiting, entry[1]) else taken[#taken + 1] = entry end
        end
    end
    for _, id in ipairs(found[3] or {{}}) do
        redis.call('ZREM', due, id)
        dropped[#dropped + 1] = id
    end
    cursor, looks = found[1], looks - count
until cursor == '0-0' or #taken >= room or looks <= 0
redis.call('SET', KEYS[4], cursor)
if cursor ~= '0-0' then return {{taken, 0, dropped}} end
for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local member = {{}}
    for place = 1, #fields, 2 do member[fields[place]] = fields[place + 1] end
    local is_ours = string.sub(member['name'], 1, 6) == 'semel-' and member['name'] ~= waiting
    if is_ours and member['pending'] == 0 and member['idle'] > tonumber(ARGV[7]) then
        redis.call('XGROUP', 'DELCONSUMER', stream, group, member['name'])
    end
end
return {{taken, 1, dropped}}
"""
# All that is left goes to the member that looks next.
RELEASE: Final = f"""{_HEAD}
local mine = redis.call('XPENDING', stream, group, '-', '+', 1000, me)
while #mine > 0 do
    for _, entry in ipairs(mine) do set_aside(entry[1], now_ms()) end
    mine = redis.call('XPENDING', stream, group, '-', '+', 1000, me)
end
if redis.call('GET', KEYS[3]) == me then redis.call('DEL', KEYS[3]) end
"""
# The same, and the member is gone.
LEAVE: Final = f"""{RELEASE}
redis.call('XGROUP', 'DELCONSUMER', stream, group, me)
"""


@dataclass(frozen=True, slots=True)
class Swept:
    """What one look for entries found.

    Attributes:
        entries: what was taken: ids and fields.
        is_over: whether all that is pending was looked at since the pass began.
    """

    entries: Sequence[tuple[bytes, dict[bytes, bytes]]]
    is_over: bool


class Group:
    """One member of a group, and the scripts that it says things with."""

    def __init__(self, connect: Callable[[], Redis], stream: str, name: str, member: str | None = None) -> None:
        self.connect = connect
        """Makes a client of its own."""
        self.stream = stream
        self.name = name
        self.member = member or f"semel-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        # All keys of a script have to be on one server of a cluster: they share what its slot is made of.
        tagged = stream if "{" in stream else f"{{{stream}}}"
        self._keys = (stream, *(f"{tagged}:{name}:semel-{part}" for part in ("due", "sweep", "cursor")))

    async def run(self, client: Redis, script: str, *values: Any) -> Any:
        """Have a script run for this member."""
        return await client.register_script(script)(keys=self._keys, args=(self.name, self.member, WAITING, *values))

    async def make(self, client: Redis) -> None:
        """Make the group where it is not there."""
        try:
            await client.xgroup_create(self.stream, self.name, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def sweep(
        self, client: Redis, room: int, *, idle_ms: int | None = None, gone_after_ms: int = NEVER
    ) -> Swept | None:
        """Take what is due, so many at most; None: another member of the group does it at the moment.

        Args:
            client: whom to ask.
            room: how many there is room for.
            idle_ms: take what its owner did not touch for so long, too; None: leave that alone.
            gone_after_ms: how long a member has to be gone to be removed.
        """
        answer = await self.run(client, SWEEP, room, idle_ms or 0, _SWEEP_LEASE_MS, gone_after_ms)
        if answer is None:
            return None
        entries, is_over, dropped = answer
        for id_ in dropped:
            self.say_dropped(id_)
        return Swept([(id_, pairs_of(fields)) for id_, fields in entries], is_over=bool(is_over))

    async def delay(self, client: Redis, id_: bytes, after: timedelta) -> None:
        """Have an entry come again after so long, if it is this member's."""
        if await self.run(client, DELAY, id_, int(after.total_seconds() * 1000)):
            self.say_dropped(id_)

    def say_dropped(self, id_: bytes) -> None:
        """Say that an entry was to come, and that its stream has it no more."""
        log.error(
            "the entry %s of %s was dropped by the server before it was handled (MAXLEN of a publisher): its event is "
            "lost here",
            id_.decode(),
            self.stream,
        )

    @asynccontextmanager
    async def connect_extender(self) -> AsyncIterator[Extend]:
        """Connect, in the thread of the deadlines, what extends those of entries that are still this member's.

        Raises:
            ConnectionError: the server said no, or nothing.
        """
        client = self.connect()

        async def extend(ids: Sequence[bytes]) -> None:
            await self.run(client, EXTEND, *ids)

        try:
            yield extend
        except RedisError as error:
            raise ConnectionError(str(error)) from error
        finally:
            await client.aclose()


def is_unavailable(error: ResponseError) -> bool:
    """Whether a server takes no commands, or no writes, for now: nobody has to change anything."""
    return isinstance(error, _UNAVAILABLE) or str(error).partition(" ")[0] in _UNAVAILABLE_CODES


def pairs_of(flat: Sequence[bytes] | None) -> dict[bytes, bytes]:
    """The fields of an entry as a script gives them: names and values by turns."""
    return {} if flat is None else dict(zip(flat[::2], flat[1::2], strict=True))
