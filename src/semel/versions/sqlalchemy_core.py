"""The steps of a write as SQLAlchemy Core statements, so that a table's types, schema and Python-side defaults apply.

- They say the same as the SQL text, step by step.
- A table given by name is described to SQLAlchemy by the columns that are written.
- This module is imported only once the caller has given a connection of SQLAlchemy.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from semel.errors import UsageError
from semel.versions.execute import Step
from semel.versions.write import Items, Write


def described(write: Write) -> Any:
    """The table of a write, as SQLAlchemy knows it.

    Raises:
        UsageError: it lacks a column that is written.
    """
    names = (*write.key, *write.settings, write.version)
    if isinstance(write.table, str):
        schema, _, name = write.table.rpartition(".")
        return sa.table(name, *(sa.column(name) for name in names), schema=schema or None)
    assert not isinstance(write.table, Items)  # noqa: S101 - `run` and `arun` refuse it
    missing = [name for name in names if name not in write.table.c]
    if missing:
        raise UsageError(f"{write.place} has no column {', '.join(missing)}; nothing was written.")
    return write.table


def statement(step: Step, write: Write, dialect: str) -> Any:
    """The Core statement of a step."""
    table = described(write)
    match step:
        case Step.ADD if dialect == "mysql":
            return sa.insert(table).values(_row(write, write.after))
        case Step.ADD_BELOW:
            first = next(iter(write.key))
            below = mysql.insert(table).values(_row(write, write.after - 1))
            return below.on_duplicate_key_update({table.c[first].name: table.c[first]})
        case Step.ADD | Step.ADD_OR_CHANGE:
            return _insert(step, write, table, dialect)
        case Step.CHANGE:
            change = _update(write, table)
            return change if dialect == "mysql" else change.returning(table.c[write.version])
        case Step.LOOK:
            shown: Any = sa.literal(0)
            for name, value in (write.request or {}).items():
                shown = sa.case((table.c[name] == value, 1), else_=0)
            look = sa.select(table.c[write.version], shown).where(*_named(write, table))
            # A transaction of InnoDB sees the version of its first read, unless it reads with a lock.
            return look.with_for_update(read=True) if dialect == "mysql" else look


def _insert(step: Step, write: Write, table: Any, dialect: str) -> Any:
    insert: Any = (sqlite if dialect == "sqlite" else postgresql).insert(table).values(_row(write, write.after))
    key = [table.c[name] for name in write.key]
    version = table.c[write.version]
    if step is Step.ADD:
        return insert.on_conflict_do_nothing(index_elements=key).returning(version)
    changes = {table.c[name]: insert.excluded[name] for name in (*write.settings, write.version)}
    newer = version < insert.excluded[write.version]
    return insert.on_conflict_do_update(index_elements=key, set_=changes, where=newer).returning(version)


def _update(write: Write, table: Any) -> Any:
    version = table.c[write.version]
    raised = version + 1 if write.newer is None else write.newer
    change = sa.update(table).where(*_named(write, table)).values({**write.settings, write.version: raised})
    if write.newer is not None:
        return change.where(version < write.newer)
    for name, value in (write.request or {}).items():
        # Not again by the same request, even if it has read the version that it made itself.
        change = change.where(sa.or_(table.c[name].is_(None), table.c[name] != value))
    return change.where(version == write.expected)


def _row(write: Write, version: int) -> dict[str, Any]:
    return {**write.key, **write.settings, write.version: version}


def _named(write: Write, table: Any) -> list[Any]:
    return [table.c[name] == value for name, value in write.key.items()]
