"""Which connections can be joined, and that nothing about them is changed. within.md point 6 and the table."""

import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from semel.errors import NotInTransaction, SemelError, UsageError
from tests.within.world import World

pytestmark = pytest.mark.anyio


async def test_a_fresh_default_connection_begins_by_itself(world: World) -> None:
    connection = world.connect()
    assert not connection.in_transaction
    await world.call(connection, "o-1", world.effect(connection))
    assert connection.in_transaction
    assert world.statuses() == []


@pytest.mark.parametrize("level", ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
async def test_every_isolation_level_that_begins_by_itself_is_fine(world: World, level: str) -> None:
    connection = world.connect(isolation_level=level)
    await world.call(connection, "o-1", world.effect(connection))
    connection.rollback()
    assert world.statuses() == []


@pytest.mark.parametrize("beginning", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT outer"])
async def test_an_autocommit_connection_with_an_open_transaction_is_fine(world: World, beginning: str) -> None:
    connection = world.connect(isolation_level=None)
    connection.execute(beginning)
    await world.call(connection, "o-1", world.effect(connection))
    assert world.statuses() == []
    connection.execute("COMMIT")
    assert (world.rows(), world.statuses()) == (["charged"], ["completed"])


async def test_an_autocommit_connection_without_one_is_refused(world: World) -> None:
    connection = world.connect(isolation_level=None)
    with pytest.raises(NotInTransaction, match="BEGIN"):
        await world.call(connection, "o-1", world.effect(connection))
    assert (world.runs, world.statuses()) == ([], [])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 knows autocommit= since Python 3.12")
@pytest.mark.parametrize(("autocommit", "fine"), [(True, False), (False, True)])
async def test_the_autocommit_attribute_is_respected(world: World, autocommit: bool, fine: bool) -> None:
    connection = world.connect(autocommit=autocommit)
    if not fine:
        with pytest.raises(NotInTransaction):
            await world.call(connection, "o-1", world.effect(connection))
        assert world.runs == []
        return
    await world.call(connection, "o-1", world.effect(connection))
    connection.rollback()
    assert world.statuses() == []


async def test_another_database_is_refused(world: World, tmp_path: Path) -> None:
    other = world.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE effect (name TEXT)")
    with pytest.raises(NotInTransaction, match="other"):
        await world.call(other, "o-1", world.effect(other))
    assert world.runs == []


async def test_a_copy_of_the_database_is_refused(world: World, tmp_path: Path) -> None:
    """It has the same tables and the same install id; it is another file all the same."""
    await world.run("o-0", world.effect(world.connect(isolation_level=None)))
    before = len(world.runs)
    source = world.connect()
    copy = world.connect(tmp_path / "copy.db")
    source.backup(copy)
    with pytest.raises(NotInTransaction):
        await world.call(copy, "o-1", world.effect(copy))
    assert len(world.runs) == before


async def test_a_database_with_other_semel_tables_is_refused(world: World, tmp_path: Path) -> None:
    other = world.engine(tmp_path / "other.db")
    connection = world.connect(tmp_path / "other.db")
    await world.call(connection, "o-0", world.nothing, semel=other)
    connection.commit()
    with pytest.raises(NotInTransaction):
        await world.call(connection, "o-1", world.nothing)
    await world.close_engine(other)


async def test_a_database_in_memory_is_refused(world: World) -> None:
    with pytest.raises(NotInTransaction, match="memory"):
        await world.call(world.connect(":memory:"), "o-1", world.nothing)


async def test_a_database_without_the_tables_is_refused(world: World, tmp_path: Path) -> None:
    empty = world.connect(tmp_path / "empty.db")
    empty.execute("BEGIN")
    with pytest.raises(NotInTransaction):
        await world.call(empty, "o-1", world.nothing)
    assert empty.in_transaction


async def test_the_same_file_by_another_name_is_fine(world: World, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere"
    link.symlink_to(tmp_path, target_is_directory=True)
    connection = world.connect(link / "semel.db")
    await world.call(connection, "o-1", world.effect(connection))
    connection.commit()
    assert world.statuses() == ["completed"]


@pytest.mark.parametrize("thing", [None, "semel.db", object()])
async def test_what_is_no_connection_is_refused(world: World, thing: Any) -> None:
    with pytest.raises(UsageError, match=r"sqlite3\.Connection"):
        await world.call(thing, "o-1", world.nothing)


async def test_a_closed_connection_is_refused(world: World) -> None:
    connection = world.connect()
    connection.close()
    with pytest.raises(NotInTransaction):
        await world.call(connection, "o-1", world.nothing)


async def test_a_connection_of_another_thread_is_refused(world: World) -> None:
    made: list[sqlite3.Connection] = []
    thread = threading.Thread(target=lambda: made.append(world.connect()))
    thread.start()
    thread.join()
    with pytest.raises(SemelError):
        await world.call(made[0], "o-1", world.nothing)
    assert world.statuses() == []
    made.clear()


async def test_the_settings_of_the_caller_are_neither_used_nor_changed(world: World) -> None:
    """Row factory, text factory and converters are the caller's; semel reads its own rows in spite of them."""
    connection = world.connect(detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
    connection.row_factory = lambda cursor, row: {"made": row}
    connection.text_factory = bytes
    before = (connection.row_factory, connection.text_factory, connection.isolation_level)
    await world.call(connection, "o-1", world.effect(connection))
    connection.commit()
    assert (await world.call(connection, "o-1", world.effect(connection))).value == "charged"
    assert (connection.row_factory, connection.text_factory, connection.isolation_level) == before
    assert connection.execute("SELECT name FROM effect").fetchone() == {"made": (b"charged",)}


async def test_a_connection_of_a_subclass_is_fine(world: World) -> None:
    class Mine(sqlite3.Connection):
        def cursor(self, *args: Any, **kwargs: Any) -> Any:
            message = "semel uses cursors of its own"
            raise AssertionError(message)

    connection = world.connect(factory=Mine)

    async def handler() -> str:
        return "done"

    await world.call(connection, "o-1", handler)
    connection.commit()
    assert world.statuses() == ["completed"]


async def test_the_file_may_be_new(world: World, tmp_path: Path) -> None:
    """`within` on a file that nobody has set up: it is set up first, before the transaction takes the lock."""
    path = tmp_path / "new.db"
    engine = world.engine(path)
    connection = world.connect(path)
    assert (await world.call(connection, "o-1", world.nothing, semel=engine)).value == "done"
    connection.commit()
    await world.close_engine(engine)
