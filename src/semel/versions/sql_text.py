"""The steps of a write as SQL text, made of fixed words and names that `Write` has checked; values are bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from semel.errors import UsageError
from semel.versions.execute import Step
from semel.versions.write import Write


@dataclass(frozen=True)
class Dialect:
    """How a database is spoken to through one driver. `mark` stands for a bound value; "$" is numbered."""

    name: Literal["sqlite", "postgresql", "mysql"]
    mark: Literal["?", "%s", "$"]

    def quoted(self, name: str) -> str:
        """A name that is a name and nothing else, reserved words included."""
        return f"`{name}`" if self.name == "mysql" else f'"{name}"'


class _Text:
    """One statement under construction."""

    def __init__(self, write: Write, dialect: Dialect) -> None:
        if not isinstance(write.table, str):
            raise UsageError(
                f"A SQLAlchemy table needs a SQLAlchemy connection, which knows its types; nothing was written. Give "
                f"the session or connection of SQLAlchemy, or the name {write.place!r}."
            )
        self.values: list[Any] = []
        self._write = write
        self._dialect = dialect
        self._table = ".".join(map(dialect.quoted, write.table.split(".")))
        self._version = dialect.quoted(write.version)

    def insert(self, version: int, met: str) -> str:
        """`met`: what happens to a row that is there."""
        row = {**self._write.key, **self._write.settings, self._write.version: version}
        marks = ", ".join(map(self._bound, row.values()))
        return f"INSERT INTO {self._table}{self._alias} ({self._names(row)}) VALUES ({marks}){met}{self._returning}"  # noqa: S608

    def left_alone(self) -> str:
        if self._dialect.name == "mysql":
            # Not INSERT IGNORE, which also swallows values that do not fit.
            name = self._names(self._write.key).split(", ")[0]
            return f" ON DUPLICATE KEY UPDATE {name} = {name}"
        return f" ON CONFLICT ({self._names(self._write.key)}) DO NOTHING"

    def replaced_if_older(self) -> str:
        names = map(self._dialect.quoted, (*self._write.settings, self._write.version))
        changes = ", ".join(f"{name} = excluded.{name}" for name in names)
        return (
            f" ON CONFLICT ({self._names(self._write.key)}) DO UPDATE SET {changes}"
            f" WHERE stored.{self._version} < excluded.{self._version}"
        )

    def update(self) -> str:
        write, version = self._write, self._version
        changes = [f"{self._dialect.quoted(name)} = {self._bound(value)}" for name, value in write.settings.items()]
        raised = f"{version} + 1" if write.newer is None else self._bound(write.newer)
        changes.append(f"{version} = {raised}")
        conditions = self._conditions()
        if write.newer is not None:
            conditions.append(f"{version} < {self._bound(write.newer)}")
        else:
            conditions.append(f"{version} = {self._bound(write.expected)}")
            for name, value in (write.request or {}).items():
                # Not again by the same request, even if it has read the version that it made itself.
                column = self._dialect.quoted(name)
                conditions.append(f"({column} IS NULL OR {column} <> {self._bound(value)})")
        where = " AND ".join(conditions)
        return f"UPDATE {self._table} SET {', '.join(changes)} WHERE {where}{self._returning}"  # noqa: S608

    def select(self) -> str:
        shown = "0"
        for name, value in (self._write.request or {}).items():
            shown = f"CASE WHEN {self._dialect.quoted(name)} = {self._bound(value)} THEN 1 ELSE 0 END"
        where = " AND ".join(self._conditions())
        # A transaction of InnoDB sees the version of its first read, unless it reads with a lock.
        lock = " LOCK IN SHARE MODE" if self._dialect.name == "mysql" else ""
        return f"SELECT {self._version}, {shown} FROM {self._table} WHERE {where}{lock}"  # noqa: S608

    @property
    def _alias(self) -> str:
        return "" if self._dialect.name == "mysql" else " AS stored"

    @property
    def _returning(self) -> str:
        return "" if self._dialect.name == "mysql" else f" RETURNING {self._version}"

    def _conditions(self) -> list[str]:
        return [f"{self._dialect.quoted(name)} = {self._bound(value)}" for name, value in self._write.key.items()]

    def _names(self, names: Iterable[str]) -> str:
        return ", ".join(map(self._dialect.quoted, names))

    def _bound(self, value: object) -> str:
        self.values.append(value)
        return f"${len(self.values)}" if self._dialect.mark == "$" else self._dialect.mark


def statement(step: Step, write: Write, dialect: Dialect) -> tuple[str, list[Any]]:
    """The text of a step, and the values to bind, in order."""
    text = _Text(write, dialect)
    return _spelled(step, write, text, dialect), text.values


def _spelled(step: Step, write: Write, text: _Text, dialect: Dialect) -> str:
    match step:
        case Step.ADD:
            return text.insert(write.after, "" if dialect.name == "mysql" else text.left_alone())
        case Step.ADD_BELOW:
            return text.insert(write.after - 1, text.left_alone())
        case Step.ADD_OR_CHANGE:
            return text.insert(write.after, text.replaced_if_older())
        case Step.CHANGE:
            return text.update()
        case Step.LOOK:
            return text.select()
