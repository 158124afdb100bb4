"""What libraries that stand on another one share: the error underneath, and rows as plans want them.

What always holds: nothing is imported here that the caller may not have; errors are known by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from semel.stores.sql.dialect import Row
from semel.stores.sql.errors import Trouble, trouble_of, trouble_of_login

Meaning = Callable[[BaseException], Trouble | None]
"""What an error of the library underneath means."""


def of_postgresql(error: BaseException) -> Trouble | None:
    """What an error of any client library for PostgreSQL means, by its SQLSTATE and its DB-API class."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if code:
        return trouble_of(code)
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"OperationalError", "InterfaceError"}:
        return trouble_of_login(str(error)) or Trouble.LOST
    return Trouble.OF_ONE if "DataError" in names else None


def plain(rows: Iterable[Any]) -> list[Row]:
    """Rows as tuples, and bytes as bytes: some libraries give views of memory."""
    return [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in rows]


def kinds(thing: object) -> list[str]:
    """The names of the classes of `thing`, its own first."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(thing).__mro__]
