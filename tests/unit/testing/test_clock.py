"""The virtual clock: time moves when told to, and everybody whose instant has come is woken."""

import asyncio
import subprocess
import sys
import threading

from semel.testing.clock import START, VirtualClock


def resting_thread(clock: VirtualClock, until: float | None) -> tuple[threading.Thread, threading.Event]:
    """A thread that rests on the clock, and its wake-up."""
    wake = threading.Event()
    thread = threading.Thread(target=clock.rest, args=(wake, until))
    thread.start()
    while not clock.rests_on(wake):
        threading.Event().wait(0.001)
    return thread, wake


def test_both_clocks_begin_at_the_start() -> None:
    clock = VirtualClock()
    assert (clock.monotonic(), clock.store_clock()) == (0.0, int(START.timestamp()) * 1_000_000)


def test_both_clocks_advance_together() -> None:
    clock = VirtualClock()
    clock.advance(1.5)
    assert (clock.monotonic(), clock.store_clock()) == (1.5, int(START.timestamp()) * 1_000_000 + 1_500_000)


def test_microseconds_add_up_exactly() -> None:
    clock = VirtualClock()
    for _ in range(10):
        clock.advance(0.1)
    assert clock.monotonic() == 1.0


def test_advance_wakes_a_thread_whose_instant_has_come() -> None:
    clock = VirtualClock()
    thread, _ = resting_thread(clock, 10.0)
    clock.advance(10)
    thread.join(60)
    assert not thread.is_alive()


def test_advance_leaves_a_thread_whose_instant_is_still_to_come() -> None:
    clock = VirtualClock()
    thread, wake = resting_thread(clock, 10.0)
    clock.advance(9.999999)
    assert clock.resting() == 1
    wake.set()
    thread.join(60)


def test_who_is_woken_does_not_count_as_resting_any_more() -> None:
    clock = VirtualClock()
    thread, wake = resting_thread(clock, None)
    wake.set()
    assert clock.resting() == 0
    thread.join(60)


def test_who_is_due_does_not_count_as_resting_any_more() -> None:
    clock = VirtualClock()
    thread, wake = resting_thread(clock, 1.0)
    clock.advance(1)
    assert (clock.resting(), clock.rests_on(wake)) == (0, False)
    thread.join(60)


def test_an_instant_in_the_past_is_not_rested_for() -> None:
    clock = VirtualClock()
    clock.advance(5)
    clock.rest(threading.Event(), 5.0)
    assert clock.resting() == 0


def test_the_next_instant_is_the_earliest_that_somebody_rests_until() -> None:
    clock = VirtualClock()
    threads = [resting_thread(clock, until) for until in (3.0, 1.0, None)]
    assert clock.next_due() == 1.0
    for thread, wake in threads:
        wake.set()
        thread.join(60)
    assert clock.next_due() is None


def test_advancing_to_an_instant_between_two_microseconds_reaches_it() -> None:
    clock = VirtualClock()
    clock.advance_to(10 / 3)
    assert 0 <= clock.monotonic() - 10 / 3 < 1e-6


def test_the_clock_never_goes_back() -> None:
    clock = VirtualClock()
    clock.advance(5)
    clock.advance_to(1.0)
    assert clock.monotonic() == 5.0


def test_a_task_rests_until_its_instant() -> None:
    async def play() -> list[str]:
        clock, told = VirtualClock(), list[str]()

        async def rest(name: str, until: float) -> None:
            await clock.arest(asyncio.Event(), until)
            told.append(name)

        tasks = [asyncio.create_task(rest(name, until)) for name, until in (("late", 2.0), ("early", 1.0))]
        await asyncio.sleep(0)
        clock.advance(1)
        await tasks[1]
        clock.advance(1)
        await tasks[0]
        return told

    assert asyncio.run(play()) == ["early", "late"]


def test_a_cancelled_task_does_not_rest_any_more() -> None:
    async def play() -> int:
        clock = VirtualClock()
        task = asyncio.create_task(clock.arest(asyncio.Event(), 1.0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return clock.resting()

    assert asyncio.run(play()) == 0


def test_the_clock_needs_no_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; import semel.testing.clock"
    subprocess.run([sys.executable, "-c", program], check=True)
