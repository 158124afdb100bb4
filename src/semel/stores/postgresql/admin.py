"""Administration of PostgreSQL: schema, search indexes, the mark after a restore, and `semel doctor`.

- The `pre` half of a migration is one transaction and safe while workers of the previous release run; the `post` half
  waits until they are gone, and each of its statements can be repeated. One process applies, the others wait.
- Building a search index never makes a claim wait. An index that an interrupted run left half built is dropped and
  built again; an existing one is left alone.
- The restore mark is a row in the meta table and a trigger, set in one transaction. The trigger touches only rows of
  keys without a record: otherwise its changes would reach `excluded`, by which a claim is compared with the record.
- The doctor changes nothing, and reads each setting as the server applies it to semel's own session.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

from semel.errors import UsageError
from semel.stores.admin import Finding, Half, Mark, Marked, required_finding
from semel.stores.postgresql.dialect import PostgresDialect, clock_text, table_names
from semel.stores.postgresql.settings import session_settings
from semel.stores.rows import load_statements
from semel.stores.sql.admin import RESTORED, TORN_PAGES, Looking, ServerDoctor
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.migrations import (
    RECORDS,
    Building,
    Migrations,
    Scripts,
    ServerSchema,
    scripts_of,
    statements_of,
    text_of,
    with_retries,
)
from semel.stores.sql.settings import Settings

_LEFT_OVER: Final = """
SELECT n.nspname, c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE NOT i.indisvalid AND starts_with(c.relname, ?::text) AND (i.indrelid = ?::regclass
    OR i.indrelid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = ?::regclass))
"""
_PARTS: Final = """
SELECT n.nspname, c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE i.inhparent = ?::regclass ORDER BY c.oid
"""
_THERE: Final = """
SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = ?::regclass
"""
_KNOWN: Final = "INSERT INTO {meta} (name, value) VALUES ('search', convert_to('{{}}', 'UTF8')) ON CONFLICT DO NOTHING"


@cache
def index_texts(index: str, on: str) -> dict[str, str]:
    """The statements by name, for one table."""
    return load_statements("semel.stores.postgresql", "search.sql", {"index": index, "on": on})


def build_search_indexes(settings: Settings) -> Building:
    """Build what is missing; answers the names of what was built."""
    names = table_names(settings)
    table, index = names["record_table"], f"{settings.prefix}search"
    # Building waits for transactions that began earlier, without holding anybody up: however long they take.
    yield Command("SET lock_timeout = 0")
    for schema, left in (yield Command(_LEFT_OVER, (settings.prefix, table, table))):
        yield Command(f'DROP INDEX "{schema}"."{left}"')
    there = {name for (name,) in (yield Command(_THERE, (table,)))}
    missing = [name for name in index_texts(index, table) if f"{index}_{name}" not in there]
    parts = yield Command(_PARTS, (table,))
    for name in missing:
        yield from _one(name, index, table, parts)
    yield Command(_KNOWN.format(**names))
    yield Command("RESET lock_timeout")
    return [f"{index}_{name}" for name in missing]


def search_sql(settings: Settings) -> str:
    """What is built, as text, for a table without partitions."""
    table = table_names(settings)["record_table"]
    return "".join(f"{text};\n" for text in index_texts(f"{settings.prefix}search", table).values())


def _one(name: str, index: str, table: str, parts: list[Row]) -> Generator[Command, list[Row], None]:
    """A whole with parts takes no concurrent build: its parts do, and the whole then adopts what they have."""
    for schema, part in parts:
        yield Command(index_texts(f"{part}_search", f'"{schema}"."{part}"')[name])
    text = index_texts(index, table)[name]
    yield Command(text.replace(" CONCURRENTLY", "") if parts else text)


FILLFACTOR: Final = 100
_LOCK: Final = 0x73656D656C  # an advisory lock of migrations
_STORAGE: Final = (
    "WITH (fillfactor = {fillfactor}, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)"
)
_NOTE: Final = "INSERT INTO {{schema_table}} (version, oldest, post) VALUES ({version}, {oldest}, {post})"


def scripts() -> Scripts:
    """The files of this release."""
    return scripts_of("semel.stores.postgresql")


class PostgresSchema(ServerSchema):
    """The schema of one place."""

    def __init__(self, settings: Settings, dialect: PostgresDialect, given: Scripts | None = None) -> None:
        names = {"storage": _STORAGE, **table_names(settings), "fillfactor": str(FILLFACTOR)}
        super().__init__(scripts() if given is None else given, names, dialect.ready(), _NOTE)
        self._settings = settings

    def undo(self) -> Command:
        """Leave a transaction that failed."""
        return Command("ROLLBACK")

    def lock(self) -> Command:
        """Try to be the one who migrates; one row says whether it was possible.

        Waiting inside the statement would hold a snapshot, and an index that is built concurrently waits for those.
        """
        return Command("SELECT pg_try_advisory_lock(?::bigint)", (_LOCK,))

    def pause(self) -> Command:
        """Wait a moment before trying again."""
        return Command("SELECT pg_sleep(0.1)")

    def unlock(self) -> Command:
        """Let the next one migrate."""
        return Command("SELECT pg_advisory_unlock(?::bigint)", (_LOCK,))

    def creation(self, partitions: int = 0) -> Sequence[Command]:
        """All of the newest schema where there is none: nobody works there, so it is one transaction."""
        return [
            Command("BEGIN"),
            # The second process waits as long as a statement may: `lock_timeout` is meant for rows, and a busy server
            # takes longer than that to make the tables.
            Command("SET LOCAL lock_timeout = 0"),
            Command("SELECT pg_advisory_xact_lock(?::bigint)", (_LOCK,)),
            *map(Command, self._creating(partitions)),
            Command("COMMIT"),
        ]

    def creation_sql(self, partitions: int = 0) -> str:
        """The same as text."""
        return text_of(["BEGIN", *self._creating(partitions), "COMMIT"])

    def search(self) -> Building:
        """Make the indexes for searching that are missing."""
        return build_search_indexes(self._settings)

    def _creating(self, partitions: int = 0) -> Iterator[str]:
        if self._settings.schema:
            yield f'CREATE SCHEMA IF NOT EXISTS "{self._settings.schema}"'
        for version in range(1, self.newest + 1):
            yield from self._statements(version, "pre", partitions)
            if version == RECORDS:
                yield from self._partitions(partitions)
            yield self._note(version)
            for statement in self._statements(version, "post", partitions):
                yield statement.replace(" CONCURRENTLY", "")
            if self.has_post(version):
                yield self._noted_post(version)

    def _half(self, version: int, half: Half) -> Iterator[str]:
        if half == "pre":
            yield "BEGIN"
            yield from self._statements(version, "pre")
            yield self._note(version)
            yield "COMMIT"
        else:
            yield from self._statements(version, "post")
            yield self._noted_post(version)

    def _statements(self, version: int, half: Half, partitions: int = 0) -> Iterator[str]:
        """The parts of a table have storage settings; the whole, where it has parts, has none."""
        script = self._scripts.get((version, half), "")
        if partitions:
            script = script.replace("{storage}", "PARTITION BY HASH (digest)")
        yield from statements_of(self._named(script))

    def _partitions(self, count: int) -> Iterator[str]:
        table = self._names["record_table"]
        for number in range(count):
            yield self._named(
                f'CREATE TABLE {table[:-1]}_p{number}" PARTITION OF {table} '
                f"FOR VALUES WITH (MODULUS {count}, REMAINDER {number}) {_STORAGE}"
            )


_WHERE: Final = """
SELECT quote_ident(n.nspname), {clock} FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ?::regclass
"""
_MARK: Final = "SELECT value FROM {meta} WHERE name = 'restored'"


class PostgresRestoring:
    """The mark of one place."""

    def __init__(self, settings: Settings, migrations: Migrations) -> None:
        self._settings = settings
        self._migrations = migrations

    def _texts(self, schema: str) -> dict[str, str]:
        prefix = self._settings.prefix
        return load_statements(
            "semel.stores.postgresql",
            "restored.sql",
            {
                "record_table": f'{schema}."{prefix}record"',
                "step_table": f'{schema}."{prefix}step"',
                "meta": f'{schema}."{prefix}meta"',
                "function": f'{schema}."{prefix}restored"',
                "trigger": f'"{prefix}restored"',
                "error_type": RESTORED.type,
                "error_message": RESTORED.message,
            },
        )

    def _place(self) -> Generator[Command, list[Row], tuple[dict[str, str], int]]:
        """The statements with the schema that the tables are in: the trigger works in sessions with another path."""
        text = _WHERE.format(clock=clock_text(self._settings))
        schema, now = (yield Command(text, (table_names(self._settings)["record_table"],)))[0]
        return self._texts(schema), now

    def set_mark(
        self, at_us: int, for_us: int, operations: tuple[str, ...] | None
    ) -> Generator[Command, list[Row], Marked]:
        """Set the mark."""
        texts, now = yield from self._place()
        if at_us > now:
            message = "The restore point is in the future of the store's clock; nothing was changed. Look at --at."
            raise UsageError(message)
        mark = Mark(at_us, now, now + for_us, operations)
        held, forgotten = yield from with_retries(self._migrations, lambda: _set_mark(texts, mark))
        return Marked(mark, held, forgotten)

    def remove_mark(self) -> Generator[Command, list[Row], bool]:
        """Take the mark away."""
        texts, _ = yield from self._place()
        return (yield from with_retries(self._migrations, lambda: _remove_mark(texts)))

    def mark(self) -> Generator[Command, list[Row], Mark | None]:
        """The mark that stands."""
        rows = yield Command(_MARK.format(**table_names(self._settings)))
        return msgspec.json.decode(bytes(rows[0][0]), type=Mark) if rows else None


def _set_mark(texts: dict[str, str], mark: Mark) -> Generator[Command, list[Row], tuple[int, int]]:
    operations = None if mark.operations is None else list(mark.operations)
    yield Command("BEGIN")
    yield Command(texts["note"], (msgspec.json.encode(mark),))
    yield Command(texts["function"])
    yield Command(texts["gone"])
    yield Command(texts["trigger"])
    forgotten = yield Command(texts["forget"], (mark.marked_us, operations, operations))
    held = yield Command(texts["hold"], (mark.marked_us, mark.marked_us, mark.at_us, operations, operations))
    yield Command("COMMIT")
    return held[0][0], forgotten[0][0]


def _remove_mark(texts: dict[str, str]) -> Generator[Command, list[Row], bool]:
    yield Command("BEGIN")
    yield Command(texts["gone"])
    yield Command(texts["drop"])
    rows = yield Command(texts["unnote"])
    yield Command("COMMIT")
    return bool(rows)


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
_SAFE_COMMIT: Final = frozenset({"on", "remote_apply", "remote_write", "local"})


class PostgresDoctor(ServerDoctor):
    """Looks at one place."""

    step_key = ("digest", "position", "step")

    def __init__(self, settings: Settings) -> None:
        names = {**table_names(settings), "clock": clock_text(settings)}
        super().__init__(settings, names, PostgresDialect(settings))

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
        known = ("record", "step", "invalidation", "history", "worker", "letter")
        tables = [self._names[f"{name}_table"] for name in known] + [self._names["meta"]]
        rows = yield Command(_TABLES, (tables, tables[0]))
        return [persistence(dict(rows))]


def durability(found: Mapping[str, str]) -> list[Finding]:
    """Whether a commit that was acknowledged is on disk."""
    commit, pages = found["synchronous_commit"], found["full_page_writes"]
    losing = "after a crash of the server claims and outcomes are forgotten, and operations run again: switch it on"
    return [
        required_finding("fsync", found["fsync"], losing, "durable", fine=found["fsync"] == "on"),
        required_finding("synchronous_commit", commit, losing, "durable", fine=commit in _SAFE_COMMIT),
        required_finding("full_page_writes", pages, TORN_PAGES, "durable", fine=pages == "on"),
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
