"""Every backend has the same files under the same names, so that a reader who knows one finds his way in all."""

from __future__ import annotations

import pytest

from tests.shape.tree import PACKAGE

STORES = PACKAGE / "stores"
NEEDED = {"__init__", "store", "settings", "errors", "admin"}
SPOKEN = {"dialect", "plan"}
"""At least one of them: a dialect of the shared plan, or a plan of its own."""
WHERE_NEEDED = {"driver", "listener"}
"""Servers of SQL share the driver in `stores/sql`; not every store tells of ends."""
EXTRAS = {
    "postgresql": {
        "outbox": "events are read by snapshots of transactions, which only this server has",
        "json_rows": "a record that a statement gives out as one text, which costs less than a column for each value",
    },
    "mysql": {"outbox": "published events are deleted, because nothing tells which commits have been seen"},
    "sqlite": {
        "commands": "what plans yield to the drivers",
        "outbox": "events are read by position, which is the order of commits where there is one writer",
        "database": "the connections of a process to one file, its writer thread, and what a fork does to them",
        "joined": "the sqlite3 connection inside the caller's own, which SQLAlchemy, Django or aiosqlite may wrap",
        "migrations": "what the shared runner needs of a file, asked for each time that a file is opened",
    },
    "redis": {
        "connections": "sockets and their pool: one round is one pipeline on one connection",
        "pipeline": "commands of several plans as one round trip, to one server or to the nodes of a cluster",
        "record_hash": "a record as a hash, and back",
        "key_names": "what a record is called on the server",
    },
    "dynamodb": {
        "clock": "the service tells no time, so its clock is estimated",
        "commands": "what plans yield to the driver",
        "items": "a record as an item, and back; what does not fit into one",
        "request_builders": "conditions and updates as the service takes them",
        "transact": "the caller's own writes, in one transaction with the record",
        "layout": "where items lie in a table that belongs to a service",
    },
}
"""Further modules of a backend, and why it has them."""
FOLDERS = {"schema", "scripts", "events", "batch", "operators"}
"""Beside modules: numbered migrations, scripts of the server, a larger outbox, batches, the audit chain."""


@pytest.mark.parametrize("backend", sorted(EXTRAS))
def test_a_backend_has_the_files_that_every_backend_has(backend: str) -> None:
    names = {path.stem for path in (STORES / backend).glob("*.py")}
    assert sorted(NEEDED - names) == [], "missing"
    assert names & SPOKEN, "how operations are said is in dialect.py or plan.py"
    assert sorted(names - NEEDED - SPOKEN - WHERE_NEEDED - EXTRAS[backend].keys()) == [], "not among the names"
    assert sorted(EXTRAS[backend].keys() - names) == [], "a reason for a module that is gone"


@pytest.mark.parametrize("backend", sorted(EXTRAS))
def test_a_backend_has_no_other_folders(backend: str) -> None:
    folders = {path.name for path in (STORES / backend).iterdir() if path.is_dir() and any(path.iterdir())}
    assert folders - {"__pycache__"} <= FOLDERS


def test_every_folder_of_stores_is_a_backend_or_known() -> None:
    folders = {path.name for path in STORES.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders == {*EXTRAS, "sql", "cache", "events", "batch", "operators", "sealing"}


@pytest.mark.parametrize("backend", ["postgresql", "mysql", "sqlite"])
def test_migrations_are_numbered_without_a_gap(backend: str) -> None:
    names = sorted(path.name for path in (STORES / backend / "schema").glob("*.sql"))
    first = [name for name in names if not name.endswith(".post.sql")]
    assert [int(name[:4]) for name in first] == list(range(1, len(first) + 1))
    assert {name[:4] for name in names} == {name[:4] for name in first}, "a second half without a first"
    assert all((STORES / backend / "schema" / name).read_text(encoding="utf-8").strip() for name in names)
