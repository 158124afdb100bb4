"""What `within` costs a business transaction: two statements, no commit. within.md point 2."""

import sqlite3

import pytest

from tests.within.world import World

pytestmark = pytest.mark.anyio
MARKS = ("SAVEPOINT", "RELEASE", "PRAGMA")


def traced(connection: sqlite3.Connection) -> list[str]:
    """The first word of every statement from now on."""
    words: list[str] = []
    connection.set_trace_callback(lambda text: words.append(text.split(maxsplit=1)[0].upper()))
    return words


def work(words: list[str]) -> list[str]:
    """Without the marks that notice the end of the transaction, and without the look at the name of the file.

    SQLite has no transaction id, so a savepoint stands in for it (point 5); it costs no read and no write.
    """
    return [word for word in words if word not in MARKS]


async def nothing() -> str:
    return "done"


async def test_a_first_run_adds_two_statements_and_no_commit(world: World) -> None:
    connection = world.connect()
    connection.execute("BEGIN")
    words = traced(connection)
    await world.call(connection, "o-1", nothing)
    assert work(words) == ["INSERT", "UPDATE"]
    assert connection.in_transaction


async def test_the_marks_are_one_savepoint_and_its_release(world: World) -> None:
    connection = world.connect()
    connection.execute("BEGIN")
    words = traced(connection)
    await world.call(connection, "o-1", nothing)
    assert [word for word in words if word in MARKS[:2]] == ["SAVEPOINT", "RELEASE"]


async def test_the_file_is_looked_at_once_per_within(world: World) -> None:
    connection = world.connect()
    words = traced(connection)

    async def body() -> None:
        for number in range(5):
            await world.run(f"o-{number}", nothing)

    await world.inside(connection, body)
    assert words.count("PRAGMA") == 1


async def test_the_only_begin_is_the_one_of_sqlite3_itself(world: World) -> None:
    connection = world.connect()
    words = traced(connection)
    await world.call(connection, "o-1", nothing)
    assert [word for word in words if word not in (*MARKS, "INSERT", "UPDATE")] == ["BEGIN"]


async def test_a_replay_reads_and_changes_nothing(world: World) -> None:
    connection = world.connect()
    await world.call(connection, "o-1", nothing)
    connection.commit()
    before = connection.total_changes
    words = traced(connection)
    await world.call(connection, "o-1", nothing)
    assert connection.total_changes == before
    assert set(work(words)) <= {"BEGIN", "INSERT", "SELECT"}
    assert not {"SAVEPOINT", "UPDATE", "DELETE", "COMMIT", "ROLLBACK"} & set(words)


async def test_a_replay_is_one_refused_write_and_one_look(world: World) -> None:
    """DESIGN section 9 says one statement. On SQLite the refused INSERT gives no row back, so a SELECT follows it.

    Looking first would fix what the caller's transaction can see, and its first write could then fail for good
    (BUSY_SNAPSHOT); an INSERT that always gives a row back would have to write one. There is no round trip to save.
    """
    connection = world.connect()
    await world.call(connection, "o-1", nothing)
    connection.commit()
    connection.execute("BEGIN")
    words = traced(connection)
    await world.call(connection, "o-1", nothing)
    assert work(words) == ["INSERT", "SELECT"]
