"""The indexes for searching on PostgreSQL, as a flow.

What always holds: no statement here makes a claim wait. An index that an interrupted run left half built is dropped and
built again; one that is there is left alone.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Final

from semel.stores.postgresql.dialect import table_names
from semel.stores.served.command import Command, Row
from semel.stores.served.migrate import Building
from semel.stores.served.settings import Settings
from semel.stores.sql import load_statements

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


def searching(settings: Settings) -> Building:
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
