"""A Redis store asked without an engine, in either colour."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence

from semel.core.operations import Found, Granted, Read
from semel.core.record import StoredRecord
from semel.core.store import Answers, Plan
from semel.stores.redis import RedisStore
from semel.stores.redis.driver import AsyncRedisDriver
from tests.unit.stores.asking import Asking
from tests.unit.stores.operations import KEYS, Clock, claim


class Asker(Asking):
    """A store and one driver on it."""

    def __init__(self, store: RedisStore, clock: Clock) -> None:
        self.store: RedisStore = store
        self.clock = clock

    def granted(self, number: int = 1) -> Granted:
        """A claim of the first key that is won."""
        return self.one(claim(number=number), Granted)

    def record(self, digest: bytes = KEYS[0].digest) -> StoredRecord | None:
        """The record as the store has it."""
        return self.one(Read(digest), Found).record

    @abstractmethod
    def close(self) -> None:
        """Let go of every connection."""


class BlockingAsker(Asker):
    """In this thread."""

    def __init__(self, store: RedisStore, clock: Clock) -> None:
        super().__init__(store, clock)
        self.driver = store.driver()

    def perform(self, *plans: Plan) -> list[Answers | Exception]:
        return self.driver.perform(plans)

    def close(self) -> None:
        self.driver.close()


class LoopAsker(Asker):
    """On an event loop of its own."""

    def __init__(self, store: RedisStore, clock: Clock) -> None:
        super().__init__(store, clock)
        self.runner = asyncio.Runner()
        self.driver = self.runner.run(self._made())

    async def _made(self) -> AsyncRedisDriver:
        return self.store.async_driver()  # a driver belongs to the loop it is made in

    def perform(self, *plans: Plan) -> list[Answers | Exception]:
        return self.runner.run(self._performed(plans))

    async def _performed(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        await asyncio.sleep(0)  # the loop stood still since the last round: let it see what happened
        return await self.driver.perform(plans)

    def close(self) -> None:
        self.runner.run(self.driver.close())
        self.runner.close()
