"""What `within` costs a business transaction, as the server's own log has it. within.md point 2."""

import re
from inspect import isawaitable
from pathlib import Path

import pytest

from semel.events import Event, Outbox
from tests.servers.databases import Databases
from tests.within.servers.callers import Caller
from tests.within.servers.world import OnServer, on_postgresql

pytestmark = pytest.mark.anyio


class Log:
    """What the server was asked on one connection, from now on."""

    def __init__(self, path: Path, process: int) -> None:
        self._path = path
        self._pattern = re.compile(rf"\[{process}\] \S+ LOG:  (?:statement|execute [^:]*): (\w+)")
        self._before = len(self.words())

    def words(self) -> list[str]:
        """The first word of every statement so far."""
        return self._pattern.findall(self._path.read_text(encoding="utf-8"))

    def new(self) -> list[str]:
        """Those since this was made."""
        return self.words()[self._before :]


async def logged(caller: Caller, postgresql: Databases) -> Log:
    if postgresql.statement_log is None:
        pytest.skip("the log of a server that is not ours cannot be read")
    await caller.sql("SET log_statement = 'all'")
    process = await caller.sql("SELECT pg_backend_pid()")
    return Log(postgresql.statement_log, process[0][0])


@on_postgresql
async def test_a_first_run_adds_two_statements_and_neither_commit_nor_savepoint(
    world: OnServer, postgresql: Databases
) -> None:
    caller = await world.begun()
    await world.read("to know the store", semel=world.semel)
    log = await logged(caller, postgresql)
    await world.call(caller.thing, "o-1", world.nothing)
    assert log.new() == ["WITH", "UPDATE"]


@on_postgresql
async def test_events_of_a_handler_are_written_by_the_statement_that_completes_it(
    world: OnServer, postgresql: Databases
) -> None:
    outbox = Outbox(world.semel)

    async def place() -> None:
        for name in ("placed", "reserved", "charged"):
            added = outbox.add(Event(type="order", source="/shop"), name=name)
            if isawaitable(added):
                await added

    caller = await world.begun()
    await world.call(caller.thing, "o-1", place)  # asyncpg asks once on each connection what an array is
    log = await logged(caller, postgresql)
    await world.call(caller.thing, "o-2", place)
    assert log.new() == ["WITH", "WITH"], "the second one is the completion with its events"
    assert await caller.sql("SELECT count(*) FROM semel_outbox") == [(6,)]


@on_postgresql
async def test_a_replay_is_one_statement(world: OnServer, postgresql: Databases) -> None:
    await world.run("o-1", world.nothing)
    caller = await world.begun()
    log = await logged(caller, postgresql)
    assert (await world.call(caller.thing, "o-1", world.nothing)).replayed
    assert log.new() == ["WITH"]


@on_postgresql
async def test_a_replay_writes_nothing(world: OnServer) -> None:
    """Not even the transaction gets an id, which is what makes a commit cost a flush."""
    await world.run("o-1", world.nothing)
    caller = await world.begun()
    await world.call(caller.thing, "o-1", world.nothing)
    assert await caller.sql("SELECT pg_current_xact_id_if_assigned()::text") == [(None,)]


@on_postgresql
async def test_a_refused_duplicate_is_one_statement(world: OnServer, postgresql: Databases) -> None:
    from semel.errors import InProgress
    from tests.within.world import REJECT

    first, second = await world.begun(), await world.begun()
    await world.call(first.thing, "o-1", world.nothing)
    log = await logged(second, postgresql)
    with pytest.raises(InProgress):
        await world.call(second.thing, "o-1", world.nothing, policy=REJECT)
    assert log.new() == ["WITH"]


@on_postgresql
async def test_the_store_is_asked_which_database_it_is_once(world: OnServer, postgresql: Databases) -> None:
    """Point 6: on a connection of its own; the caller's carries nothing but the two statements."""
    caller = await world.begun()
    log = await logged(caller, postgresql)

    async def body() -> None:
        for number in range(3):
            await world.run(f"o-{number}", world.nothing)

    await world.inside(caller.thing, body)
    assert log.new() == ["WITH", "UPDATE"] * 3
