"""Every schedule of readers, an erase, a sweep and a completion on two tiers; what may never be shown never is."""

import os

import pytest

from tests.simulate.tiers.programmes import completer, eraser, joined_completer, reader, reads_and_purges, sweeper
from tests.simulate.tiers.world import KEEP, OTHER, SECOND, World

FULL = os.environ.get("SEMEL_EFFORT") == "full"
WAIT = (6 * SECOND,)
pytestmark = pytest.mark.timeout(3600 if FULL else 120)


def explored(world: World) -> None:
    schedules, states = world.explore()
    print(f"{schedules} schedules through {states} states")
    assert states > 10


def test_no_reader_is_shown_what_was_erased_and_confirmed() -> None:
    explored(World([reader(1)], [reader(2)], [eraser], waits=WAIT if FULL else ()))


def test_a_purge_at_once_is_over_when_the_shared_cache_and_its_own_process_have_forgotten() -> None:
    explored(World([reads_and_purges], [reader(2)], cached=True))
    explored(World([reads_and_purges], [reader(2)], cached=True, faults=1))


def test_nor_one_who_asks_twice_while_time_passes() -> None:
    explored(World([reader(1, times=2)], [reader(2)] if FULL else [], [eraser], waits=WAIT))


def test_nor_in_the_process_that_erases() -> None:
    explored(World([reader(1, times=2), eraser], [sweeper] if FULL else [], waits=WAIT if FULL else ()))


@pytest.mark.slow
def test_nor_while_the_record_is_being_completed_with_a_fault_anywhere() -> None:
    world = World([reader(1)], [reader(2)], [eraser], [completer], completed=False, faults=2 if FULL else 1)
    explored(world)


@pytest.mark.slow
def test_nor_when_the_sweep_finishes_the_erase() -> None:
    explored(World([reader(1)], [eraser], [sweeper], faults=1 if FULL else 0, waits=WAIT))


def test_no_reader_is_shown_what_was_rolled_back() -> None:
    explored(World([reader(1, times=2)], [joined_completer], completed=False, faults=1))


@pytest.mark.slow
def test_no_reader_is_shown_what_has_expired() -> None:
    explored(World([reader(1)], [reader(2)], waits=(60 * SECOND, KEEP - 59 * SECOND)))


@pytest.mark.slow
def test_no_reader_is_shown_what_another_request_gave() -> None:
    explored(World([reader(1), reader(2, fingerprint=OTHER)], [reader(3, fingerprint=OTHER)]))
