"""Databases whose tables tests tamper with: by SQL, behind semel's back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.stores.urls import store_from_url

PLACES = ("sqlite", "postgresql", "mariadb")
UNGUARDED = {
    "sqlite": ("DROP TRIGGER semel_audit_changed", "DROP TRIGGER semel_audit_deleted"),
    "postgresql": ("ALTER TABLE semel_audit DISABLE TRIGGER USER",),
    "mariadb": (),
}
"""What lets somebody who owns the tables change entries."""


@dataclass(frozen=True)
class Place:
    """A database with semel's tables."""

    kind: str
    url: str
    run: Callable[..., list[tuple[Any, ...]]]
    """Runs statements, and gives the rows of the last."""

    def literal(self, value: bytes) -> str:
        """Bytes as they are written in a statement."""
        return f"'\\x{value.hex()}'::bytea" if self.kind == "postgresql" else f"x'{value.hex()}'"

    def unguard(self) -> None:
        """Let entries be changed."""
        self.run(*UNGUARDED[self.kind])


def make_place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    """A new database with semel's tables."""
    if kind == "sqlite":
        path = folder / "semel.db"
        place = Place(kind, f"sqlite:///{path}", lambda *statements: _run_on_file(path, statements))
    else:
        databases = request.getfixturevalue(kind)
        url = databases.new_database()
        place = Place(kind, url, lambda *statements: databases.admin_each(statements, url))
    with Semel(store_from_url(place.url)) as semel:
        semel.read("nothing", operation="nothing")
    return place


def _run_on_file(path: Path, statements: tuple[str, ...]) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows
