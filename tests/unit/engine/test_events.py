"""What an observer is told: one event per call, in words that fit what became of the record."""

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import About, AsyncSemel, Key, Policy, Semel
from semel.core.fingerprint import fingerprint
from semel.core.observer import Signal
from semel.core.operations import Claim
from semel.engine.call_flow import terms_of
from semel.errors import FailedBefore, InDoubt, InProgress, KeyReused, ResultNotKept
from semel.stores.cache import Cache
from semel.stores.memory import MemoryStore
from semel.testing import VirtualClock

FINAL = Policy(final_errors=(ValueError,))
RETRY = Policy(retry_errors=(ConnectionError,))
HOLD = Policy(in_doubt="hold")


class Ears:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.events: list[Signal] = []

    def observe(self, event: Signal) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def semel(ears: Ears) -> Semel:
    return Semel(MemoryStore(), observer=ears)


def raising(error: BaseException) -> Any:
    def handler() -> None:
        raise error

    return handler


def attempt(semel: Semel, error: BaseException, policy: Policy | None = None) -> None:
    with pytest.raises(type(error)):
        semel.run("k", raising(error), operation="pay", fingerprint=None, policy=policy)


def test_a_run_and_a_replay(semel: Semel, ears: Ears) -> None:
    semel.run("k", lambda: 1, operation="pay", fingerprint=None)
    semel.run("k", lambda: 1, operation="pay", fingerprint=None)
    assert ears.kinds == ["ran", "replayed"]


def test_a_final_failure_and_its_replay(semel: Semel, ears: Ears) -> None:
    attempt(semel, ValueError(), FINAL)
    with pytest.raises(FailedBefore):
        semel.run("k", lambda: 1, operation="pay", fingerprint=None, policy=FINAL)
    assert ears.kinds == ["failed", "replayed"]


def test_a_retryable_failure(semel: Semel, ears: Ears) -> None:
    attempt(semel, ConnectionError(), RETRY)
    assert ears.kinds == ["failed"]


def test_a_retryable_failure_of_what_is_in_doubt(semel: Semel, ears: Ears) -> None:
    attempt(semel, OSError(), RETRY)
    attempt(semel, ConnectionError(), RETRY)
    assert ears.kinds == ["in_doubt", "in_doubt"]


def test_any_other_error(semel: Semel, ears: Ears) -> None:
    attempt(semel, OSError())
    assert ears.kinds == ["in_doubt"]


def test_the_last_error_of_all_attempts(semel: Semel, ears: Ears) -> None:
    attempt(semel, OSError(), Policy(max_attempts=1))
    assert ears.kinds == ["failed"]


def test_an_interrupt(semel: Semel, ears: Ears) -> None:
    attempt(semel, KeyboardInterrupt())
    assert ears.kinds == ["in_doubt"]


def test_meeting_a_doubt_that_is_held(semel: Semel, ears: Ears) -> None:
    attempt(semel, OSError(), HOLD)
    with pytest.raises(InDoubt):
        semel.run("k", lambda: 1, operation="pay", fingerprint=None, policy=HOLD)
    assert ears.kinds == ["in_doubt", "in_doubt"]


def test_another_request_under_the_same_key(semel: Semel, ears: Ears) -> None:
    semel.run("k", lambda: 1, operation="pay", fingerprint=1)
    with pytest.raises(KeyReused):
        semel.run("k", lambda: 1, operation="pay", fingerprint=2)
    assert ears.kinds == ["ran", "reused"]


def test_a_tombstone(semel: Semel, ears: Ears) -> None:
    semel.run("k", object, operation="pay", fingerprint=None, returns=Any)
    with pytest.raises(ResultNotKept):
        semel.run("k", object, operation="pay", fingerprint=None, returns=Any)
    assert ears.kinds == ["not_kept", "ran", "replayed"]


def test_a_rejected_duplicate(ears: Ears) -> None:
    store = MemoryStore()
    key = Key.of("k", operation="pay")
    store.apply([Claim(key, fingerprint(None), b"somebody else", terms_of(Policy()), About())])
    with pytest.raises(InProgress):
        Semel(store, observer=ears).run(
            "k", lambda: 1, operation="pay", fingerprint=None, policy=Policy(when_running="reject")
        )
    assert ears.kinds == ["waited"]


def test_a_caller_that_is_cancelled_while_waiting_leaves_no_event(ears: Ears) -> None:
    async def play() -> None:
        async with AsyncSemel(MemoryStore(), observer=ears) as semel:
            goes_on = asyncio.Event()

            async def handler() -> None:
                await goes_on.wait()

            owner = asyncio.create_task(semel.run("k", handler, operation="pay", fingerprint=None))
            await asyncio.sleep(0)
            waiter = asyncio.create_task(semel.run("k", handler, operation="pay", fingerprint=None))
            await asyncio.sleep(0)
            waiter.cancel()
            await asyncio.wait([waiter])
            goes_on.set()
            await owner

    asyncio.run(play())
    assert ears.kinds == ["ran"]


def test_a_cancelled_handler(ears: Ears) -> None:
    async def play() -> None:
        async with AsyncSemel(MemoryStore(), observer=ears) as semel:

            async def handler() -> None:
                await asyncio.Event().wait()

            call = asyncio.create_task(semel.run("k", handler, operation="pay", fingerprint=None))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])

    asyncio.run(play())
    assert ears.kinds == ["in_doubt"]


def test_an_event_names_the_record_and_not_the_key(semel: Semel, ears: Ears) -> None:
    record = semel.run("ada@example.org", lambda: 1, operation="pay", fingerprint=None).record
    assert record is not None
    assert ears.events[0].reference == record.reference
    assert "ada" not in repr(ears.events)


def test_an_observer_that_raises_does_not_disturb(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def observe(self, event: Signal) -> None:
            raise RuntimeError

    semel = Semel(MemoryStore(), observer=Broken(), policy=Policy(keep_for=timedelta(hours=1)))
    assert semel.run("k", lambda: 1, operation="pay", fingerprint=None).value == 1
    assert "observer failed" in caplog.text


class Opaque:
    """Something that cannot be kept."""


def undeclared():  # type: ignore[no-untyped-def]  # noqa: ANN201 - that nothing is declared is the point
    return Opaque()


def test_a_result_that_cannot_be_kept_is_told_at_the_first_call(semel: Semel, ears: Ears) -> None:
    semel.run("k", undeclared, operation="pay", fingerprint=None)
    assert ears.kinds == ["not_kept", "ran"]
    told = ears.events[0]
    assert (told.operation, told.reference) == ("pay", Key.of("k", operation="pay").reference)
    assert "cannot be encoded" in told.detail
    assert "ResultNotKept" in told.detail
    assert "Declare" in told.detail


def test_a_result_that_cannot_be_kept_is_told_once_for_each_operation(semel: Semel, ears: Ears) -> None:
    for key, operation in (("a", "pay"), ("b", "pay"), ("a", "refund")):
        semel.run(key, undeclared, operation=operation, fingerprint=None)
    assert ears.kinds == ["not_kept", "ran", "ran", "not_kept", "ran"]


def test_a_result_that_is_too_large_is_told(semel: Semel, ears: Ears) -> None:
    semel.run("k", lambda: "x" * 100, operation="pay", fingerprint=None, policy=Policy(max_result=50))
    assert ears.kinds == ["not_kept", "ran"]
    assert "max_result=50" in ears.events[0].detail


def test_an_awaited_result_that_cannot_be_kept_is_told(ears: Ears) -> None:
    async def main() -> None:
        async with AsyncSemel(MemoryStore(), observer=ears) as semel:

            @semel.once(key="order", operation="pay")
            async def pay(order: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as above
                return Opaque()

            await pay("o-1")
            await pay("o-2")

    asyncio.run(main())
    assert ears.kinds == ["not_kept", "ran", "ran"]


def test_without_an_observer_a_result_that_cannot_be_kept_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    Semel(MemoryStore()).run("k", undeclared, operation="pay", fingerprint=None)
    assert [(record.levelname, record.getMessage().split()[:2]) for record in caplog.records] == [
        ("WARNING", ["not_kept", "pay"])
    ]


def booking(connection: sqlite3.Connection, *, commits: bool) -> None:
    if commits:
        connection.commit()
    raise RuntimeError


@pytest.mark.parametrize(("commits", "kind"), [(False, "failed"), (True, "in_doubt")])
def test_an_error_inside_a_transaction_is_a_doubt_only_where_the_handler_has_ended_that(
    tmp_path: Path, ears: Ears, commits: bool, kind: str
) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    with Semel(f"sqlite:///{tmp_path / 'shop.db'}", observer=ears) as semel, pytest.raises(RuntimeError):
        semel.within(connection).run(
            "k", lambda: booking(connection, commits=commits), operation="book", fingerprint=None
        )
    connection.close()
    assert ears.kinds == [kind]


def test_the_time_of_the_handler_is_told_apart_from_that_of_the_call(ears: Ears) -> None:
    clock = VirtualClock()
    store = MemoryStore(clock=clock.store_clock)
    with Semel(store, observer=ears, clock=clock) as semel:
        semel.run("k", lambda: clock.advance(2), operation="pay", fingerprint=None)
        semel.run("k", lambda: clock.advance(2), operation="pay", fingerprint=None)
    assert [(event.kind, event.handler_seconds) for event in ears.events] == [("ran", 2.0), ("replayed", None)]


def test_the_time_of_a_handler_that_failed_is_told(ears: Ears) -> None:
    clock = VirtualClock()

    def late() -> None:
        clock.advance(3)
        raise ValueError("declined")

    semel = Semel(MemoryStore(clock=clock.store_clock), observer=ears, clock=clock)
    with semel, pytest.raises(ValueError, match="declined"):
        semel.run("k", late, operation="pay", fingerprint=None, policy=FINAL)
    assert [(event.kind, event.handler_seconds) for event in ears.events] == [("failed", 3.0)]


def test_a_replay_says_which_tier_it_came_from(ears: Ears) -> None:
    with Semel("memory://", observer=ears, cache=Cache(local=10)) as semel:
        for _ in range(3):
            semel.run("k", lambda: 7, operation="pay", fingerprint=None)
    told = [(event.kind, event.tier) for event in ears.events if event.kind in ("ran", "replayed")]
    assert told == [("ran", None), ("replayed", "store"), ("replayed", "process")]


def test_a_signal_names_the_process_instance_of_its_operation(semel: Semel, ears: Ears) -> None:
    about = About(process_instance="proc-1")
    semel.run("k", lambda: 1, operation="pay", fingerprint=None, about=about)
    semel.run("k2", lambda: 1, operation="pay", fingerprint=None)
    assert [event.process_instance for event in ears.events] == ["proc-1", None]
