"""The watch over leases, driven by hand: it renews them as one list, and tells a stall from a store that is silent."""

from semel.core.operations import Answer, Lost, Renew, Renewed
from semel.engine.background import HeldLease, PerformAll, Renewer, SleepUntil, Stalled
from semel.errors import StoreUnavailable
from semel.testing.clock import VirtualClock
from tests.unit.core.records import lease
from tests.unit.engine_machines.watching import Watching

LENGTH = 30.0
GONE = StoreUnavailable("The store did not answer; nothing ran.")


class Leases(Watching):
    """The watch over some leases, begun at the start of the clock."""

    def __init__(self, count: int = 1, length: float = LENGTH) -> None:
        clock = VirtualClock()
        self._heartbeat = (renewer := Renewer(clock)).heartbeat
        self.beats: list[HeldLease] = []
        for number in range(count):
            self.hold(b"%d" % number, length)
        super().__init__(renewer, clock)

    def hold(self, nonce: bytes, length: float, max_runtime: float = 900.0) -> None:
        """One more lease."""
        self.beats.append(self._heartbeat.hold(lease(nonce), length=length, max_runtime=max_runtime, asked=0.0))

    def stand_still(self, seconds: float) -> None:
        """Nothing of the process goes on for so long."""
        self.clock.advance(seconds)
        self.disturb()

    def answer_all(self, answer: Answer | Exception) -> None:
        """Give every renewal that was asked for the same answer."""
        self.answer(*[answer] * len(self.asked))


def test_with_no_lease_it_rests_until_something_changes() -> None:
    assert Leases(0).wanted == SleepUntil(None)


def test_it_renews_a_lease_when_a_third_is_over() -> None:
    watch = Leases()
    assert watch.wanted == SleepUntil(10.0)
    watch.rest_until_due()
    assert watch.asked == [Renew(watch.beats[0].lease, 30_000_000)]
    assert watch.answer(Renewed(0)) == SleepUntil(20.0)
    assert watch.beats[0].deadline == 40.0


def test_no_renewal_reaches_beyond_the_end_of_renewals() -> None:
    watch = Leases(0)
    watch.hold(b"bounded", LENGTH, max_runtime=40.0)
    watch.disturb()
    lengths: list[int] = []
    while watch.wanted != SleepUntil(None):
        watch.rest_until_due()
        while isinstance(watch.wanted, PerformAll):
            lengths += [renewal.lease_us for renewal in watch.asked if isinstance(renewal, Renew)]
            watch.answer(Renewed(0))
    assert lengths == [30_000_000, 20_000_000, 10_000_000]
    assert watch.clock.monotonic() == 40.0
    assert "longer than max_runtime" in str(watch.beats[0].lost)


def test_a_renewed_lease_counts_from_before_the_request_however_long_it_took() -> None:
    watch = Leases()
    watch.rest_until_due()
    watch.clock.advance(7.0)
    watch.answer(Renewed(0))
    assert watch.beats[0].deadline == 40.0


def test_it_tells_an_attempt_that_its_lease_is_lost() -> None:
    watch = Leases()
    watch.rest_until_due()
    assert watch.answer(Lost()) == SleepUntil(None)
    assert watch.beats[0].lost is not None


def test_errors_of_the_store_do_not_end_it_and_are_no_stall() -> None:
    watch = Leases()
    while watch.wanted != SleepUntil(None):
        watch.rest_until_due()
        while isinstance(watch.wanted, PerformAll):
            watch.answer_all(GONE)
    assert watch.beats[0].lost == "its lease could not be renewed in time"


def test_all_leases_go_as_one_list() -> None:
    watch = Leases(100)
    watch.rest_until_due()
    assert [type(operation) for operation in watch.asked] == [Renew] * 100


def test_a_stall_past_the_lease_is_reported_once_with_how_many_lapsed() -> None:
    watch = Leases(3)
    watch.stand_still(45.0)
    assert watch.wanted == Stalled(35.0, 3)
    assert all(beat.lost is not None for beat in watch.beats), "reported before the attempts were told"
    assert watch.go_on() == SleepUntil(None)


def test_a_stall_that_costs_no_lease_is_made_up_for_in_silence() -> None:
    watch = Leases()
    watch.stand_still(29.0)
    assert watch.asked == [Renew(watch.beats[0].lease, 30_000_000)]


def test_a_lease_that_outlasts_a_stall_is_renewed_after_the_report() -> None:
    watch = Leases(1, length=300.0)
    watch.hold(b"short", LENGTH)
    watch.disturb()
    watch.stand_still(150.0)
    assert watch.wanted == Stalled(140.0, 1)
    watch.go_on()
    assert watch.asked == [Renew(watch.beats[0].lease, 300_000_000)]


def test_a_slow_answer_of_the_store_is_no_stall() -> None:
    watch = Leases()
    watch.rest_until_due()
    watch.clock.advance(50.0)
    watch.answer(GONE)
    assert watch.wanted == SleepUntil(None), "the time the store took was taken for a stall of this process"
    assert watch.beats[0].lost is not None
