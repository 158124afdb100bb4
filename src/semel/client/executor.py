"""Executes what the client's flows yield, on a sync or an async engine. The two differ only in how they wait."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack

from semel.api import AsyncSemel, Place, Semel
from semel.client.journal import Journal
from semel.client.models import Cancel, Carry, Fetch, Keep, Look, Reply, Resend, Rest, Scan, Send, StoredRequest, Sweep
from semel.client.pending import OPERATION, STEP, taking_up
from semel.client.settings import Given, Settings
from semel.core.flow import Flow, arun, run
from semel.core.key import Key
from semel.core.record import Cancelled
from semel.engine.engine import EngineBase
from semel.errors import NotResolvable

T = TypeVar("T")

KEYS: Final = "sqlite:///semel-keys.db"
Now = Callable[[], float]


class ExecutorBase(ABC):
    """What both colours share."""

    def __init__(self, engine: EngineBase, now: Now, given: Given) -> None:
        self.journal = Journal(engine, Settings(**given), now)

    @abstractmethod
    def perform(self, wanted: Any) -> Any:
        """Do what a flow asks for."""


class Executor(ExecutorBase):
    """For code that calls and waits.

    Args:
        keys: where keys are kept.
        send: sends a request.
        fetch: gets what lies at an address; nothing where nothing is there, None where no answer came.
        now: the time of day, in seconds since 1970.
        given: settings.
    """

    def __init__(
        self,
        keys: Place,
        send: Callable[[Send], Reply],
        fetch: Callable[[str], bytes | None],
        now: Now = time.time,
        **given: Unpack[Given],
    ) -> None:
        self.engine = keys if isinstance(keys, Semel) else Semel(keys)
        self._own = self.engine is not keys
        self._send, self._fetch = send, fetch
        super().__init__(self.engine, now, given)

    def run(self, flow: Flow[T]) -> T:
        """Carry a flow of the journal out."""
        return run(flow, self.perform)

    def close(self) -> None:
        """Let go of the store; an engine that was handed in belongs to others."""
        if self._own:
            self.engine.close()

    def perform(self, wanted: Any) -> Any:
        """Do what a flow asks for."""
        match wanted:
            case Send():
                return self._send(wanted)
            case Rest(seconds):
                clock = self.engine.clock
                return clock.rest(threading.Event(), clock.monotonic() + seconds)
            case Keep(saved):
                attempt = self.engine.current()
                return attempt.step(STEP, _same, saved), attempt.in_doubt
            case Carry(key, asked, flow):
                return self.engine.run(key, lambda: run(flow, self.perform), **asked)
            case Look(key):
                return self.engine.read(key)
            case Fetch(url):
                return self._fetch(url)
            case Sweep():
                return self.engine.sweep()
            case Scan(scope, status, intent):
                found = self.engine.records(status=status, operation=OPERATION, scope=scope, business_key=intent)
                return list(found)
            case Cancel(key, why):
                return self._cancel(key, why)
            case Resend(send, pending):
                with taking_up(pending):
                    return send(pending)
        raise AssertionError(wanted)

    def _cancel(self, key: Key, why: str) -> bool:
        try:
            self.engine.resolve(key, Cancelled(), reason=why)
        except NotResolvable:
            return False  # somebody works at it, or has finished it
        return True


class AsyncExecutor(ExecutorBase):
    """The same for code that awaits."""

    def __init__(
        self,
        keys: Place,
        send: Callable[[Send], Any],
        fetch: Callable[[str], Any],
        now: Now = time.time,
        **given: Unpack[Given],
    ) -> None:
        self.engine = keys if isinstance(keys, AsyncSemel) else AsyncSemel(keys)
        self._own = self.engine is not keys
        self._send, self._fetch = send, fetch
        super().__init__(self.engine, now, given)

    async def run(self, flow: Flow[T]) -> T:
        """Carry a flow of the journal out."""
        return await arun(flow, self.perform)

    async def close(self) -> None:
        """Let go of the store; an engine that was handed in belongs to others."""
        if self._own:
            await self.engine.close()

    async def perform(self, wanted: Any) -> Any:
        """Do what a flow asks for."""
        match wanted:
            case Send():
                return await self._send(wanted)
            case Rest(seconds):
                clock = self.engine.clock
                return await clock.arest(asyncio.Event(), clock.monotonic() + seconds)
            case Keep(saved):
                attempt = self.engine.current()
                return await attempt.step(STEP, _same_awaited, saved), attempt.in_doubt
            case Carry(key, asked, flow):
                return await self.engine.run(key, lambda: arun(flow, self.perform), **asked)
            case Look(key):
                return await self.engine.read(key)
            case Fetch(url):
                return await self._fetch(url)
            case Sweep():
                return await self.engine.sweep()
            case Scan(scope, status, intent):
                found = self.engine.records(status=status, operation=OPERATION, scope=scope, business_key=intent)
                return [record async for record in found]
            case Cancel(key, why):
                return await self._cancel(key, why)
            case Resend(send, pending):
                with taking_up(pending):
                    return await send(pending)
        raise AssertionError(wanted)

    async def _cancel(self, key: Key, why: str) -> bool:
        try:
            await self.engine.resolve(key, Cancelled(), reason=why)
        except NotResolvable:
            return False  # somebody works at it, or has finished it
        return True


def _same(saved: StoredRequest) -> StoredRequest:
    return saved


async def _same_awaited(saved: StoredRequest) -> StoredRequest:
    return saved
