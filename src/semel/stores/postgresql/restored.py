"""The restore mark on PostgreSQL: a row in the meta table, and a trigger that is there only while it stands.

What always holds: setting the mark is one transaction. The trigger touches only rows of keys that have no record: its
changes would otherwise reach `excluded`, by which a claim is compared with the record that it meets.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from semel.errors import UsageError
from semel.stores.postgresql.dialect import clock_text, table_names
from semel.stores.served.command import Command, Row
from semel.stores.served.migrate import Migrations, patiently
from semel.stores.served.restored import RESTORED, Mark, Marked
from semel.stores.served.settings import Settings
from semel.stores.sql import load_statements

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

    def marking(
        self, at_us: int, for_us: int, operations: tuple[str, ...] | None
    ) -> Generator[Command, list[Row], Marked]:
        """Set the mark."""
        texts, now = yield from self._place()
        if at_us > now:
            message = "The restore point is in the future of the store's clock; nothing was changed. Look at --at."
            raise UsageError(message)
        mark = Mark(at_us, now, now + for_us, operations)
        held, forgotten = yield from patiently(self._migrations, lambda: _setting(texts, mark))
        return Marked(mark, held, forgotten)

    def ending(self) -> Generator[Command, list[Row], bool]:
        """Take the mark away."""
        texts, _ = yield from self._place()
        return (yield from patiently(self._migrations, lambda: _removing(texts)))

    def mark(self) -> Generator[Command, list[Row], Mark | None]:
        """The mark that stands."""
        rows = yield Command(_MARK.format(**table_names(self._settings)))
        return msgspec.json.decode(bytes(rows[0][0]), type=Mark) if rows else None


def _setting(texts: dict[str, str], mark: Mark) -> Generator[Command, list[Row], tuple[int, int]]:
    operations = None if mark.operations is None else list(mark.operations)
    yield Command("BEGIN")
    yield Command(texts["note"], (msgspec.json.encode(mark),))
    yield Command(texts["function"])
    yield Command(texts["gone"])
    yield Command(texts["trigger"])
    forgotten = yield Command(texts["forget"], (mark.marked_us, operations, operations))
    held = yield Command(texts["hold"], (mark.marked_us, mark.at_us, operations, operations))
    yield Command("COMMIT")
    return held[0][0], forgotten[0][0]


def _removing(texts: dict[str, str]) -> Generator[Command, list[Row], bool]:
    yield Command("BEGIN")
    yield Command(texts["gone"])
    yield Command(texts["drop"])
    rows = yield Command(texts["unnote"])
    yield Command("COMMIT")
    return bool(rows)
