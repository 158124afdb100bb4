"""Looking at a PostgreSQL server.

What always holds: every setting is read as the server applies it to semel's own session, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semel.stores.doctor import Finding, demanded
from semel.stores.postgresql.dialect import clock_text, table_names
from semel.stores.postgresql.session import session_settings
from semel.stores.served.command import Command
from semel.stores.served.doctor import TORN_PAGES, Looking, ServedDoctor
from semel.stores.served.settings import Settings

_ASKED: Final = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "synchronous_standby_names",
    "transaction_isolation",
    "server_encoding",
    "server_version",
    "autovacuum",
)
_SERVER: Final = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(?::text[])"
_STATE: Final = """
SELECT pg_is_in_recovery(), (SELECT count(*) FROM pg_stat_replication),
    (SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'
        AND xact_start < clock_timestamp() - interval '5 minutes')
"""
_SESSION: Final = "SELECT pg_backend_pid(), current_setting('lock_timeout'), current_setting('enable_seqscan')"
_TABLES: Final = """
SELECT c.relname, c.relpersistence::text FROM pg_class AS c
WHERE c.oid = ANY(?::regclass[]) OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = ?::regclass)
ORDER BY c.relname
"""
# What has expired is found by its index, and no more of it is counted than says that the sweep is behind.
_NUMBERS: Final = """
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM {record_table}
        WHERE expires_us <= {clock} AND status NOT IN ('running', 'in_doubt') LIMIT 100000
    ) AS expired),
    count(*) FILTER (WHERE status = 'in_doubt'),
    count(*) FILTER (WHERE status = 'running' AND lease_us <= {clock}),
    min(keep_us)
FROM {record_table}
"""
_SAFE_COMMIT: Final = frozenset({"on", "remote_apply", "remote_write", "local"})


class PostgresDoctor(ServedDoctor):
    """Looks at one place."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, {**table_names(settings), "clock": clock_text(settings)}, _NUMBERS)

    def server(self) -> Looking:
        """What the server is set to."""
        found: dict[str, str] = dict((yield Command(_SERVER, (list(_ASKED),))))
        recovery, replicas, idle = (yield Command(_STATE))[0]
        findings = [*durability(found), replication(found, recovery=recovery, replicas=replicas), *habits(found)]
        if idle:
            advice = "they keep dead rows from being removed: look for them in pg_stat_activity"
            findings.append(Finding("idle transactions", f"{idle} for more than 5 minutes", "note", advice))
        return findings

    def connection(self) -> Looking:
        """One session, or a pool of them: asked twice, because such a pool changes the session in between."""
        first = (yield Command(_SESSION))[0]
        yield Command("SELECT 1")
        second = (yield Command(_SESSION))[0]
        isolation = (yield Command("SHOW transaction_isolation"))[0][0]
        wanted = session_settings(self._settings)
        lost = first[2] != wanted["enable_seqscan"] or isolation != wanted["default_transaction_isolation"]
        return [pooling(moved=first[0] != second[0], lost=lost)]

    def tables(self) -> Looking:
        """Whether the tables survive a crash."""
        tables = [self._names[f"{name}_table"] for name in ("record", "step", "invalidation")] + [self._names["meta"]]
        rows = yield Command(_TABLES, (tables, tables[0]))
        return [persistence(dict(rows))]


def durability(found: Mapping[str, str]) -> list[Finding]:
    """Whether a commit that was acknowledged is on disk."""
    commit, pages = found["synchronous_commit"], found["full_page_writes"]
    losing = "after a crash of the server claims and outcomes are forgotten, and operations run again: switch it on"
    return [
        demanded("fsync", found["fsync"], losing, "durable", fine=found["fsync"] == "on"),
        demanded("synchronous_commit", commit, losing, "durable", fine=commit in _SAFE_COMMIT),
        demanded("full_page_writes", pages, TORN_PAGES, "durable", fine=pages == "on"),
    ]


def replication(found: Mapping[str, str], *, recovery: bool, replicas: int) -> Finding:
    """Whether this is the primary, and whether a failover keeps what was acknowledged."""
    if recovery:
        advice = "a replica answers 'absent' for what the primary holds: give the address of the primary"
        return Finding("role", "replica", "fix", advice, ("primary",))
    waits = bool(found["synchronous_standby_names"]) and found["synchronous_commit"] not in ("local", "off")
    if replicas and not waits:
        advice = "a failover can lose the last commits: name synchronous standbys, or set a restore mark after one"
        return Finding("role", f"primary with {replicas} asynchronous replica(s)", "note", advice)
    return Finding("role", f"primary with {replicas} replica(s)" if replicas else "primary")


def habits(found: Mapping[str, str]) -> list[Finding]:
    """What is not about losing data."""
    utf8 = found["server_encoding"] == "UTF8"
    vacuum = found["autovacuum"] == "on"
    return [
        Finding("version", f"PostgreSQL {found['server_version']}"),
        Finding("isolation", f"{found['transaction_isolation']} in semel's own sessions"),
        Finding(
            "encoding",
            f"{found['server_encoding']}; keys are compared as bytes",
            "ok" if utf8 else "fix",
            "" if utf8 else "keys with other letters are refused: use a database with ENCODING 'UTF8'",
        ),
        Finding(
            "autovacuum",
            found["autovacuum"],
            "ok" if vacuum else "note",
            "" if vacuum else "completions leave dead rows behind: switch it on",
        ),
    ]


def pooling(*, moved: bool, lost: bool) -> Finding:
    """Whether a pooling proxy is in between."""
    if lost:
        advice = "a proxy drops the settings of semel's sessions: say `pooled=true`, or give the server's own address"
        return Finding("proxy", "session settings are lost on the way", "fix", advice)
    if moved:
        advice = "claims and within() work; for `semel migrate` and for waking waiters give the server's own address"
        return Finding("proxy", "the session changes between transactions (transaction pooling)", "note", advice)
    return Finding("proxy", "none noticed: one session")


def persistence(tables: Mapping[str, str]) -> Finding:
    """Whether the tables are logged."""
    unlogged = [name for name, kind in tables.items() if kind != "p"]
    if unlogged:
        advice = "a crash empties them: ALTER TABLE … SET LOGGED"
        return Finding("tables", f"not logged: {', '.join(unlogged)}", "fix", advice, ("durable",))
    return Finding("tables", "logged")
