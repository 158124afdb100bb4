"""Helpers that adapters share: the class names of a connection, and rows as plans expect them. Imports no library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from semel.stores.sql.dialect import Row


def plain(rows: Iterable[Any]) -> list[Row]:
    """Rows as tuples, and bytes as bytes: some libraries give views of memory."""
    return [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in rows]


def kinds(thing: object) -> list[str]:
    """The names of the classes of `thing`, its own first."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(thing).__mro__]
