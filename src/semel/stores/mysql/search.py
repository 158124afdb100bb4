"""The indexes for searching on MySQL and MariaDB, as a flow.

What always holds: claims go on while an index is built; only at its start and end does it need the table for a moment,
and where that is not to be had within `lock_timeout`, it steps aside and tries again. An index that is there is left
alone; the server leaves none half built.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Final

from semel.stores.mysql.dialect import table_names
from semel.stores.served.command import Command, Row
from semel.stores.served.migrate import Building, Migrations, patiently
from semel.stores.served.settings import Settings
from semel.stores.sql import load_statements

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


def searching(settings: Settings, migrations: Migrations) -> Building:
    """Build what is missing; answers the names of what was built."""
    rows = yield Command(_THERE, (settings.schema or None, f"{settings.prefix}record"))
    there = {name for (name,) in rows}
    missing = {name: text for name, text in index_texts(settings).items() if name not in there}
    for text in missing.values():
        yield from patiently(migrations, partial(_one, migrations, text))
    return list(missing)


def _one(migrations: Migrations, text: str) -> Generator[Command, list[Row], None]:
    yield migrations.lock()  # once more, because a failure lets go of it once
    yield Command(text)
    yield migrations.unlock()
