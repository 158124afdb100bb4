"""The model of Redis answers as the server does, over random sequences with keys evicted and writes forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from semel.core.key import Key
from semel.stores.redis import RedisStore
from semel_lab.simulate.models import Evict, Forget, Isolation, RedisModel, Session
from tests.servers.redis import Keys
from tests.simulate.sequences import Clock, Kind, compare
from tests.simulate.served import SEQUENCES, TIME_LIMIT, Served

Hashes = dict[bytes, dict[bytes, bytes]]


class Modelled:
    """The model, and what happens to it."""

    def __init__(self) -> None:
        self._model = RedisModel()

    def apply(self, _session: Session, act: Any, now: int) -> Any:
        match act:
            case Evict(digest):
                self._model.evict(digest)
                return None
            case Forget(writes):
                self._model.forget(writes)
                return None
        return self._model.apply(act, now)


class Real(Served):
    """A server that is made to forget: what it knew after each act is kept, and can be put back."""

    def __init__(self, keys: Keys, clock: Clock, stack: ExitStack) -> None:
        super().__init__(RedisStore(keys.url, clock=clock, listen=False), stack)
        self._keys = keys
        self._own = stack.enter_context(redis.Redis.from_url(keys.plain_url, protocol=2))
        self._known: Hashes = {}
        self._past: list[Hashes] = []

    def begin(self, isolations: tuple[Isolation, ...]) -> None:
        """Forget what the sequence before left."""
        assert not isolations
        if self._known:
            self._own.unlink(*self._known)
        self._known, self._past = {}, []

    def perform(self, session: int, act: Any) -> Any:
        """On the lane; or it happens."""
        match act:
            case Evict(digest):
                self._own.unlink(*[name for name in self._known if name.endswith(digest.hex().encode())], b"none")
                given = None
            case Forget(writes):
                self._go_back(writes)
                return None
            case _:
                given = super().perform(session, act)
        self._look()
        return given

    def _look(self) -> None:
        names = list(self._own.scan_iter(match=f"{self._keys.prefix}:*", count=1000))
        with self._own.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hgetall(name)
            now: Hashes = dict(zip(names, pipe.execute(), strict=True))
        if _shown(now) != _shown(self._known):
            self._past.append(self._known)
        self._known = now

    def _go_back(self, writes: int) -> None:
        """As a replica that did not see the last writes would go on; it does not know the scripts either."""
        there = self._known
        for _ in range(min(writes, len(self._past))):
            self._known = self._past.pop()
        with self._own.pipeline() as pipe:
            pipe.script_flush()
            for name in there:
                pipe.unlink(name)
            for name, kept in self._known.items():
                pipe.hset(name, mapping=kept)
            pipe.execute()


def _shown(hashes: Hashes) -> Hashes:
    """All but the word of those who wait, which is no part of a record."""
    return {
        name: {field: value for field, value in kept.items() if field != b"wanted"} for name, kept in hashes.items()
    }


def forgetting(dice: random.Random, key: Key) -> Any:
    """What may happen to a server."""
    return dice.choice((Evict(key.digest), Forget(dice.randint(1, 3))))


@pytest.mark.slow
@pytest.mark.timeout(TIME_LIMIT)
def test_the_model_answers_as_the_server_does(redis_keys: Keys, record_property: Callable[[str, object], None]) -> None:
    clock = Clock()
    redis_keys.empty()
    with ExitStack() as stack:
        real = Real(redis_keys, clock, stack)
        kind = Kind(joins=False, happens=forgetting)
        seen = compare(Modelled, real, clock, seed=0, first=0, count=SEQUENCES, kind=kind)
    record_property("figures", f"{SEQUENCES:,} sequences, {seen.total():,} acts")
    assert {"lane: Evict NoneType", "lane: Forget NoneType", "lane: Claim Granted", "lane: Complete Lost"} <= set(seen)
