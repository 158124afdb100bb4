"""Metrics: what each signal counts, which labels there are, and that nothing is lost between threads and forks."""

from __future__ import annotations

import os
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from semel.core.events.letters import REASONS
from semel.core.observer import Signal
from semel.errors import UsageError
from semel.telemetry.prometheus import PrometheusObserver
from semel.telemetry.tally import BUCKETS, Times


@pytest.fixture
def observer() -> PrometheusObserver:
    return PrometheusObserver()


def shown(observer: PrometheusObserver) -> list[str]:
    """The lines of a scrape."""
    return generate_latest(observer.registry).decode().splitlines()


def signal(kind: str, operation: str = "pay", **told: object) -> Signal:
    return Signal(kind=kind, operation=operation, reference="ab" * 32, **told)  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", ["ran", "replayed", "failed", "in_doubt", "lease_lost", "reused", "refused"])
def test_an_end_of_a_call_is_counted_by_operation_and_outcome(observer: PrometheusObserver, outcome: str) -> None:
    observer.observe(signal(outcome))
    observer.observe(signal(outcome))
    assert f'semel_operations_total{{operation="pay",outcome="{outcome}"}} 2.0' in shown(observer)


def test_replays_are_duplicates(observer: PrometheusObserver) -> None:
    observer.observe(signal("ran"))
    observer.observe(signal("replayed"))
    assert 'semel_duplicates_total{operation="pay"} 1.0' in shown(observer)


def test_times_are_in_seconds_and_in_their_bucket(observer: PrometheusObserver) -> None:
    observer.observe(signal("ran", seconds=0.15, handler_seconds=0.04))
    lines = shown(observer)
    assert 'semel_operation_seconds_bucket{le="0.1",operation="pay",outcome="ran"} 0.0' in lines
    assert 'semel_operation_seconds_bucket{le="0.2",operation="pay",outcome="ran"} 1.0' in lines
    assert 'semel_operation_seconds_bucket{le="+Inf",operation="pay",outcome="ran"} 1.0' in lines
    assert 'semel_operation_seconds_sum{operation="pay",outcome="ran"} 0.15' in lines
    assert 'semel_operation_seconds_count{operation="pay",outcome="ran"} 1.0' in lines
    assert 'semel_handler_seconds_sum{operation="pay"} 0.04' in lines


def test_a_failure_has_no_time_of_the_call(observer: PrometheusObserver) -> None:
    observer.observe(signal("failed", handler_seconds=0.04))
    assert not [line for line in shown(observer) if line.startswith("semel_operation_seconds_count")]
    assert 'semel_handler_seconds_count{operation="pay"} 1.0' in shown(observer)


def test_answers_of_caches_are_counted_by_tier(observer: PrometheusObserver) -> None:
    observer.observe(signal("cache_hit", detail="redis"))
    observer.observe(signal("cache_hit", detail="process"))
    observer.observe(signal("cache_miss"))
    lines = shown(observer)
    assert 'semel_cache_total{answer="hit",tier="redis"} 1.0' in lines
    assert 'semel_cache_total{answer="hit",tier="process"} 1.0' in lines
    assert 'semel_cache_total{answer="miss",tier="store"} 1.0' in lines


def test_events_letters_and_items_are_counted_by_what_came_of_them(observer: PrometheusObserver) -> None:
    observer.observe(signal("consumed", "event:billing", detail="processed"))
    observer.observe(signal("dead_letter", "event:billing", detail="exhausted"))
    observer.observe(signal("published", "default", number=7))
    observer.observe(signal("parked", "default", number=2))
    observer.observe(signal("publishing_failed", "default", number=3))
    observer.observe(signal("batch_items", "bulk", detail="completed", number=100))
    lines = shown(observer)
    assert 'semel_events_consumed_total{operation="event:billing",outcome="processed"} 1.0' in lines
    assert 'semel_dead_letters_total{operation="event:billing",outcome="exhausted"} 1.0' in lines
    assert 'semel_events_published_total{operation="default",outcome="published"} 7.0' in lines
    assert 'semel_events_published_total{operation="default",outcome="parked"} 2.0' in lines
    assert 'semel_events_published_total{operation="default",outcome="failed"} 3.0' in lines
    assert 'semel_batch_items_total{operation="bulk",outcome="completed"} 100.0' in lines


def test_the_last_sweep_is_shown_once_there_was_one(observer: PrometheusObserver) -> None:
    assert not [line for line in shown(observer) if line.startswith("semel_last_sweep_timestamp_seconds ")]
    observer.observe(signal("swept", "", number=12))
    lines = shown(observer)
    assert "semel_sweeps_total 1.0" in lines
    assert "semel_swept_records_total 12.0" in lines
    assert [line for line in lines if line.startswith("semel_last_sweep_timestamp_seconds 1")]


def test_a_store_that_is_left_alone_is_shown_until_it_answers(observer: PrometheusObserver) -> None:
    observer.observe(signal("store_open", ""))
    assert "semel_store_open 1.0" in shown(observer)
    observer.observe(signal("store_closed", ""))
    observer.observe(signal("store_closed", ""))
    assert "semel_store_open 0.0" in shown(observer)


def test_notices_end_no_call(observer: PrometheusObserver) -> None:
    for kind in ("lapsed", "stalled", "not_kept", "unprotected"):
        observer.observe(signal(kind))
        assert f'semel_notices_total{{operation="pay",outcome="{kind}"}} 1.0' in shown(observer)
    assert not [line for line in shown(observer) if line.startswith("semel_operations_total{")]


def test_what_alerts_count_is_shown_before_it_first_happens(observer: PrometheusObserver) -> None:
    assert 'semel_notices_total{operation="",outcome="stalled"} 0.0' in shown(observer)
    observer.observe(signal("ran"))
    observer.observe(signal("consumed", "event:billing", detail="processed"))
    lines = shown(observer)
    for outcome in ("lease_lost", "reused"):
        assert f'semel_operations_total{{operation="pay",outcome="{outcome}"}} 0.0' in lines
    for reason in REASONS:
        assert f'semel_dead_letters_total{{operation="event:billing",outcome="{reason}"}} 0.0' in lines


def test_claims_of_semel_itself_are_not_counted(observer: PrometheusObserver) -> None:
    observer.observe(signal("ran", "semel:relay"))
    assert not [line for line in shown(observer) if "semel:relay" in line]


def test_operations_beyond_the_bound_share_one_label() -> None:
    observer = PrometheusObserver(max_operations=2)
    for number in range(100):
        observer.observe(signal("ran", f"o{number}"))
    counted = [line for line in shown(observer) if line.startswith("semel_operations_total{") and "ran" in line]
    assert counted == [
        'semel_operations_total{operation="o0",outcome="ran"} 1.0',
        'semel_operations_total{operation="o1",outcome="ran"} 1.0',
        'semel_operations_total{operation="other",outcome="ran"} 98.0',
    ]


def test_nothing_is_lost_between_threads(observer: PrometheusObserver) -> None:
    threads, each = 8, 2000
    barrier = threading.Barrier(threads)
    looked = threading.Event()

    def count() -> None:
        barrier.wait()
        for _ in range(each):
            observer.observe(signal("ran", seconds=0.001))

    def look() -> None:
        while not looked.is_set():
            shown(observer)

    looking = threading.Thread(target=look)
    looking.start()
    counting = [threading.Thread(target=count) for _ in range(threads)]
    for thread in counting:
        thread.start()
    for thread in counting:
        thread.join()
    looked.set()
    looking.join()
    assert f'semel_operations_total{{operation="pay",outcome="ran"}} {float(threads * each)}' in shown(observer)
    assert f'semel_operation_seconds_count{{operation="pay",outcome="ran"}} {float(threads * each)}' in shown(observer)


def test_what_waits_to_be_added_up_is_bounded(observer: PrometheusObserver) -> None:
    for _ in range(5000):
        observer.observe(signal("ran"))
    assert len(observer._tally._pending) < 1000


def test_a_forked_process_begins_at_zero(observer: PrometheusObserver) -> None:
    observer.observe(signal("ran"))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        observer.observe(signal("replayed"))
        os.write(writing, "\n".join(shown(observer)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as text:
        lines = text.read().splitlines()
    os.waitpid(child, 0)
    assert 'semel_operations_total{operation="pay",outcome="replayed"} 1.0' in lines
    assert not [line for line in lines if 'outcome="ran"' in line]


def test_a_registry_can_be_given() -> None:
    registry = CollectorRegistry()
    PrometheusObserver(registry).observe(signal("ran"))
    assert b'semel_operations_total{operation="pay",outcome="ran"} 1.0' in generate_latest(registry)


def test_the_mode_for_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "anywhere")
    with pytest.raises(UsageError, match="port of its own"):
        PrometheusObserver()


@pytest.mark.parametrize("number", [1, 3, 400])
def test_many_times_are_in_the_buckets_that_each_of_them_is_in(number: int) -> None:
    times = [bound * factor for bound in BUCKETS for factor in (0.99, 1.0, 1.01)][:: max(1, 45 // number)] * 10
    one_by_one, together = Times(), Times()
    for seconds in times:
        one_by_one.add(seconds)
    together.add_many(list(times))
    assert together.buckets == one_by_one.buckets
    assert together.seconds == pytest.approx(one_by_one.seconds)
