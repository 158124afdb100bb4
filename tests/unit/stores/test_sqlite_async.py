"""The async driver: loops never wait for the disk, and a caller who is gone breaks nothing."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from semel.core.operations import Complete, Found, Granted, Operation, Page, Query, Read, Recorded, Replay, Scan
from semel.core.store import Answers, Plan
from semel.errors import StoreMisconfigured
from semel.stores.sqlite import SqliteStore, database
from semel.stores.sqlite.driver import AsyncSqliteDriver
from tests.unit.stores.kit import Asker, connected
from tests.unit.stores.operations import KEYS, Clock, claim


async def ask(store: SqliteStore, driver: AsyncSqliteDriver, operations: Sequence[Operation]) -> Answers:
    (reply,) = await driver.perform([store.plan(operations, joined=False)])
    if isinstance(reply, Exception):
        raise reply
    return reply


def test_a_life_of_a_record(path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(path, clock=Clock())
        driver = store.async_driver()
        (granted,) = await ask(store, driver, [claim()])
        assert isinstance(granted, Granted)
        assert isinstance((await ask(store, driver, [Complete(granted.lease, b"done")]))[0], Recorded)
        (replay,) = await ask(store, driver, [claim(number=2)])
        assert isinstance(replay, Replay)
        (page,) = await ask(store, driver, [Scan(Query(), None, 10)])
        assert page == Page((replay.record,), None)
        await driver.close()

    asyncio.run(main())
    assert (str(path), "FULL") not in database._process.open
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("semel writer")]


def test_reading_needs_no_thread_once_the_file_is_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = SqliteStore(path)
        driver = store.async_driver()
        await ask(store, driver, [Read(KEYS[0].digest)])
        held = driver._database()
        monkeypatch.setattr(held.worker, "submit", None)
        assert isinstance((await ask(store, driver, [Read(KEYS[0].digest)]))[0], Found)
        monkeypatch.undo()
        await driver.close()

    asyncio.run(main())


def test_the_loop_goes_on_while_a_write_waits_for_the_lock(path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(path)
        driver = store.async_driver()
        await ask(store, driver, [Read(KEYS[0].digest)])
        with connected(path, None) as rival:
            rival.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(ask(store, driver, [claim()]))
            for _ in range(5):
                await asyncio.sleep(0)
            assert isinstance((await ask(store, driver, [Read(KEYS[0].digest)]))[0], Found)
            assert not waiting.done()
            rival.execute("COMMIT")
            assert isinstance((await waiting)[0], Granted)
        await driver.close()

    asyncio.run(main())


def test_the_round_of_a_cancelled_caller_goes_on(path: Path) -> None:
    async def main() -> None:
        entered, leave = threading.Event(), threading.Event()

        def clock() -> int:
            if threading.current_thread() is not threading.main_thread():
                entered.set()
                leave.wait()
            return 1_700_000_000_000_000

        leave.set()
        store = SqliteStore(path, clock=clock)
        driver = store.async_driver()
        await ask(store, driver, [Read(KEYS[0].digest)])
        leave.clear()
        entered.clear()
        task = asyncio.create_task(ask(store, driver, [claim()]))
        await asyncio.to_thread(entered.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        leave.set()
        (second,) = await ask(store, driver, [claim(KEYS[1], number=2)])
        assert isinstance(second, Granted)
        (found,) = await ask(store, driver, [Read(KEYS[0].digest)])
        assert isinstance(found, Found)
        assert found.record is not None
        await driver.close()

    asyncio.run(main())


def test_the_round_of_a_closed_loop_goes_on(path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()
    leave.set()

    def clock() -> int:
        if threading.current_thread().name.startswith("semel writer"):
            entered.set()
            leave.wait()
        return 1_700_000_000_000_000

    store = SqliteStore(path, clock=clock)
    driver = store.async_driver()

    async def abandon() -> None:
        await ask(store, driver, [Read(KEYS[0].digest)])
        leave.clear()
        entered.clear()
        task = asyncio.create_task(ask(store, driver, [claim()]))
        await asyncio.to_thread(entered.wait)
        del task

    asyncio.run(abandon())
    leave.set()

    async def look() -> None:
        await ask(store, driver, [claim(KEYS[1], number=2)])  # through the writer, so after the one before
        (found,) = await ask(store, driver, [Read(KEYS[0].digest)])
        assert isinstance(found, Found)
        assert found.record is not None
        await driver.close()

    asyncio.run(look())


def test_two_loops_share_one_writer_thread(path: Path) -> None:
    store = SqliteStore(path)
    driver = store.async_driver()
    together = threading.Barrier(2)
    granted: list[bytes] = []

    async def work(number: int) -> None:
        together.wait()
        for index in range(20):
            key = KEYS[index % 3]
            (answer,) = await ask(store, driver, [claim(key, number=number * 100 + index)])
            if isinstance(answer, Granted):
                granted.append(key.digest)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writers = [thread for thread in threading.enumerate() if thread.name.startswith("semel writer")]
    asyncio.run(driver.close())
    assert len(writers) == 1
    assert sorted(granted) == sorted(key.digest for key in KEYS)


def test_both_colours_share_one_writer(path: Path) -> None:
    store = SqliteStore(path, clock=Clock())
    asker = Asker(store, Clock())

    async def main() -> None:
        driver = store.async_driver()
        await ask(store, driver, [claim()])
        assert asker.record() is not None
        assert driver._database() is asker.driver._database()
        await driver.close()

    asyncio.run(main())
    assert asker.record() is not None
    asker.driver.close()


def test_a_store_that_cannot_be_opened_is_the_reply(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "missing" / "semel.db")
        driver = store.async_driver()
        plans: list[Plan] = [store.plan([claim()], joined=False), store.plan([Read(b"x")], joined=False)]
        assert [type(reply) for reply in await driver.perform(plans)] == [StoreMisconfigured] * 2
        await driver.close()

    asyncio.run(main())


def test_a_callers_connection_is_joined_where_it_is(path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(path, clock=Clock())
        with connected(path) as connection:
            connection.execute("CREATE TABLE orders (id TEXT)")
            joined = store.async_join(connection)
            (granted,) = await joined.perform(store.plan([claim()], joined=True))
            assert isinstance(granted, Granted)
            await joined.perform(store.plan([Complete(granted.lease, b"done")], joined=True))
            connection.commit()
        driver = store.async_driver()
        assert isinstance((await ask(store, driver, [claim(number=2)]))[0], Replay)
        await driver.close()

    asyncio.run(main())
