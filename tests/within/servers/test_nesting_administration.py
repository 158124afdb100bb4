"""Resolving, reopening and sweeping decide for everybody: inside a transaction they are refused; nothing commits."""

from __future__ import annotations

import psycopg
import pymysql
import pytest

from semel import DidNotHappen, Policy, Semel
from semel.errors import UsageError
from semel.stores.mysql.settings import address
from semel.stores.sql.settings import Settings
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow


def test_on_postgresql(postgresql: Databases) -> None:
    url = postgresql.new_database()
    with Semel(url) as semel, psycopg.connect(url) as connection:
        semel.run("first", lambda: None, operation="create the tables", fingerprint=None)
        with semel.within(connection):
            with pytest.raises(UsageError, match="outside within"):
                semel.sweep()
            with pytest.raises(UsageError, match="outside within"):
                semel.resolve("k", DidNotHappen(), operation="pay", reason="looked")


def test_reopening_on_postgresql(postgresql: Databases) -> None:
    url = postgresql.new_database()
    with Semel(url, policy=Policy(final_errors=(ValueError,))) as semel, psycopg.connect(url) as connection:
        with pytest.raises(ValueError, match="declined"):
            semel.run("k", _decline, operation="pay", fingerprint=None)
        with semel.within(connection), pytest.raises(UsageError, match="outside within"):
            semel.reopen("k", operation="pay", reason="looked")
        record = semel.read("k", operation="pay")
        assert record is not None
        assert not record.retryable


def _decline() -> None:
    message = "declined"
    raise ValueError(message)


def test_a_sweep_inside_does_not_commit_the_caller_s_rows_on_mariadb(mariadb: Databases) -> None:
    url = mariadb.new_database()
    connection = pymysql.connect(**address(Settings.of(url)))
    with Semel(url) as semel, connection, connection.cursor() as cursor:
        semel.run("first", lambda: None, operation="create the tables", fingerprint=None)
        cursor.execute("CREATE TABLE effect (name VARCHAR(20)) ENGINE=InnoDB")
        cursor.execute("INSERT INTO effect VALUES ('mine')")
        with semel.within(connection), pytest.raises(UsageError, match="outside within"):
            semel.sweep()
        connection.rollback()
        cursor.execute("SELECT count(*) FROM effect")
        assert cursor.fetchone() == (0,)
