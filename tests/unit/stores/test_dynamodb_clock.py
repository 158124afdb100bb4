"""The service's clock as it is learnt from replies: never early, whatever this machine's clock says."""

import os
import signal
import time
import warnings
from email.utils import formatdate

import pytest

from semel.stores.dynamodb.clock import SECOND, ServiceClock, instant_of, span_clock
from tests.unit.stores.operations import START, Clock


class Service:
    """A service with a true time, heard over a way that takes time, by a machine whose clock shows anything."""

    def __init__(self, shown: int = 0) -> None:
        self.local = Clock(shown)
        self.true = START + 300_000
        self.clock = ServiceClock(self.local)

    def passes(self, microseconds: int) -> None:
        self.true += microseconds
        self.local.now += microseconds

    def replies(self, there: int = 20_000, back: int = 20_000) -> None:
        sent = self.local.now
        self.passes(there)
        date = self.true // SECOND * SECOND
        self.passes(back)
        self.clock.hear(sent, self.local.now, date)

    def bounds(self) -> tuple[int, int]:
        moment = self.clock.moment()
        assert moment is not None
        return moment.low - self.true, moment.high - self.true


def test_before_a_reply_nothing_is_known() -> None:
    assert Service().clock.moment() is None


@pytest.mark.parametrize("shown", [0, START + 10**15, -(10**15)], ids=["boot", "ahead", "behind"])
def test_what_this_machine_shows_does_not_matter(shown: int) -> None:
    service, plain = Service(shown), Service()
    service.replies()
    plain.replies()
    assert service.bounds() == plain.bounds()


def test_the_true_time_lies_between_after_one_reply() -> None:
    service = Service()
    service.replies()
    low, high = service.bounds()
    assert -1_200_000 < low <= 0 <= high < 1_200_000


def test_replies_over_a_second_narrow_it_to_the_way_and_the_spread() -> None:
    service = Service()
    for _ in range(100):
        service.replies()
        service.passes(13_000)
    low, high = service.bounds()
    assert low <= 0
    assert low > -300_000
    service.clock._latest = 0  # what was promised before does not count here
    assert 0 <= service.bounds()[1] < 300_000
    assert high >= 0


def test_a_slow_reply_widens_nothing_that_is_known() -> None:
    service = Service()
    for _ in range(100):
        service.replies()
        service.passes(13_000)
    before = service.bounds()
    service.replies(there=3 * SECOND, back=3 * SECOND)
    low, high = service.bounds()
    assert low >= before[0] - 4_000
    assert low <= 0 <= high


def test_what_is_known_gets_old() -> None:
    service = Service()
    service.replies()
    low, high = service.bounds()
    service.passes(1000 * SECOND)
    assert service.bounds() == (low - 500_000, high + 500_000)


def test_a_clock_that_drifts_stays_between() -> None:
    service = Service()
    for _ in range(2_000):
        service.replies()
        service.passes(500_000)
        service.local.now += 200  # 400 parts in a million too fast
        low, high = service.bounds()
        assert low <= 0 <= high


def test_a_machine_that_slept_is_late_and_never_early() -> None:
    service = Service()
    service.replies()
    service.true += 3600 * SECOND
    low, _ = service.bounds()
    assert low < -3590 * SECOND
    service.replies()
    low, high = service.bounds()
    assert low <= 0 <= high


def test_a_clock_of_the_service_that_was_set_back_is_followed() -> None:
    service = Service()
    service.replies()
    service.bounds()
    service.true -= 3600 * SECOND
    service.replies()
    low, high = service.bounds()
    assert -2 * SECOND < low <= 0 <= high < 2 * SECOND


def test_what_is_promised_never_goes_back() -> None:
    service = Service()
    latest = 0
    for _ in range(100):
        service.replies(there=1)
        moment = service.clock.moment()
        assert moment is not None
        assert moment.high >= latest
        latest = moment.high


def test_a_date_is_read_to_the_second() -> None:
    assert instant_of(formatdate(START // SECOND, usegmt=True)) == START


@pytest.mark.parametrize("text", ["", "yesterday", "Sun, 45 Nov 2026 18:58:08 GMT"])
def test_what_is_no_date_teaches_nothing(text: str) -> None:
    assert instant_of(text) is None


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that counts its sleep")
def test_time_that_the_machine_slept_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asleep = {time.CLOCK_BOOTTIME: 3_600 * 10**9}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: asleep.get(clock, 0))
    monkeypatch.setattr(time, "monotonic_ns", lambda: 0)
    assert span_clock() == 3_600 * SECOND


def test_a_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    clock = ServiceClock()
    with clock._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the runner of the tests has threads
        child = os.fork()
        if not child:
            signal.alarm(5)
            os._exit(0 if clock.moment() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
