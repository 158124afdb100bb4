"""Dead letters that are larger than their store takes: the broker keeps the event, and nobody else waits for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from semel import Semel
from semel.core.events.letters import LetterTooLarge
from semel.events import Consumer, Disposition, Event
from tests.servers.databases import Databases
from tests.servers.ministack import Tables

pytestmark = pytest.mark.slow
LONGEST = timedelta(minutes=10)
Act = Callable[[Consumer[Semel], str], Disposition]


def an_event(data: object) -> Event:
    return Event(type="t", source="/s", id="e-1", data=data)


def reject(consumer: Consumer[Semel], large: str) -> Disposition:
    return consumer.handle(an_event(large))


def read_nonsense(consumer: Consumer[Semel], large: str) -> Disposition:
    return consumer.receive({}, large.encode())


def nest_too_deep(consumer: Consumer[Semel], large: str) -> Disposition:
    body = b'["%s", %s1%s]' % (large.encode(), b"[" * 63, b"]" * 63)
    return consumer.handle(Event(type="t", source="/s", id="e-1", data=json.loads(body)))


def use_the_id_again(consumer: Consumer[Semel], large: str) -> Disposition:
    assert consumer.handle(an_event("small")).status == "processed"
    return consumer.handle(an_event(large))


def count_a_failure(consumer: Consumer[Semel], large: str) -> Disposition:
    return consumer.failed(an_event(large), ValueError())


ACTS = (reject, read_nonsense, nest_too_deep, use_the_id_again, count_a_failure)


@pytest.mark.parametrize("act", ACTS)
def test_an_event_whose_letter_dynamodb_cannot_hold_stays_with_its_broker(
    dynamodb: Tables, act: Act, caplog: pytest.LogCaptureFixture
) -> None:
    dynamodb.empty(dynamodb.url)
    demand_that_it_waits(dynamodb.url, act, "x" * 500_000)
    assert "larger than the 400 KiB" in caplog.text


@pytest.mark.parametrize("act", ACTS)
def test_an_event_whose_letter_mariadb_does_not_take_stays_with_its_broker(
    mariadb: Databases, act: Act, caplog: pytest.LogCaptureFixture
) -> None:
    ((most,),) = mariadb.admin("SELECT @@global.max_allowed_packet")
    demand_that_it_waits(mariadb.new_database(), act, "x" * most)
    assert "as large as this one (DataError)" in caplog.text


def demand_that_it_waits(url: str, act: Act, large: str) -> None:
    with Semel(url) as semel:
        consumer = Consumer(semel, "billing", final_errors=(ValueError,))

        @consumer.on("t")
        def handle(data: object) -> None:
            if data == large:
                raise ValueError

        given = act(consumer, large)
        assert (given.action, given.status, given.retry_after) == ("retry", "unavailable", LONGEST)
        assert isinstance(given.error, LetterTooLarge)
        assert list(consumer.dead_letters()) == []
        assert consumer.handle(Event(type="t", source="/s", id="e-2", data="small")).status == "processed"
