"""Administration of MySQL and MariaDB: schema, search indexes, the mark after a restore, and `semel doctor`.

- The server commits at every CREATE, so a migration is no transaction: each of its statements can be repeated, the row
  that it was applied is written last, and one process applies while the others wait for its lock. The `pre` half is
  safe while workers of the previous release run; the `post` half waits until they are gone.
- Claims go on while a search index is built. It needs the table only for a moment at its start and end; where it does
  not get it within `lock_timeout`, it gives up and tries again. An existing index is left alone.
- The restore mark is a trigger and a row. The trigger is created first and the row written last, so an interrupted run
  holds too much, never too little. One mark replaces another without a gap.
- The doctor changes nothing. Durability is read from the server's global settings, what concerns `within` from the
  defaults that a caller's session gets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from semel.errors import StoreUnavailable, UsageError
from semel.stores.admin import Finding, Half, Mark, Marked, required_finding
from semel.stores.mysql.dialect import MysqlDialect, clock_text, table_names
from semel.stores.rows import load_statements
from semel.stores.sql.admin import RESTORED, TORN_PAGES, Looking, ServerDoctor
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.migrations import (
    RECORDS,
    Building,
    Migrations,
    Scripts,
    ServerSchema,
    acquire_lock,
    scripts_of,
    statements_of,
    text_of,
    with_retries,
)
from semel.stores.sql.settings import Settings

_THERE: Final = """
SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?
"""


def index_texts(settings: Settings) -> dict[str, str]:
    """The statements, by the names of the indexes."""
    index = f"{settings.prefix}search"
    texts = load_statements("semel.stores.mysql", "search.sql", {**table_names(settings), "index": index})
    return {f"{index}_{name}": text for name, text in texts.items()}


def search_sql(settings: Settings) -> str:
    """What is built, as text."""
    return "".join(f"{text};\n" for text in index_texts(settings).values())


def build_search_indexes(settings: Settings, migrations: Migrations) -> Building:
    """Build what is missing; answers the names of what was built."""
    rows = yield Command(_THERE, (settings.schema or None, f"{settings.prefix}record"))
    there = {name for (name,) in rows}
    missing = {name: text for name, text in index_texts(settings).items() if name not in there}
    for text in missing.values():
        yield from with_retries(migrations, partial(_one, migrations, text))
    return list(missing)


def _one(migrations: Migrations, text: str) -> Generator[Command, list[Row], None]:
    yield migrations.lock()  # once more, because a failure lets go of it once
    yield Command(text)
    yield migrations.unlock()


_DIGITS: Final = "SELECT 0 AS d" + "".join(f" UNION ALL SELECT {digit}" for digit in range(1, 16))
_LOCK: Final = "CONCAT('semel.', LEFT(SHA2(CONCAT(COALESCE({database}, DATABASE()), '.{prefix}'), 256), 40))"
_NOTE: Final = (
    "INSERT INTO {{schema_table}} (version, oldest, post) SELECT n.version, {oldest}, {post} "
    "FROM (SELECT {version} AS version) AS n "
    "WHERE NOT EXISTS (SELECT 1 FROM {{schema_table}} AS s WHERE s.version = n.version)"
)


def scripts() -> Scripts:
    """The files of this release."""
    return scripts_of("semel.stores.mysql")


class MysqlSchema(ServerSchema):
    """The schema of one place."""

    def __init__(self, settings: Settings, dialect: MysqlDialect, given: Scripts | None = None) -> None:
        names = {**table_names(settings), "digits": _DIGITS}
        super().__init__(scripts() if given is None else given, names, dialect.ready(), _NOTE)
        self._settings = settings
        database = f"'{settings.schema}'" if settings.schema else "NULL"
        self._lock = _LOCK.format(database=database, prefix=settings.prefix)

    def undo(self) -> Command:
        """Leave a transaction that failed, and the lock that its commands took; what was created stays."""
        return Command("ROLLBACK", (), self.unlock())

    def lock(self) -> Command:
        """Try to be the one who migrates; one row says whether it was possible.

        A session that has it gets it again, and has to release it as often.
        """
        return Command(f"SELECT GET_LOCK({self._lock}, 0)")

    def pause(self) -> Command:
        """Wait a moment before trying again."""
        return Command("SELECT SLEEP(0.1)")

    def unlock(self) -> Command:
        """Let the next one migrate."""
        return Command(f"SELECT RELEASE_LOCK({self._lock})")

    def creation(self, partitions: int = 0) -> Sequence[Command]:
        """All of the newest schema where there is none."""
        return [
            Command(f"SELECT GET_LOCK({self._lock}, 10)"),
            *map(Command, self._creating(partitions)),
            self.unlock(),
        ]

    def creation_sql(self, partitions: int = 0) -> str:
        """The same as text."""
        return text_of(self._creating(partitions))

    def half(self, version: int, half: Half) -> Sequence[Command]:
        """One half of a migration, and the note that it was applied."""
        return [self.lock(), *map(Command, self._half(version, half)), self.unlock()]

    def search(self) -> Building:
        """Make the indexes for searching that are missing."""
        return build_search_indexes(self._settings, self)

    def _creating(self, partitions: int = 0) -> Iterator[str]:
        if self._settings.schema:
            yield f"CREATE DATABASE IF NOT EXISTS `{self._settings.schema}`"
        for version in range(1, self.newest + 1):
            yield from self._half(version, "pre", partitions if version == RECORDS else 0)
            if self.has_post(version):
                yield from self._half(version, "post")

    def _half(self, version: int, half: Half, partitions: int = 0) -> Iterator[str]:
        yield from statements_of(self._named(self._scripts.get((version, half), "")))
        if partitions:
            # Not part of the CREATE, which does nothing where an interrupted run has left the table.
            yield self._named(f"ALTER TABLE {{record_table}} PARTITION BY KEY (digest) PARTITIONS {partitions}")
        if half == "pre":
            yield self._note(version)
        else:
            yield self._noted_post(version)


_NAME: Final = "restored"
_NEXT: Final = "restored_next"  # stands while the other one is replaced
Doing = Generator[Command, list[Row], None]


class MysqlRestoring:
    """The mark of one place."""

    def __init__(self, settings: Settings, migrations: Migrations) -> None:
        self._settings = settings
        self._migrations = migrations

    def set_mark(
        self, at_us: int, for_us: int, operations: tuple[str, ...] | None
    ) -> Generator[Command, list[Row], Marked]:
        """Set the mark."""
        now = (yield Command(self._texts()["now"]))[0][0]
        if at_us > now:
            message = "The restore point is in the future of the store's clock; nothing was changed. Look at --at."
            raise UsageError(message)
        mark = Mark(at_us, now, now + for_us, operations)
        yield from acquire_lock(self._migrations)
        try:
            held, forgotten = yield from with_retries(self._migrations, lambda: self._setting(mark))
        except StoreUnavailable as error:
            message = (
                f"{error.message} The mark may be set in part: keys without a record may be held already. "
                f"Run it again, or take it back: semel restored --end."
            )
            raise StoreUnavailable(message) from error
        yield self._migrations.unlock()
        return Marked(mark, held, forgotten)

    def remove_mark(self) -> Generator[Command, list[Row], bool]:
        """Take the mark away."""
        yield from acquire_lock(self._migrations)
        there = yield from with_retries(self._migrations, self._removing)
        yield self._migrations.unlock()
        return there

    def mark(self) -> Generator[Command, list[Row], Mark | None]:
        """The mark that stands."""
        rows = yield Command(self._texts()["mark"])
        return msgspec.json.decode(bytes(rows[0][0]), type=Mark) if rows else None

    def _setting(self, mark: Mark) -> Generator[Command, list[Row], tuple[int, int]]:
        yield self._migrations.lock()  # once more, because a failure lets go of it once
        yield from self._triggers(mark)
        chosen = mark.operations or ()
        texts = self._texts("AND r.operation IN", chosen)
        yield Command("BEGIN")
        expired, unsettled = (mark.marked_us, *chosen), (mark.at_us, *chosen)
        # The rows are locked from here on, so that what is counted is what is changed.
        forgotten = yield Command(texts["expired_ones"], expired)
        yield Command(texts["forget_steps"], expired)
        yield Command(texts["forget_history"], expired)
        yield Command(texts["forget"], expired)
        held = yield Command(texts["unsettled_ones"], unsettled)
        yield Command(texts["note_held"], (mark.marked_us, RESTORED.type, RESTORED.message, *unsettled))
        yield Command(texts["hold"], (RESTORED.type, RESTORED.message, mark.marked_us, mark.marked_us, *unsettled))
        note = msgspec.json.encode(mark)
        yield Command(texts["note"], (note, note))
        yield Command("COMMIT")
        yield self._migrations.unlock()
        return held[0][0], forgotten[0][0]

    def _triggers(self, mark: Mark) -> Doing:
        """Two in turn: one of them stands at every moment from the first on."""
        chosen = mark.operations or ()
        values = (mark.until_us, *chosen, RESTORED.type, RESTORED.message)
        for name, other in ((_NEXT, _NAME), (_NAME, _NEXT)):
            texts = self._texts("AND NEW.operation IN", chosen, name)
            yield Command(texts["gone"])
            yield Command(texts["trigger"], values)
            yield Command(self._texts(name=other)["gone"])

    def _removing(self) -> Generator[Command, list[Row], bool]:
        yield self._migrations.lock()
        texts, prefix = self._texts(), self._settings.prefix
        there = yield Command(texts["there"], (self._settings.schema or None, f"{prefix}{_NAME}", f"{prefix}{_NEXT}"))
        for name in (_NAME, _NEXT):
            yield Command(self._texts(name=name)["gone"])
        yield Command(texts["unnote"])
        yield self._migrations.unlock()
        return bool(there)

    def _texts(self, restricted: str = "", chosen: tuple[str, ...] = (), name: str = _NAME) -> dict[str, str]:
        within = f"`{self._settings.schema}`." if self._settings.schema else ""
        return load_statements(
            "semel.stores.mysql",
            "restored.sql",
            {
                **table_names(self._settings),
                "clock": clock_text(self._settings),
                "trigger": f"{within}`{self._settings.prefix}{name}`",
                "chosen": f"{restricted} ({', '.join('?' * len(chosen))})" if chosen else "",
            },
        )


_GLOBAL: Final = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin',
    'innodb_doublewrite', 'read_only', 'sql_mode', 'version', 'transaction_isolation', 'tx_isolation')
"""
_SESSION: Final = "SHOW SESSION VARIABLES WHERE Variable_name IN ('sql_mode', 'transaction_isolation', 'tx_isolation')"
_TABLES: Final = """
SELECT TABLE_NAME, ENGINE, TABLE_COLLATION FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME IN (?, ?, ?, ?, ?, ?, ?)
"""
_NO: Final = frozenset({"0", "OFF"})


class MysqlDoctor(ServerDoctor):
    """Looks at one place."""

    step_key = ("digest", "life", "position", "identity")

    def __init__(self, settings: Settings) -> None:
        names = {**table_names(settings), "clock": clock_text(settings)}
        super().__init__(settings, names, MysqlDialect(settings))

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
        known = ("record", "step", "meta", "invalidation", "history", "worker", "letter")
        names = tuple(f"{prefix}{name}" for name in known)
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
        required_finding("innodb_flush_log_at_trx_commit", flush, losing, "durable", fine=flush == "1"),
        required_finding(
            "sync_binlog",
            f"{binlog}{' (no binary log)' if unused else ''}",
            losing,
            "durable",
            fine=unused or binlog == "1",
        ),
        required_finding("innodb_doublewrite", twice, TORN_PAGES, "durable", fine=twice not in _NO),
    ]


def role(found: Mapping[str, str]) -> Finding:
    """Whether the server takes writes."""
    advice = "a replica answers 'absent' for what the primary holds: give the address of the primary"
    writes = found["read_only"] in _NO
    return required_finding(
        "role", "takes writes" if writes else "read-only: a replica", advice, "primary", fine=writes
    )


def defaults(found: Mapping[str, str]) -> list[Finding]:
    """What a session of the caller's gets, in which within() writes."""
    mode = found["sql_mode"]
    return [
        Finding("version", found["version"]),
        Finding("isolation", f"{_isolation(found)} by default; READ-COMMITTED in semel's own sessions"),
        required_finding(
            "strict mode",
            "on" if "STRICT_" in mode else "off by default",
            "in the caller's transaction a value that does not fit is cut: add STRICT_ALL_TABLES to sql_mode",
            "joins",
            fine="STRICT_" in mode,
        ),
        required_finding(
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
    return required_finding("tables", found, advice, "durable", "joins", fine=not other)


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
