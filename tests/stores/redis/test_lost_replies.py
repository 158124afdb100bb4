"""Connections that are cut: a lost reply is told as such, nothing is sent twice, and the same operation fits itself."""

from collections.abc import Iterator

import pytest

from semel.core.operations import Complete, Granted, Operation, Recorded
from semel.errors import StoreUnavailable
from semel.stores.redis import RedisStore
from tests.proxy.plan import Cut, How
from tests.proxy.proxy import Proxy
from tests.proxy.wire import Direction
from tests.servers.redis import Keys
from tests.stores.redis.kit import Asker
from tests.unit.stores.operations import KEYS, Clock, claim

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(keys: Keys) -> Iterator[Proxy]:
    with Proxy(keys.url) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: Proxy, clock: Clock, colour: type[Asker]) -> Iterator[Asker]:
    """A store behind the proxy that knows its scripts."""
    asker = colour(RedisStore(proxy.url, clock=clock), clock)
    lease = asker.granted().lease
    asker.all([Complete(lease, b"x")])
    proxy.forget()
    yield asker
    asker.close()


def scripts(proxy: Proxy) -> int:
    return sum(seen.kind in ("EVALSHA", "EVAL") for seen in proxy.seen)


def lose(proxy: Proxy, how: How = How.DROP_REPLY) -> None:
    proxy.plan(Cut(Direction.TO_SERVER, 1, how, kind="EVALSHA"))


def unanswered(asker: Asker, *operations: Operation) -> None:
    for answer in asker.all(operations):
        assert isinstance(answer, StoreUnavailable), answer
        assert "not known" in answer.message


def test_a_lost_reply_is_told_and_nothing_is_sent_again(far: Asker, proxy: Proxy) -> None:
    lose(proxy)
    unanswered(far, claim(KEYS[1], number=2))
    assert scripts(proxy) == 1


@pytest.mark.parametrize("how", [How.DROP, How.SPLIT, How.DROP_REPLY])
def test_a_claim_whose_connection_was_cut_is_granted_when_sent_again(far: Asker, proxy: Proxy, how: How) -> None:
    lose(proxy, how)
    unanswered(far, claim(KEYS[1], number=2))
    granted = far.one(claim(KEYS[1], number=2), Granted)
    assert (granted.record.fence, granted.record.attempts) == (1, 1)


def test_a_completion_whose_reply_was_lost_is_recorded_once(far: Asker, proxy: Proxy) -> None:
    lease = far.one(claim(KEYS[1], number=2), Granted).lease
    lose(proxy)
    unanswered(far, Complete(lease, b"y"))
    first = far.record(KEYS[1].digest)
    far.clock.advance(1)
    assert far.one(Complete(lease, b"y"), Recorded).at_us == first.completed_us if first else False
    assert far.record(KEYS[1].digest) == first


def test_of_a_list_that_is_cut_short_each_fits_itself_again(far: Asker, proxy: Proxy) -> None:
    claims = [claim(key, number=place) for place, key in enumerate(KEYS[1:], 2)]
    lose(proxy)
    unanswered(far, *claims)
    assert [type(answer) for answer in far.all(claims)] == [Granted, Granted]


def test_idle_connections_that_were_severed_are_noticed_before_anything_is_sent(far: Asker, proxy: Proxy) -> None:
    proxy.sever()
    far.one(claim(KEYS[1], number=2), Granted)
