"""A store in a database of its own, asked without an engine; and a release whose schema is one version newer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg

from semel.core.key import Key
from semel.core.operations import Claim, Complete, Granted, Operation, Terms
from semel.core.policy import Doubt
from semel.core.record import About, Lease
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.admin import PostgresSchema, scripts
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.sql.migrations import Scripts
from semel.stores.sql.settings import Settings

SECOND = 1_000_000
DAY = 86_400 * SECOND
NEWEST = max(version for version, _ in scripts())
ALL = [f"{version:04}" for version in range(1, NEWEST + 1)]
"""What is applied to an empty database."""
SOON = NEWEST + 1
NEXT: Scripts = {
    **scripts(),
    (SOON, "pre"): "ALTER TABLE {record_table} ADD COLUMN colour text;\n",
    (SOON, "post"): "ALTER TABLE {record_table} DROP COLUMN IF EXISTS wanted_no_more;\n",
}


def claim(value: str = "o-1", *, operation: str = "charge", in_doubt: Doubt = "rerun", lease: int = 30) -> Claim:
    terms = Terms(lease * SECOND, DAY, in_doubt, 0)
    key = Key.of(value, operation=operation, scope="acme")
    return Claim(key, b"\x01" + bytes(32), os.urandom(16), terms, About())


def claims(count: int) -> list[Claim]:
    return [claim(str(uuid4())) for _ in range(count)]


def completions(granted: Sequence[Any], outcome: bytes = b"\x01") -> list[Complete]:
    return [Complete(answer.lease, outcome) for answer in granted]


@dataclass
class Asker:
    """Asks one store, in the calling thread."""

    store: PostgresStore
    _driver: Any = field(init=False)

    def __post_init__(self) -> None:
        self._driver = self.store.driver()

    def all(self, operations: Sequence[Operation]) -> list[Any]:
        [answers] = self._driver.perform([self.store.plan(operations, joined=False)])
        if isinstance(answers, Exception):
            raise answers
        return list(answers)

    def one(self, operation: Operation) -> Any:
        [answer] = self.all([operation])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def lease(self, operation: Claim) -> Lease:
        answer = self.one(operation)
        assert isinstance(answer, Granted)
        return answer.lease

    def close(self) -> None:
        self._driver.close()


def release(url: str, given: Scripts, **settings: Any) -> PostgresStore:
    """A store of a release that has these migrations."""
    store = PostgresStore(url, **settings)
    known = Settings.of(url, **settings)
    store._schema = store._context.schema = PostgresSchema(known, PostgresDialect(known), given)
    return store


def rows(url: str, text: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description else []
