"""`semel migrate` on real files."""

import sqlite3
from pathlib import Path

from tests.cli.conftest import Database, Run


def tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        connection.close()


def test_a_new_file_is_made_once(database: Database, run: Run, call: Run) -> None:
    first = run("migrate", database.url)
    assert first.returncode == 0
    assert "applied 0001" in first.stdout
    assert "semel_record" in tables(database.path)
    second = call("migrate", database.url)
    assert second.returncode == 0
    assert "up to date" in second.stdout


def test_the_sql_is_printed_and_nothing_is_changed(database: Database, call: Run) -> None:
    done = call("migrate", database.url, "--sql")
    assert done.returncode == 0
    assert "CREATE TABLE semel_record" in done.stdout
    assert not database.path.exists()


def test_the_sql_printed_makes_the_same_schema(database: Database, call: Run, tmp_path: Path) -> None:
    call("migrate", database.url)
    connection = sqlite3.connect(tmp_path / "by-hand.db")
    connection.executescript(call("migrate", "--sql").stdout)
    connection.close()
    assert tables(tmp_path / "by-hand.db") == tables(database.path)


def test_where_nothing_is_pending_the_sql_says_so(database: Database, call: Run) -> None:
    call("migrate", database.url)
    assert call("migrate", database.url, "--sql").stdout == "-- Nothing is pending.\n"


def test_a_database_of_a_newer_release_is_refused(database: Database, call: Run) -> None:
    call("migrate", database.url)
    connection = sqlite3.connect(database.path)
    with connection:
        connection.execute("INSERT INTO semel_schema (version, applied_at) VALUES (9999, 0)")
    connection.close()
    for arguments in (["migrate", database.url], ["migrate", database.url, "--sql"], ["list", database.url]):
        done = call(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("semel: schema_outdated: ")


def test_looking_never_migrates(database: Database, call: Run) -> None:
    sqlite3.connect(database.path).close()
    database.path.touch()
    done = call("list", database.url)
    assert done.returncode == 1
    assert "semel migrate" in done.stderr
    assert tables(database.path) == set()


def test_what_has_no_schema_is_refused(call: Run) -> None:
    done = call("migrate", "memory://")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
