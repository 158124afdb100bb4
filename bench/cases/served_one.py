"""One caller on a server: what semel adds to the bare commands, the same on every kind of server.

What always holds: each variant has a database of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.callers import Numbers, alone, alone_async, event_loop, keys_of
from bench.cases.served_many import unused
from bench.harness import Comparison, Effort, Measure, Variant
from bench.workload import once, once_async
from semel import AsyncSemel, Semel


class Hand(Protocol):
    """Does by hand what semel does."""

    def first_run(self, number: int) -> None: ...
    def read(self, number: int) -> object: ...
    def close(self) -> None: ...


class AsyncHand(Protocol):
    """The same, awaited."""

    async def first_run(self, number: int) -> None: ...
    async def read(self, number: int) -> object: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class ServedOne:
    """Semel, and whoever does it by hand, on databases that `database` makes; so many keys to replay."""

    database: Callable[[Path, str], AbstractContextManager[str]]
    hand: Callable[[str], Hand]
    async_hand: Callable[[str], Awaitable[AsyncHand]]
    keys: int

    @contextmanager
    def _by_hand(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        with self.database(folder, "one-by-hand") as url:
            hand = self.hand(url)
            yield lambda calls: alone(numbers.take(calls), hand.first_run)
            hand.close()

    @contextmanager
    def _by_hand_async(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        with self.database(folder, "one-by-hand-async") as url, event_loop() as loop:
            hand = loop.run(self._opened(url))
            yield lambda calls: loop.run(alone_async(numbers.take(calls), hand.first_run))
            loop.run(hand.close())

    @contextmanager
    def _semel(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = unused()
        with self.database(folder, "one-semel") as url, Semel(url) as semel:
            call = once(semel)
            yield lambda calls: alone(numbers.take(calls), call)

    @contextmanager
    def _semel_async(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = unused()
        with self.database(folder, "one-semel-async") as url, event_loop() as loop:
            semel = AsyncSemel(url)
            call = once_async(semel)
            yield lambda calls: loop.run(alone_async(numbers.take(calls), call))
            loop.run(semel.close())

    @contextmanager
    def _read(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(self.keys)
        with self.database(folder, "one-read") as url:
            hand = self.hand(url)
            alone(list(range(keys)), hand.first_run)
            yield lambda calls: alone(keys_of(calls, keys), hand.read)
            hand.close()

    @contextmanager
    def _read_async(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(self.keys)
        with self.database(folder, "one-read-async") as url, event_loop() as loop:
            hand = loop.run(self._opened(url))
            loop.run(alone_async(list(range(keys)), hand.first_run))
            yield lambda calls: loop.run(alone_async(keys_of(calls, keys), hand.read))
            loop.run(hand.close())

    @contextmanager
    def _replay(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(self.keys)
        with self.database(folder, "one-replay") as url, Semel(url) as semel:
            call = once(semel)
            alone(list(range(keys)), call)
            yield lambda calls: alone(keys_of(calls, keys), call)

    @contextmanager
    def _replay_async(self, folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(self.keys)
        with self.database(folder, "one-replay-async") as url, event_loop() as loop:
            semel = AsyncSemel(url)
            call = once_async(semel)
            loop.run(alone_async(list(range(keys)), call))
            yield lambda calls: loop.run(alone_async(keys_of(calls, keys), call))
            loop.run(semel.close())

    async def _opened(self, url: str) -> AsyncHand:
        return await self.async_hand(url)

    def variants(self, firsts: int, replays: int, first: Comparison, replay: Comparison) -> tuple[Variant, ...]:
        """All of them: so many calls in a round, and what semel is held against."""
        return (
            Variant("by hand, first run", self._by_hand, firsts),
            Variant("semel, first run", self._semel, firsts, "by hand, first run", first),
            Variant("by hand, async, first run", self._by_hand_async, firsts),
            Variant("semel, async, first run", self._semel_async, firsts, "by hand, async, first run", first),
            Variant("bare read", self._read, replays),
            Variant("semel, replay", self._replay, replays, "bare read", replay),
            Variant("bare read, async", self._read_async, replays),
            Variant("semel, async, replay", self._replay_async, replays, "bare read, async", replay),
        )
