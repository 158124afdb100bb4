"""The test kit as users have it: fixtures with both clocks, engines put on another store, and handlers that crash."""

import asyncio
import os
import subprocess
import sys
import threading
import tomllib
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.engine.engine import engine_of
from semel.errors import InProgress, UsageError
from semel.stores.memory import MemoryStore
from semel.stores.sqlite import SqliteStore
from semel.testing import Crash, crash, override
from semel.testing.clock import VirtualClock

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock=clock.store_clock)


def make_sync(store: Any) -> Any:
    semel = Semel(store)
    ran: list[str] = []

    @semel.once(key="order", operation="charge", when_running="reject", keep_for=timedelta(days=1))
    def charge(order: str) -> str:
        ran.append(order)
        if order == "crashes" and len(ran) == 1:
            crash()
        return f"receipt {len(ran)}"

    return semel, charge, ran


def make_async(store: Any) -> Any:
    semel = AsyncSemel(store)
    ran: list[str] = []

    @semel.once(key="order", operation="charge", when_running="reject", keep_for=timedelta(days=1))
    async def charge(order: str) -> str:
        ran.append(order)
        if order == "crashes" and len(ran) == 1:
            crash()
        return f"receipt {len(ran)}"

    def call(order: str) -> str:
        return asyncio.run(charge(order))

    return semel, call, ran


KINDS = pytest.mark.parametrize("make", [make_sync, make_async])


@KINDS
def test_an_overridden_engine_uses_the_store_of_the_test_and_then_its_own_again(
    make: Any, store: MemoryStore, clock: VirtualClock, tmp_path: Path
) -> None:
    semel, charge, ran = make(SqliteStore(tmp_path / "semel.db"))
    own = engine_of(semel).store
    assert charge("o-1") == "receipt 1"
    with override(semel, store, clock=clock):
        assert charge("o-1") == "receipt 2"
        assert charge("o-1") == "receipt 2"
        assert len(store.table.records) == 1
    assert charge("o-1") == "receipt 1"
    assert engine_of(semel).store is own
    assert ran == ["o-1", "o-1"]


@KINDS
def test_an_override_is_taken_back_after_an_error(make: Any, store: MemoryStore) -> None:
    semel, _, _ = make("memory://")
    own, clock = engine_of(semel).store, engine_of(semel).clock
    with pytest.raises(ZeroDivisionError), override(semel, store):
        raise ZeroDivisionError
    assert (engine_of(semel).store, engine_of(semel).clock) == (own, clock)


@KINDS
def test_time_passes_for_an_overridden_engine_as_the_clock_says(
    make: Any, store: MemoryStore, clock: VirtualClock
) -> None:
    semel, charge, _ = make("memory://")
    with override(semel, store, clock=clock):
        assert charge("o-1") == "receipt 1"
        clock.advance(timedelta(days=1).total_seconds() - 1)
        assert charge("o-1") == "receipt 1"
        clock.advance(1)
        assert charge("o-1") == "receipt 2"


@KINDS
def test_an_override_may_be_a_url(make: Any) -> None:
    semel, charge, _ = make("sqlite:////nowhere/at/all.db")
    with override(semel, "memory://"):
        assert charge("o-1") == "receipt 1"


def test_an_override_inside_a_running_loop_is_awaited(store: MemoryStore, clock: VirtualClock) -> None:
    semel = AsyncSemel("memory://")

    async def play() -> int:
        async with override(semel, store, clock=clock):
            await semel.run("o-1", _nothing, operation="o", fingerprint=None)
        return len(asyncio.all_tasks())

    assert asyncio.run(play()) == 1
    assert len(store.table.records) == 1


@KINDS
def test_an_override_leaves_no_thread_behind(make: Any, store: MemoryStore, clock: VirtualClock) -> None:
    semel, charge, _ = make("memory://")
    before = set(threading.enumerate())
    with override(semel, store, clock=clock):
        charge("o-1")
    assert set(threading.enumerate()) <= before


async def _nothing() -> None:
    """A handler."""


def test_an_override_of_something_else_is_refused(store: MemoryStore) -> None:
    with pytest.raises(UsageError, match="nothing was overridden"), override(object(), store):  # type: ignore[arg-type]
        pass


@KINDS
def test_a_crash_leaves_the_record_as_a_killed_process_would(
    make: Any, store: MemoryStore, clock: VirtualClock
) -> None:
    semel, charge, ran = make("memory://")
    with override(semel, store, clock=clock):
        with pytest.raises(Crash):
            charge("crashes")
        [record] = store.table.records.values()
        assert (record.status, record.attempts) == ("running", 1)
        with pytest.raises(InProgress):  # nobody can know yet that it is dead
            charge("crashes")
        clock.advance(31)
        assert charge("crashes") == "receipt 2"
    assert ran == ["crashes", "crashes"]


@KINDS
def test_after_a_crash_nothing_renews_the_lease(make: Any, store: MemoryStore, clock: VirtualClock) -> None:
    semel, charge, _ = make("memory://")
    with override(semel, store, clock=clock):
        with pytest.raises(Crash):
            charge("crashes")
        [record] = store.table.records.values()
        until = record.lease_us
        for _ in range(3):
            clock.advance(5)
        [record] = store.table.records.values()
        assert record.lease_us == until


def test_a_crash_in_a_step_keeps_the_steps_before(store: MemoryStore, clock: VirtualClock) -> None:
    semel = Semel(store, clock=clock)
    done: list[str] = []

    def handler() -> str:
        attempt = semel.current()
        attempt.step("reserve", lambda: done.append("reserve"))
        attempt.step("charge", lambda: crash() if "crashed" not in done else None)
        return "receipt"

    with pytest.raises(Crash):
        semel.run("o-1", handler, operation="o", fingerprint=None)
    done.append("crashed")
    clock.advance(31)
    assert semel.run("o-1", handler, operation="o", fingerprint=None).value == "receipt"
    assert done == ["reserve", "crashed"]


def test_a_crash_tells_the_observer_nothing(store: MemoryStore) -> None:
    told: list[str] = []

    class Ears:
        def observe(self, event: Any) -> None:
            told.append(event.kind)

    with pytest.raises(Crash):
        Semel(store, observer=Ears()).run("o-1", crash, operation="o", fingerprint=None)
    assert told == []


def test_no_handler_for_errors_catches_a_crash() -> None:
    assert issubclass(Crash, BaseException)
    assert not issubclass(Crash, Exception)


_USES = """
from datetime import timedelta
from semel import Semel
from semel.engine.engine import engine_of
import shop

def test_a_day_passes(semel_store, semel_clock):
    semel = Semel(semel_store, clock=semel_clock)
    assert not semel.run("k", int, operation="o", fingerprint=None).replayed
    assert semel.run("k", int, operation="o", fingerprint=None).replayed
    semel_clock.advance(timedelta(days=1).total_seconds())
    assert not semel.run("k", int, operation="o", fingerprint=None).replayed

def test_a_module_level_engine_is_put_on_the_store_of_the_test(semel_override, semel_store, semel_clock):
    semel_override(shop.semel)
    shop.charge("o-1")
    assert len(list(shop.semel.records())) == 1
    assert engine_of(shop.semel).store is semel_store
    assert engine_of(shop.semel).clock is semel_clock

def test_the_next_test_begins_with_nothing(semel_override):
    semel_override(shop.semel)
    assert list(shop.semel.records()) == []

def test_and_without_it_the_engine_is_its_own():
    assert engine_of(shop.semel).store.name == "sqlite:////nowhere/semel.db"
"""
_SHOP = """
from semel import Semel

semel = Semel("sqlite:////nowhere/semel.db")

@semel.once(key="order", operation="charge")
def charge(order: str) -> str:
    return "receipt"
"""


def test_the_fixtures_of_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(_USES)
    (tmp_path / "shop.py").write_text(_SHOP)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": f"{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "semel.testing.plugin", "-W", "error", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=100,
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_is_an_entry_point_of_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [module] = project["entry-points"]["pytest11"].values()
    assert import_module(module).semel_clock


def test_the_plugin_costs_those_who_do_not_use_it_nothing() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import semel.testing.plugin; "
        "print(*sorted(m for m in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["semel", "semel.testing", "semel.testing.plugin"]


def test_override_and_crash_need_no_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; from semel.testing import Crash, crash, override"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_two_threads_use_an_overridden_engine(store: MemoryStore) -> None:
    semel, charge, ran = make_sync("memory://")
    with override(semel, store):
        threads = [threading.Thread(target=charge, args=[f"o-{number}"]) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(store.table.records) == len(ran) == 2
