"""Errors of sqlite3: each class is translated or left alone on purpose, and what is translated carries its cause."""

import sqlite3

import pytest

from semel.errors import (
    NotInTransaction,
    RecordUnreadable,
    SchemaOutdated,
    SemelError,
    StoreUnavailable,
    TransactionAborted,
)
from semel.stores.sqlite.errors import BUGS, OF_ONE_OPERATION, TRANSLATED, translate_error, translate_joined_error

CLASSES = {value for value in vars(sqlite3).values() if isinstance(value, type) and issubclass(value, Exception)}


def error(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError, text: str = "told so") -> sqlite3.Error:
    made = kind(text)
    made.sqlite_errorcode = code
    return made


def test_every_class_of_sqlite3_is_mapped_or_listed() -> None:
    assert {*OF_ONE_OPERATION, *BUGS, *TRANSLATED} >= CLASSES
    assert not set(BUGS) & {*OF_ONE_OPERATION, *TRANSLATED}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_BUSY, StoreUnavailable),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreUnavailable),
        (sqlite3.SQLITE_LOCKED, StoreUnavailable),
        (sqlite3.SQLITE_FULL, StoreUnavailable),
        (sqlite3.SQLITE_IOERR_WRITE, StoreUnavailable),
        (sqlite3.SQLITE_CANTOPEN_ISDIR, StoreUnavailable),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreUnavailable),
        (sqlite3.SQLITE_PERM, StoreUnavailable),
        (sqlite3.SQLITE_PROTOCOL, StoreUnavailable),
        (sqlite3.SQLITE_INTERRUPT, StoreUnavailable),
        (sqlite3.SQLITE_CORRUPT, RecordUnreadable),
        (sqlite3.SQLITE_NOTADB, RecordUnreadable),
    ],
)
def test_a_code_has_one_meaning(code: int, expected: type[SemelError]) -> None:
    for kind in TRANSLATED:
        cause = error(code, kind)
        meaning = translate_error(cause, "sqlite:///x.db")
        assert isinstance(meaning, expected)
        assert meaning.__cause__ is cause
        assert "sqlite:///x.db" in str(meaning)
        assert "nothing was recorded" in str(meaning)


def test_an_error_of_a_commit_leaves_the_end_open() -> None:
    assert "not known" in str(translate_error(error(sqlite3.SQLITE_IOERR_FSYNC), "x", written=True))


def test_missing_tables_are_an_outdated_schema() -> None:
    meaning = translate_error(error(sqlite3.SQLITE_ERROR, text="no such table: semel_record"), "x")
    assert isinstance(meaning, SchemaOutdated)


@pytest.mark.parametrize("kind", [*BUGS[:1], sqlite3.IntegrityError, sqlite3.ProgrammingError])
def test_a_bug_stays_a_bug(kind: type[sqlite3.Error]) -> None:
    bug = error(sqlite3.SQLITE_MISUSE, kind)
    assert translate_error(bug, "x") is bug


def test_a_mistake_in_our_own_sql_stays_a_bug() -> None:
    bug = error(sqlite3.SQLITE_ERROR, text='near "SELEC": syntax error')
    assert translate_error(bug, "x") is bug


def test_a_lost_transaction_of_the_caller_is_aborted() -> None:
    assert isinstance(translate_joined_error(error(sqlite3.SQLITE_FULL), "x", lost=True), TransactionAborted)
    assert isinstance(translate_joined_error(error(sqlite3.SQLITE_BUSY_SNAPSHOT), "x", lost=False), TransactionAborted)


def test_other_errors_on_the_callers_connection_mean_the_same_as_on_ours() -> None:
    assert isinstance(translate_joined_error(error(sqlite3.SQLITE_FULL), "x", lost=False), StoreUnavailable)
    closed = sqlite3.ProgrammingError("Cannot operate on a closed database.")
    assert isinstance(translate_joined_error(closed, "x", lost=False), NotInTransaction)
