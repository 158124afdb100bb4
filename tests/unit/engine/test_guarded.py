"""A store that does not answer, in both colours: calls are refused at once, runs are recorded, and all goes on."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from semel import AsyncSemel, Capability, Policy, Semel
from semel.core.circuit import Limits
from semel.core.observer import Signal
from semel.core.operations import Claim, Complete
from semel.engine.clock import SystemClock
from semel.errors import KeyReused, StoreUnavailable
from semel.stores.memory import MemoryStore
from semel.testing.contract.instrumented_store import InstrumentedStore

REST = 60.0
LIMITS = Limits(open_after=3, backoff=REST, max_backoff=REST, retry_budget=0)
SILENCE = "The store did not answer, because the test says so."


class Later(SystemClock):
    """The machine's clock, which can be put forward."""

    def __init__(self) -> None:
        self.forward = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.forward


class Ears:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.events: list[Signal] = []

    def observe(self, event: Signal) -> None:
        self.events.append(event)


class Place:
    """An engine of one colour over a store that can be made to fail."""

    def __init__(self, colour: str, *, limits: Limits = LIMITS) -> None:
        self.store = InstrumentedStore(MemoryStore())
        self.clock, self.ears = Later(), Ears()
        self._runner = asyncio.Runner() if colour == "tasks" else None
        make = AsyncSemel if colour == "tasks" else Semel
        self.engine: Any = make(self.store, clock=self.clock, observer=self.ears, limits=limits)

    def run(self, key: str = "k", handler: Callable[[], Any] = lambda: 7, **asked: Any) -> Any:
        """One call, with a plain handler."""
        if self._runner is None:
            return self.engine.run(key, handler, operation="pay", **{"fingerprint": None, **asked})
        return self._runner.run(self.arun(key, handler, **asked))

    async def arun(self, key: str, handler: Callable[[], Any], **asked: Any) -> Any:
        """The same as a coroutine; what the handler gives is awaited where it can be."""

        async def call() -> Any:
            value = handler()
            return await value if asyncio.iscoroutine(value) else value

        return await self.engine.run(key, call, operation="pay", **{"fingerprint": None, **asked})

    def error(self, key: str = "k") -> StoreUnavailable:
        """The error of one call."""
        with pytest.raises(StoreUnavailable) as caught:
            self.run(key)
        return caught.value

    def give_up(self) -> None:
        """Have the store fail until it is left alone."""
        self.store.refuse(Claim)
        for number in range(LIMITS.open_after):
            self.error(f"failing {number}")

    def end(self) -> None:
        """Let go of what the engine holds; it may be used again."""
        if self._runner is None:
            self.engine.close()
        else:
            self._runner.run(self.engine.close())

    def new_loop(self) -> None:
        """Go on in another event loop, where there is one; the engine is not closed before."""
        if self._runner is not None:
            self._runner.close()
            self._runner = asyncio.Runner()

    def close(self) -> None:
        """Let go of everything."""
        self.end()
        if self._runner is not None:
            self._runner.close()


@pytest.fixture(params=["threads", "tasks"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(request.param)
    yield made
    made.close()


def test_a_store_that_is_left_alone_is_not_asked(place: Place) -> None:
    place.give_up()
    asked = place.store.count(Claim)
    error = place.error()
    assert (error.asked, error.ran, place.store.count(Claim)) == (False, False, asked)
    assert timedelta(0) < error.retry_after <= timedelta(seconds=REST)


def test_what_is_refused_is_not_sent_again_inside_the_call() -> None:
    place = Place("threads", limits=Limits(open_after=1, backoff=REST, max_backoff=REST, retry_budget=100))
    place.store.refuse(Claim)
    assert not place.error().asked
    assert place.store.count(Claim) == 1, "sent once; the second time it did not leave"
    place.close()


def test_a_call_on_a_store_that_is_left_alone_hears_why_and_that_nothing_was_recorded(place: Place) -> None:
    place.give_up()
    message = place.error().message
    assert f"(failures in a row: {LIMITS.open_after}), so this request was not sent" in message
    assert "nothing ran and nothing was recorded for it" in message
    assert message.endswith(f"The last failure: {SILENCE}")


@pytest.mark.parametrize("colour", ["threads", "tasks"])
def test_a_call_that_is_not_sent_again_hears_its_own_failure(colour: str) -> None:
    with closing(Place(colour, limits=Limits(open_after=1, backoff=REST, max_backoff=REST))) as place:
        place.store.lose(Claim)
        error = place.error()
        assert error.message.startswith(f"{SILENCE} It was not sent again; retry with the same key in ")
        assert error.message.endswith(" s. Nothing ran.")
        assert "nothing was recorded" not in error.message, "the claim was sent, and may have been recorded"
        assert (error.ran, error.asked, place.store.count(Claim)) == (False, False, 1)
        assert timedelta(0) < error.retry_after <= timedelta(seconds=REST)


def test_store_down_run_runs_at_once_while_the_store_is_left_alone(place: Place) -> None:
    place.give_up()
    asked = place.store.count(Claim)
    result = place.run(policy=Policy(store_down="run"))
    assert (result.value, result.protected, place.store.count(Claim)) == (7, False, asked)


def test_calls_go_on_by_themselves_once_the_store_is_back(place: Place) -> None:
    place.give_up()
    place.store.mend()
    assert not place.error().asked, "it still rests"
    place.clock.forward = REST
    assert place.run().value == 7
    assert place.run("another").value == 7


def test_a_store_that_is_not_back_after_its_rest_is_asked_once(place: Place) -> None:
    place.give_up()
    asked = place.store.count(Claim)
    place.clock.forward = REST
    assert [place.error().asked for _ in range(3)] == [True, False, False]
    assert place.store.count(Claim) == asked + 1


def test_a_run_under_way_is_recorded_although_the_store_is_left_alone() -> None:
    place = Place("threads")

    def handler() -> int:
        place.give_up()
        return 7

    result = place.run(handler=handler)
    assert (result.value, place.store.count(Complete)) == (7, 1)
    place.store.mend()
    assert place.run().replayed, "its record was the try that found the store again"
    place.close()


def test_a_run_of_a_task_is_recorded_although_the_store_is_left_alone() -> None:
    place = Place("tasks")

    async def handler() -> int:
        place.store.refuse(Claim)
        for number in range(LIMITS.open_after):
            with pytest.raises(StoreUnavailable):
                await place.arun(f"failing {number}", lambda: 7)
        return 7

    result = place.run(handler=handler)
    assert (result.value, place.store.count(Complete)) == (7, 1)
    place.store.mend()
    assert place.run().replayed, "its record was the try that found the store again"
    place.close()


def test_conflicts_never_count(place: Place) -> None:
    place.run(fingerprint=1)
    for _ in range(LIMITS.open_after * 2):
        with pytest.raises(KeyReused):
            place.run(fingerprint=2)
    assert place.run("another").value == 7


def test_an_observer_hears_of_each_change_once(place: Place) -> None:
    place.give_up()
    place.error()
    place.store.mend()
    place.clock.forward = REST
    place.run()
    changes = [event for event in place.ears.events if event.kind in ("store_open", "store_closed")]
    assert [event.kind for event in changes] == ["store_open", "store_closed"]
    assert {(event.operation, event.reference, event.detail) for event in changes} == {("", "", place.store.name)}


@pytest.mark.parametrize("end", ["close", "new loop"])
def test_an_observer_hears_that_the_store_answers_again_also_after_an_end(place: Place, end: str) -> None:
    place.give_up()
    place.end() if end == "close" else place.new_loop()
    assert not place.error().asked
    place.store.mend()
    place.clock.forward = REST
    place.run()
    kinds = [event.kind for event in place.ears.events if event.kind in ("store_open", "store_closed")]
    assert kinds == ["store_open", "store_closed"]


def test_a_store_with_a_circuit_breaker_of_its_own_is_always_asked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(place.store), "capabilities", frozenset({Capability.OWN_CIRCUIT}))
    place.store.refuse(Claim)
    assert all(place.error(str(number)).asked for number in range(LIMITS.open_after + 2))


def test_nobody_joins_a_queue_that_is_full() -> None:
    async def main() -> None:
        store = InstrumentedStore(MemoryStore())
        held = store.hold(Claim)
        async with AsyncSemel(store, limits=Limits(max_queue=1)) as semel:
            calls = [asyncio.create_task(semel.run("1", _seven, operation="pay", fingerprint=None))]
            await held.reached()
            calls.append(asyncio.create_task(semel.run("2", _seven, operation="pay", fingerprint=None)))
            await asyncio.sleep(0)  # its turn: it joins the queue
            with pytest.raises(StoreUnavailable, match=r"1 operations of this process wait .* nothing ran") as caught:
                await semel.run("3", _seven, operation="pay", fingerprint=None)
            held.release()
            assert [(await call).value for call in calls] == [7, 7]
            assert not caught.value.asked

    asyncio.run(main())


async def _seven() -> int:
    return 7
