"""What a claim in the caller's transaction tells of a record that it meets: the record as a read tells it."""

from typing import Any

import psycopg
import pytest

from semel import Policy, Semel
from semel.errors import FailedBefore, InDoubt
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow
HOSTILE = bytes(range(256)) + rb"\x00 \\ \000"
"""Every byte, and what means something else in either way of writing bytes."""


class Declined(Exception):
    """A failure that is kept."""


@pytest.fixture
def database(postgresql: Databases) -> str:
    return postgresql.new_database()


@pytest.mark.parametrize("output", ["hex", "escape"])
def test_a_replay_gives_the_very_bytes_however_the_session_writes_them(database: str, output: str) -> None:
    with Semel(database) as semel, psycopg.connect(database) as connection:
        semel.run("k", lambda: HOSTILE, operation="seal", fingerprint=None)
        connection.execute(f"SET bytea_output = {output}")
        with semel.within(connection):
            again = semel.run("k", lambda: b"", operation="seal", fingerprint=None)
    assert (again.replayed, again.value) == (True, HOSTILE)


def test_a_replay_tells_the_record_as_a_read_does(database: str) -> None:
    about: dict[str, Any] = {"subject": 'pati"ent\\n7', "tags": {"kind": "é\u2028"}}
    with Semel(database) as semel, psycopg.connect(database) as connection:
        semel.run("k é", lambda: 1, operation="pay", scope="acme", fingerprint={"a": 1}, about=about)
        with semel.within(connection):
            again = semel.run("k é", lambda: 2, operation="pay", scope="acme", fingerprint={"a": 1})
        assert again.record == semel.read("k é", operation="pay", scope="acme")


def test_a_first_run_tells_the_record_that_was_written(database: str) -> None:
    with Semel(database) as semel, psycopg.connect(database) as connection:
        with semel.within(connection):
            first = semel.run("k", lambda: 1, operation="pay", scope="acme", fingerprint=None, about={"subject": "s"})
        connection.commit()
        found = semel.read("k", operation="pay", scope="acme")
        assert found is not None
        assert first.record == found
        assert [record.key.value for record in semel.records(subject="s", scope="acme")] == ["k"]


def test_a_kept_failure_is_replayed(database: str) -> None:
    def decline() -> None:
        raise Declined("no money \\ left")

    with Semel(database) as semel, psycopg.connect(database) as connection:
        with pytest.raises(Declined):
            semel.run("k", decline, operation="pay", fingerprint=None, policy=Policy(final_errors=(Declined,)))
        with semel.within(connection), pytest.raises(FailedBefore, match=r"no money \\ left"):
            semel.run("k", decline, operation="pay", fingerprint=None, policy=Policy(final_errors=(Declined,)))


def test_a_doubt_on_hold_is_told(database: str) -> None:
    def break_off() -> None:
        raise RuntimeError("gone")

    with Semel(database) as semel, psycopg.connect(database) as connection:
        with pytest.raises(RuntimeError):
            semel.run("k", break_off, operation="pay", fingerprint=None, policy=Policy(in_doubt="hold"))
        with semel.within(connection), pytest.raises(InDoubt):
            semel.run("k", break_off, operation="pay", fingerprint=None, policy=Policy(in_doubt="hold"))
