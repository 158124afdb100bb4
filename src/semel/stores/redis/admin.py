"""`semel doctor` for Redis servers: persistence, eviction, replication.

Nothing is changed. An answer that cannot be obtained is a finding, not an error.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

from semel.errors import SemelError
from semel.stores.admin import Admin, Finding, Need, Numbers, about_clock, about_records
from semel.stores.redis import connections
from semel.stores.redis.connections import NEVER, evicts, info_of
from semel.stores.redis.driver import RedisDriver
from semel.stores.redis.key_names import RedisContext
from semel.stores.redis.pipeline import route
from semel.stores.redis.plan import Clock, Look, Reply, step
from semel.stores.redis.settings import Address, Settings

_ROUNDS: Final = 5
_MOST: Final = 100_000
_FORGETS: Final[tuple[Need, ...]] = ("durable",)
_ASKED: Final = ("appendfsync", "min-replicas-to-write")
Numbered = Generator[Any, list[Reply], tuple[Numbers, int]]


class RedisAdmin(Admin):
    """What operators do to a store on Redis."""

    def __init__(self, context: RedisContext) -> None:
        super().__init__(context.settings.name)
        self._context = context

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What `semel doctor` finds here."""
        return examine(self._context, RedisDriver(self._context, route(self._context.settings), greet=False), horizon)


def examine(context: RedisContext, driver: RedisDriver, horizon: timedelta) -> list[Finding]:
    """What is found.

    Raises:
        StoreUnavailable: no server can be reached.
    """
    with closing(driver):
        findings = []
        for node in driver.nodes():
            findings += _node(context.settings, node)
        findings.append(_clock(driver))
        findings.append(
            Finding("within", "Redis cannot join a transaction; each record is a commit of its own", breaks=("joins",))
        )
        try:
            numbers, unreadable = driver.run_flow(_numbers(context))
        except SemelError as error:
            return [*findings, Finding("records", f"not known: {error.message}", "note", "try again")]
    if unreadable:
        advice = "nobody else may use keys of this pattern; newer records need the newer release"
        findings.append(Finding("records", f"{unreadable} cannot be read", "note", advice))
    return findings + about_records(numbers, horizon)


def _node(settings: Settings, address: Address | None) -> list[Finding]:
    connection = connections.sync_connect(settings, address, greet=False)
    try:
        words = [("INFO",), *(("CONFIG", "GET", name) for name in _ASKED)]
        told, *configured = connections.sync_ask(connection, words, settings.name)
    finally:
        connection.disconnect()
    if isinstance(told, Exception):
        advice = "grant the user +info: without it neither eviction nor role is known"
        return [Finding("server", "INFO was refused", "fix", advice, ("primary", "durable"))]
    found = {name: _value(reply) for name, reply in zip(_ASKED, configured, strict=True)}
    where = "" if address is None else f" {address[0]}:{address[1]}"
    return [
        Finding(f"version{where}", f"Redis {info_of(told).get('redis_version', 'of an unknown version')}"),
        *findings_of({**info_of(told), **{name: value for name, value in found.items() if value}}, settings),
    ]


def _value(reply: Reply) -> str:
    return reply[1].decode() if isinstance(reply, list) and len(reply) > 1 else ""


def findings_of(info: Mapping[str, str], settings: Settings) -> list[Finding]:
    """What the settings of a server mean."""
    return [eviction(info, settings), append_only(info), fsync(info), role(info, settings)]


def eviction(info: Mapping[str, str], settings: Settings) -> Finding:
    """Whether the server may decide who runs at all."""
    policy = info.get("maxmemory_policy", NEVER)
    limit = info.get("maxmemory_human", "")
    if evicts(info):
        advice = "it forgets who runs when its memory is full, and semel refuses it: set maxmemory-policy noeviction"
        if settings.evicting == "allowed":
            return Finding("eviction", f"{policy} at {limit}, allowed by the settings", "note", advice, _FORGETS)
        return Finding("eviction", f"{policy} at {limit}", "fix", advice, ("durable", "kept"))
    if policy != NEVER:
        advice = "harmless while maxmemory is 0; set noeviction before anybody sets a limit"
        return Finding("eviction", f"{policy}, without a limit of memory", "note", advice)
    return Finding("eviction", f"{policy}; full memory refuses writes instead")


def append_only(info: Mapping[str, str]) -> Finding:
    """Whether what was acknowledged outlives the process."""
    if info.get("aof_enabled") == "1":
        return Finding("appendonly", "yes")
    advice = "a restart forgets claims and outcomes, and operations run again: set appendonly yes"
    return Finding("appendonly", "no", "note", advice, _FORGETS)


def fsync(info: Mapping[str, str]) -> Finding:
    """Whether what was acknowledged outlives a power cut."""
    how = info.get("appendfsync", "")
    if how == "always":
        return Finding("appendfsync", how)
    advice = "a power cut forgets what was acknowledged last, about a second of it: set appendfsync always"
    return Finding("appendfsync", how or "not known: CONFIG GET was refused", "note", advice, _FORGETS)


def role(info: Mapping[str, str], settings: Settings) -> Finding:
    """Whether this is the primary, and whether a failover keeps what was acknowledged."""
    if info.get("role") == "slave":
        advice = "a replica answers 'absent' for what the primary holds: give the address of the primary"
        return Finding("role", "replica", "fix", advice, ("primary",))
    replicas = int(info.get("connected_slaves", "0"))
    if replicas or settings.kind == "sentinel":
        advice = (
            "a failover forgets what no replica had yet, and those operations run again; min-replicas-to-write and "
            "min-replicas-max-lag bound how much. Put a SQL store behind what must not run twice"
        )
        return Finding("role", f"primary with {replicas} replica(s), which lag behind", "note", advice, _FORGETS)
    return Finding("role", "primary without replicas: no failover, and none that forgets")


def _clock(driver: RedisDriver) -> Finding:
    """The round with the shortest way there and back is the most precise."""
    measured = []
    for _ in range(_ROUNDS):
        before = time.time_ns()
        store = driver.run_flow(_now())
        after = time.time_ns()
        measured.append((after - before, (before + after) // 2000 - store))
    way, offset = min(measured)
    return about_clock(timedelta(microseconds=offset), timedelta(microseconds=way // 2000))


def _now() -> Generator[Any, list[Reply], int]:
    (now,) = yield [Clock()]
    if isinstance(now, Exception):
        raise now
    return int(now)


def _numbers(context: RedisContext) -> Numbered:
    """Figures about the first records that a walk meets, a hundred thousand at most, and how many of them are none."""
    now = yield from _now()
    in_doubt = lapsed = expired = unreadable = met = 0
    shortest: int | None = None
    at: Any = None
    while True:
        at, keys = yield from step(context.pattern.match(), at)
        for reply in (yield [Look(key, ("status", "lease_us", "expires_us", "keep_us")) for key in keys]):
            if isinstance(reply, Exception) or None in reply:
                unreadable += 1
                continue
            status, lease_us, expires_us, keep_us = reply
            in_doubt += status == b"in_doubt"
            lapsed += status == b"running" and int(lease_us) <= now
            expired += status not in (b"running", b"in_doubt") and int(expires_us) <= now
            shortest = int(keep_us) if shortest is None else min(shortest, int(keep_us))
        met += len(keys)
        if at is None or met >= _MOST:
            return Numbers(expired, in_doubt, lapsed, shortest), unreadable
