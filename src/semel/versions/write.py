"""A write as a value: `upsert` and `update_versioned` describe it, and answers say what came of it.

A `Write` names a row by values that can be equal to something, sets each column once, and has one condition: the row is
absent, is at `expected`, or is older than `newer`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Table

_NAME = re.compile(r"[^\W\d][\w$]*")


@dataclass(frozen=True)
class Written:
    """The row was written and is now at `version`."""

    version: int


@dataclass(frozen=True)
class Unchanged:
    """Nothing was written, and nothing had to be: the row, at `version`, holds this write already, or a newer one."""

    version: int


@dataclass(frozen=True)
class Items:
    """A table of DynamoDB whose name is no plain one, as in `Items("orders-2026")`."""

    fullname: str


@dataclass(frozen=True, kw_only=True)
class Write:
    """One conditional write of one row. Made by `upsert` and `update_versioned`, carried out by `run` and `arun`."""

    table: str | Table | Items
    key: Mapping[str, Any]
    values: Mapping[str, Any]
    expected: int | None = None
    newer: int | None = None
    version: str = "version"
    request: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        names = [*self.key, *self.values, *(self.request or {}), self.version]
        parts = self.table.split(".") if isinstance(self.table, str) else []
        wrong = [name for name in (*parts, *names) if not _NAME.fullmatch(name)]
        if wrong:
            raise UsageError(f"{wrong[0]!r} is not a plain name of a table or column; nothing was written.")
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise UsageError(
                f"{', '.join(sorted(twice))}: one column, given more than once; nothing was written. Columns of the "
                f"key, of the request and the version are set by semel: leave them out of the values."
            )
        if not self.key or any(value is None for value in self.key.values()):
            raise UsageError(
                "The key must name at least one column, and none of its values may be None, which is equal to nothing "
                "in SQL; nothing was written."
            )
        if self.request is not None and (len(self.request) != 1 or None in self.request.values()):
            raise UsageError("request= is one column and its value, which is not None; nothing was written.")
        if self.newer is not None and (self.expected is not None or self.newer < 1):
            raise UsageError("newer= is 1 or more, and is not given together with expected=; nothing was written.")

    @property
    def place(self) -> str:
        """The table's name, for messages."""
        return self.table if isinstance(self.table, str) else self.table.fullname

    @property
    def after(self) -> int:
        """The version of the row once this is written."""
        return self.newer if self.newer is not None else (self.expected or 0) + 1

    @property
    def settings(self) -> dict[str, Any]:
        """Every column that is set, but for key and version."""
        return {**self.values, **(self.request or {})}


def upsert(
    table: str | Table | Items,
    key: Mapping[str, Any],
    values: Mapping[str, Any],
    *,
    expected: int | None = None,
    newer: int | None = None,
    version: str = "version",
    request: Mapping[str, Any] | None = None,
) -> Write:
    """Save a row: as a new one, over the version that was read, or over any older one.

    Args:
        table: its name, `schema.name` allowed, spelled as the database keeps it; or a SQLAlchemy `Table`, or `Items`.
        key: the columns of a primary key or unique index, with their values; of an item, its whole key.
        values: the other columns to set.
        expected: the version that the caller has read; the row goes to `expected + 1`. None: there must be no row yet,
            and the new one gets version 1. A row that was deleted since is a `ConcurrentModification` too: writing it
            would bring back what somebody removed.
        newer: the version that the sender gives this state, from 1. It is written where there is no row or an older
            one, otherwise the answer is `Unchanged`: events may come again and in any order.
        version: the name of the version column, an integer that is not NULL.
        request: one column that keeps who wrote last, with this write's own key. A row that shows it already is
            answered with `Unchanged` instead of an error.
    """
    return Write(table=table, key=key, values=values, expected=expected, newer=newer, version=version, request=request)


def update_versioned(
    table: str | Table | Items,
    key: Mapping[str, Any],
    values: Mapping[str, Any],
    *,
    expected: int,
    version: str = "version",
    request: Mapping[str, Any] | None = None,
) -> Write:
    """Change a row that is still at the version that was read; see `upsert` for the arguments."""
    return Write(table=table, key=key, values=values, expected=expected, version=version, request=request)
