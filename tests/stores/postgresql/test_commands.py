"""The commands for operators on PostgreSQL, as they are typed."""

from collections.abc import Callable

import pytest

from semel import Semel
from semel.cli import main
from semel.errors import InDoubt
from tests.stores.postgresql.kit import rows

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_migrate_says_what_it_did(url: str, call: Call) -> None:
    assert "applied 0001" in call("migrate", url)[1]
    assert "up to date" in call("migrate", url)[1]
    assert call("migrate", url, "--sql")[1] == "-- Nothing is pending.\n"
    assert "semel_search_status" in call("migrate", url, "--search")[1]


def test_looking_never_creates_the_tables(url: str, call: Call) -> None:
    code, _, said = call("list", url)
    assert code == 1
    assert "semel migrate" in said
    assert rows(url, "SELECT to_regclass('semel_record')") == [(None,)]


def test_a_restored_store_holds_until_the_mark_is_taken_away(url: str, call: Call) -> None:
    call("migrate", url)
    assert call("restored", url, "--at", "1h", "--for", "24h")[0] == 0
    with Semel(url) as semel, pytest.raises(InDoubt):
        semel.run("o-1", lambda: None, operation="charge", fingerprint=None)
    assert "semel.Restored" in call("show", "o-1", url, "--operation", "charge")[1]
    assert "the mark is gone" in call("restored", url, "--end")[1]
    assert "there is no mark" in call("restored", url, "--end")[1]
    with Semel(url) as semel:
        semel.run("o-2", lambda: None, operation="charge", fingerprint=None)


def test_a_password_is_not_printed(url: str, call: Call) -> None:
    with_password = url.replace("semel@", "semel:hunter2@")
    for arguments in (["migrate"], ["doctor"], ["restored", "--end"]):
        _, out, err = call(arguments[0], with_password, *arguments[1:])
        assert "hunter2" not in out + err
