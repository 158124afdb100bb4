"""Where a MySQL store leads, what its errors mean, and what its sessions are set to. No server is involved."""

import ssl

import pytest

from semel.errors import UsageError
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.errors import kind_of_number, mysql_error_kind
from semel.stores.mysql.settings import address, session_statements
from semel.stores.sql.adapters.multi_statement import OwnConnection, to_multi_statement
from semel.stores.sql.context import Savepoints, assert_savepoint, set_savepoint
from semel.stores.sql.dialect import Command
from semel.stores.sql.errors import ErrorKind
from semel.stores.sql.settings import Settings


def found(url: str) -> dict[str, object]:
    return address(Settings.of(url))


def test_a_url_is_taken_apart() -> None:
    assert found("mysql://ann:p%40ss%2F@db.example:3307/shop%20one?unix_socket=/run/my.sock") == {
        "host": "db.example",
        "port": 3307,
        "user": "ann",
        "password": "p@ss/",
        "database": "shop one",
        "unix_socket": "/run/my.sock",
    }


def test_a_bare_url_leads_to_this_machine() -> None:
    assert (found("mysql:///shop")["host"], found("mysql:///shop")["port"]) == ("127.0.0.1", 3306)


def test_a_password_never_enters_the_name() -> None:
    assert MysqlStore("mysql://ann:secret@db.example/shop?ssl=true").name == "mysql://db.example/shop"


def test_a_setting_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="'colour'"):
        MysqlStore("mysql://db.example/shop?colour=red")


def test_tls_is_verified_unless_it_is_told_otherwise() -> None:
    context = found("mysql://db.example/shop?ssl=true")["ssl"]
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    trusting = found("mysql://db.example/shop?ssl=true&ssl_verify=false")["ssl"]
    assert isinstance(trusting, ssl.SSLContext)
    assert trusting.verify_mode is ssl.CERT_NONE
    assert "ssl" not in found("mysql://db.example/shop?ssl=false")


def test_what_only_mariadb_knows_stands_in_its_comment() -> None:
    own, _, comment = session_statements(Settings.of("mysql://db/shop", statement_timeout=7)).partition("/*M!")
    assert "max_statement_time = 7.000" in comment
    assert "max_statement_time" not in own


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1213, ErrorKind.CONFLICT),
        (1205, ErrorKind.HELD),
        (2013, ErrorKind.LOST),
        (1305, ErrorKind.MARK_GONE),
        (1064, None),
    ],
)
def test_an_error_number_has_a_kind(number: int, kind: ErrorKind | None) -> None:
    assert kind_of_number(number) is kind


def test_no_error_number_has_two_kinds() -> None:
    from semel.stores.mysql.errors import _KINDS

    numbers = [number for each in _KINDS.values() for number in each]
    assert len(numbers) == len(set(numbers))


def test_an_error_without_a_number_is_known_by_its_class() -> None:
    assert mysql_error_kind(ConnectionResetError("gone")) is ErrorKind.LOST
    assert mysql_error_kind(ValueError("a bug")) is None


def test_a_command_becomes_one_multi_statement_text() -> None:
    command = Command("UPDATE t SET a = ?", (1,), Command("SELECT ?", (2,)), atomic=True)
    assert to_multi_statement(command) == ("BEGIN; UPDATE t SET a = %s; SELECT %s; COMMIT", (1, 2))


def test_size_is_counted_in_bytes() -> None:
    own = OwnConnection(None, 2)
    own.learn("10.11.18-MariaDB", 64 + 10)
    assert (own.too_large("e" * 10), own.too_large("e" * 11), own.too_large("é" * 6)) == (False, True, True)
    assert not own.waits


class _Connection:
    pass


def test_releasing_a_mark_sets_the_later_ones_again() -> None:
    savepoints, connection = Savepoints(), _Connection()
    for name in ("a", "b", "c"):
        savepoints.note(connection, set_savepoint(name))
    released = savepoints.note(connection, assert_savepoint("a"))
    assert released == Command("RELEASE SAVEPOINT a", (), Command("SAVEPOINT b", (), Command("SAVEPOINT c")))
    assert savepoints.note(connection, assert_savepoint("c")) == assert_savepoint("c")
    assert savepoints.note(connection, assert_savepoint("b")) == assert_savepoint("b")


def test_marks_of_another_connection_are_its_own() -> None:
    savepoints, one, other = Savepoints(), _Connection(), _Connection()
    savepoints.note(one, set_savepoint("a"))
    savepoints.note(other, set_savepoint("b"))
    assert savepoints.note(one, assert_savepoint("a")) == assert_savepoint("a")
