"""Looking at a MySQL or MariaDB server.

What always holds: what decides about durability is read from the server's global settings, what decides about within()
from the defaults that a caller's session gets, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from semel.stores.doctor import Finding, demanded
from semel.stores.mysql.dialect import clock_text, table_names
from semel.stores.served.command import Command
from semel.stores.served.doctor import TORN_PAGES, Looking, ServedDoctor
from semel.stores.served.settings import Settings

_GLOBAL: Final = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin',
    'innodb_doublewrite', 'read_only', 'sql_mode', 'version', 'transaction_isolation', 'tx_isolation')
"""
_SESSION: Final = "SHOW SESSION VARIABLES WHERE Variable_name IN ('sql_mode', 'transaction_isolation', 'tx_isolation')"
_TABLES: Final = """
SELECT TABLE_NAME, ENGINE, TABLE_COLLATION FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME IN (?, ?, ?, ?)
"""
_NUMBERS: Final = """
SELECT
    (SELECT COUNT(*) FROM (
        SELECT 1 FROM {record_table}
        WHERE expires_us <= {clock} AND status NOT IN ('running', 'in_doubt') LIMIT 100000
    ) AS expired),
    CAST(COALESCE(SUM(status = 'in_doubt'), 0) AS SIGNED),
    CAST(COALESCE(SUM(status = 'running' AND lease_us <= {clock}), 0) AS SIGNED),
    MIN(keep_us)
FROM {record_table}
"""
_NO: Final = frozenset({"0", "OFF"})


class MysqlDoctor(ServedDoctor):
    """Looks at one place."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, {**table_names(settings), "clock": clock_text(settings)}, _NUMBERS)

    def server(self) -> Looking:
        """What the server is set to."""
        found: dict[str, str] = dict((yield Command(_GLOBAL)))
        return [*durability(found), role(found), *defaults(found)]

    def connection(self) -> Looking:
        """One session, or a pool of them: asked twice, because such a pool changes the session in between."""
        first = yield Command("SELECT CONNECTION_ID()")
        own: dict[str, str] = dict((yield Command(_SESSION)))
        second = yield Command("SELECT CONNECTION_ID()")
        lost = "STRICT_ALL_TABLES" not in own["sql_mode"] or _isolation(own) != "READ-COMMITTED"
        return [pooling(moved=first != second, lost=lost)]

    def tables(self) -> Looking:
        """Whether the tables roll back and survive a crash, and compare keys by their bytes."""
        prefix = self._settings.prefix
        names = tuple(f"{prefix}{name}" for name in ("record", "step", "meta", "invalidation"))
        rows = yield Command(_TABLES, (self._settings.schema or None, *names))
        return [
            engines({name: engine for name, engine, _ in rows}),
            collations({name: collation for name, _, collation in rows}),
        ]


def durability(found: Mapping[str, str]) -> list[Finding]:
    """Whether a commit that was acknowledged is on disk."""
    flush, binlog, twice = found["innodb_flush_log_at_trx_commit"], found["sync_binlog"], found["innodb_doublewrite"]
    losing = "after a crash of the server claims and outcomes are forgotten, and operations run again: set it to 1"
    unused = found["log_bin"] in _NO
    return [
        demanded("innodb_flush_log_at_trx_commit", flush, losing, "durable", fine=flush == "1"),
        demanded(
            "sync_binlog",
            f"{binlog}{' (no binary log)' if unused else ''}",
            losing,
            "durable",
            fine=unused or binlog == "1",
        ),
        demanded("innodb_doublewrite", twice, TORN_PAGES, "durable", fine=twice not in _NO),
    ]


def role(found: Mapping[str, str]) -> Finding:
    """Whether the server takes writes."""
    advice = "a replica answers 'absent' for what the primary holds: give the address of the primary"
    writes = found["read_only"] in _NO
    return demanded("role", "takes writes" if writes else "read-only: a replica", advice, "primary", fine=writes)


def defaults(found: Mapping[str, str]) -> list[Finding]:
    """What a session of the caller's gets, in which within() writes."""
    mode = found["sql_mode"]
    return [
        Finding("version", found["version"]),
        Finding("isolation", f"{_isolation(found)} by default; READ-COMMITTED in semel's own sessions"),
        demanded(
            "strict mode",
            "on" if "STRICT_" in mode else "off by default",
            "in the caller's transaction a value that does not fit is cut: add STRICT_ALL_TABLES to sql_mode",
            "joins",
            fine="STRICT_" in mode,
        ),
        demanded(
            "assignments",
            "SIMULTANEOUS_ASSIGNMENT" if "SIMULTANEOUS_ASSIGNMENT" in mode else "from left to right",
            "claims in the caller's transaction are refused: take it out of sql_mode",
            "joins",
            fine="SIMULTANEOUS_ASSIGNMENT" not in mode,
        ),
    ]


def pooling(*, moved: bool, lost: bool) -> Finding:
    """Whether a pooling proxy is in between."""
    if lost:
        advice = "a proxy drops the settings of semel's sessions: give the server's own address"
        return Finding("proxy", "session settings are lost on the way", "fix", advice)
    if moved:
        advice = "for `semel migrate` give the server's own address"
        return Finding("proxy", "the session changes between statements", "note", advice)
    return Finding("proxy", "none noticed: one session")


def engines(tables: Mapping[str, str]) -> Finding:
    """Only InnoDB rolls back, and keeps what was committed."""
    other = sorted(name for name, engine in tables.items() if engine != "InnoDB")
    advice = "such tables neither roll back nor survive a crash: ALTER TABLE … ENGINE=InnoDB"
    found = f"not InnoDB: {', '.join(other)}" if other else "InnoDB"
    return demanded("tables", found, advice, "durable", "joins", fine=not other)


def collations(tables: Mapping[str, str]) -> Finding:
    """Texts compare by their bytes. Identity is bytes anyway, so it is never more than a note."""
    other = sorted({collation for collation in tables.values() if collation != "utf8mb4_bin"})
    if other:
        return Finding(
            "collation", ", ".join(other), "note", "searching takes other letters for equal: use utf8mb4_bin"
        )
    return Finding("collation", "utf8mb4_bin; keys are compared as bytes")


def _isolation(found: Mapping[str, str]) -> str:
    """MariaDB had another name for it for long."""
    return found.get("transaction_isolation") or found.get("tx_isolation", "not known")
