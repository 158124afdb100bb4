"""Drivers of the DynamoDB store: the requests of a batch side by side, in threads and on an event loop; SDK clients.

- At most `pool_size` requests of a driver are in flight. A batch ends when the last plan of it has ended.
- The SDK retries nothing by itself, because a request whose reply was lost must be judged by what it left behind.
- A throttled request did nothing and is sent again for `throttled_for`; one whose reply is lost is not: that is for
  the flow above to decide. Completions are repeated by the engine for as long as the lease lasts.
- Every reply with a Date updates the clock, refusals too.
- SDK sessions are made once per process, because they hold the large service descriptions and the credentials, which
  they renew. Nothing is shared with a forked process.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from semel.core.flow import Flow, arun, run
from semel.core.store import Answers, Plan
from semel.errors import SemelError, StoreUnavailable
from semel.extras import requires
from semel.stores.dynamodb import request_builders
from semel.stores.dynamodb.clock import SECOND, WIDEST, Moment, ServiceClock, VirtualServiceClock, instant_of
from semel.stores.dynamodb.commands import Call, Chain, Now, Pause, Together
from semel.stores.dynamodb.layout import SharedLayout
from semel.stores.dynamodb.plan import Places
from semel.stores.dynamodb.settings import Settings


def make_client(settings: Settings) -> Any:
    """A client for threads.

    Raises:
        DependencyMissing: the SDK is not installed.
    """
    with requires("dynamodb://", "boto3"):
        session, lock = _session(os.getpid(), settings.profile)
        with lock:  # a session is not made for several threads, a client is
            return session.client("dynamodb", **_arguments(settings))


def make_async_client(settings: Settings) -> Any:
    """A client for the running event loop, to be entered.

    Raises:
        DependencyMissing: the SDK is not installed.
    """
    with requires("dynamodb://", "aiobotocore"):
        return _async_session(os.getpid(), settings.profile).create_client("dynamodb", **_arguments(settings))


@functools.lru_cache(maxsize=8)
def _session(_process: int, profile: str) -> tuple[Any, threading.Lock]:
    import boto3

    return boto3.session.Session(profile_name=profile or None), threading.Lock()


@functools.lru_cache(maxsize=8)
def _async_session(_process: int, profile: str) -> Any:
    from aiobotocore.session import AioSession

    return AioSession(profile=profile or None)


def _arguments(settings: Settings) -> dict[str, Any]:
    from botocore.config import Config

    config = Config(
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        max_pool_connections=settings.pool_size,
        retries={"total_max_attempts": 1, "mode": "standard"},
        parameter_validation=False,
        user_agent_extra="semel",
    )
    return {
        "region_name": settings.region or None,
        "endpoint_url": settings.endpoint or None,
        "config": config,
    }


_NOBODY: Final = bytes(32)
_REQUEST_ID: Final = "x-amzn-requestid"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.025, 0.4


@dataclass(frozen=True, slots=True)
class Send:
    """Send one request, once."""

    call: Call


@dataclass(frozen=True, slots=True)
class DynamoContext:
    """A table, and what is known of it; shared by the drivers of a store."""

    settings: Settings
    clock: ServiceClock
    sweeps: Places = field(default_factory=dict)
    chance: Callable[[], float] = random.random
    layout: SharedLayout | None = None

    @classmethod
    def of(cls, settings: Settings) -> DynamoContext:
        """The place that settings name."""
        virtual = settings.clock
        clock = ServiceClock() if virtual is None else VirtualServiceClock(virtual)
        return cls(settings, clock, layout=settings.layout)


def exchange(context: DynamoContext, command: Call | Now | Pause) -> Flow[Any]:
    """The reply to a command.

    Raises:
        StoreUnavailable: the service did not answer, or was at its limit for too long.
        SchemaOutdated: there is no such table.
    """
    match command:
        case Now():
            return (yield from _now(context))
        case Pause():
            return (yield command)
        case Call():
            return (yield from _send_call(context, command))


def _send_call(context: DynamoContext, call: Call) -> Flow[Any]:
    began = context.clock.span()
    pause = _FIRST_PAUSE
    while True:
        sent = context.clock.span()
        try:
            response = yield Send(call if context.layout is None else context.layout.encode(call))
        except SemelError:
            raise  # the SDK is not there to say more
        except Exception as error:
            from semel.stores.dynamodb.errors import AGAIN, error_kind_of, expected_reply, response_of, translate_error

            _learn_time(context, sent, response_of(error))
            known = expected_reply(error)
            if known is not None:
                return known if context.layout is None else context.layout.decode_refusal(call, known)
            passed = (context.clock.span() - began) / SECOND
            if error_kind_of(error) not in AGAIN or passed + pause > context.settings.throttled_for:
                raise translate_error(error, context.settings.name) from error
        else:
            _learn_time(context, sent, response)
            return response if context.layout is None else context.layout.decode(call, response)
        # Somewhere between nothing and all of it: those who were throttled together do not come back together.
        yield Pause(pause * context.chance())
        pause = min(pause * 2, _LONGEST_PAUSE)


def _learn_time(context: DynamoContext, sent: int, response: dict[str, Any]) -> None:
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    date = instant_of(headers.get("date", ""))
    # A reply that a proxy made up has no request id of the service, and a Date of the proxy.
    if date is not None and _REQUEST_ID in headers:
        context.clock.hear(sent, context.clock.span(), date)


def _now(context: DynamoContext) -> Flow[Moment]:
    moment = context.clock.moment()
    if moment is None or moment.high - moment.low > WIDEST:
        yield from _send_call(context, request_builders.get(context.settings.table, _NOBODY))
        moment = context.clock.moment()
    if moment is None:
        message = (
            f"{context.settings.name} sends replies without a Date, so its time is not known; nothing was recorded. "
            f"Let the proxy in between pass that header on."
        )
        raise StoreUnavailable(message)
    return moment


T = TypeVar("T")
Replies = list[Answers | Exception]


class Round:
    """The plans of a round: begun, and ended when their chains are."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._replies: Replies = [[]] * len(plans)
        self._counts = [0] * len(plans)
        self.chains: list[Chain] = []
        for index, plan in enumerate(plans):
            try:
                together: Together = next(plan)
            except StopIteration as end:
                self._replies[index] = end.value
            except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
                self._replies[index] = error
            else:
                self._counts[index] = len(together.chains)
                self.chains += together.chains

    def replies(self, given: Sequence[Answers]) -> Replies:
        """The reply of each plan, once the chains have given theirs."""
        start = 0
        for index, (plan, count) in enumerate(zip(self._plans, self._counts, strict=True)):
            if count:
                self._replies[index] = _finish_plan(plan, given[start : start + count])
                start += count
        return self._replies


def _finish_plan(plan: Plan, given: Sequence[Answers]) -> Answers | Exception:
    try:
        plan.send(given)
    except StopIteration as end:
        answers: Answers = end.value
        return answers
    except Exception as error:  # noqa: BLE001 - a bug of this plan is its own reply
        return error
    message = "a plan asked for more after its chains were carried out"
    return AssertionError(message)


class _Client:
    """What sends requests: a client that was given, or one that is made on first use."""

    def __init__(self, context: DynamoContext, client: Any = None) -> None:
        self._context = context
        self._given = client
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()


class _AsyncClient(_Client, ABC):
    """Sends in tasks, chains side by side."""

    def _start_over(self) -> None:
        super()._start_over()
        self._opening = asyncio.Lock()
        self._entered: tuple[Any, Any] | None = None
        self._room = asyncio.BoundedSemaphore(self._context.settings.pool_size)

    @abstractmethod
    async def carry(self, chain: Flow[T]) -> T:
        """Run one chain."""

    async def _side_by_side(self, chains: Sequence[Chain]) -> list[Answers]:
        return await asyncio.gather(*map(self.carry, chains))

    async def _act(self, wanted: Send | Pause) -> Any:
        if isinstance(wanted, Pause):
            return await asyncio.sleep(wanted.seconds)
        client = await self._opened()
        async with self._room:
            return await getattr(client, wanted.call.action)(**wanted.call.parameters)

    async def _opened(self) -> Any:
        if self._given is not None:
            return self._given
        async with self._opening:
            if self._entered is None:
                manager = make_async_client(self._context.settings)
                self._entered = manager, await manager.__aenter__()
            return self._entered[1]

    async def close(self) -> None:
        """Let go of every connection."""
        entered, self._entered = self._entered, None
        if entered is not None:
            await entered[0].__aexit__(None, None, None)


class _SyncClient(_Client, ABC):
    """Sends in threads: one chain in the calling thread, several in threads of the driver."""

    def _start_over(self) -> None:
        super()._start_over()
        self._lock = threading.Lock()
        self._client: Any = self._given
        self._pool: ThreadPoolExecutor | None = None

    @abstractmethod
    def _execute(self, command: Any) -> Any:
        """Carry out one command."""

    def _side_by_side(self, chains: Sequence[Chain]) -> list[Answers]:
        return list(self._threads().map(self._carry_in_pool, chains))

    def _carry_in_pool(self, chain: Chain) -> Answers:
        """Run a chain in a thread of the pool, which must not wait for another one of it."""
        return run(chain, self._execute_in_pool)

    def _execute_in_pool(self, command: Any) -> Any:
        if isinstance(command, Together):
            return list(map(self._carry_in_pool, command.chains))
        return self._execute(command)

    def _act(self, wanted: Send | Pause) -> Any:
        if isinstance(wanted, Pause):
            return time.sleep(wanted.seconds)
        return getattr(self._opened(), wanted.call.action)(**wanted.call.parameters)

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = make_client(self._context.settings)
            return self._client

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._context.settings.pool_size, "semel-dynamodb")
            return self._pool

    def close(self) -> None:
        """Let go of every thread and connection."""
        if self._pid != os.getpid():
            return
        with self._lock:
            client, pool, self._client, self._pool = self._client, self._pool, None, None
        if pool is not None:
            pool.shutdown()
        if client is not None and client is not self._given:
            client.close()


class AsyncDynamoDriver(_AsyncClient):
    """Carries rounds out with a client of DynamoDB."""

    async def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round."""
        if self._pid != os.getpid():
            self._start_over()
        work = Round(plans)
        if len(work.chains) == 1:
            return work.replies([await self.carry(work.chains[0])])
        return work.replies(await self._side_by_side(work.chains))

    async def carry(self, chain: Flow[T]) -> T:
        """Run one chain, or other work made of the same commands."""
        return await arun(chain, self._execute)

    async def _execute(self, command: Any) -> Any:
        if isinstance(command, Together):
            return await self._side_by_side(command.chains)
        return await arun(exchange(self._context, command), self._act)


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class DynamoDriver(_SyncClient):
    """Carries rounds out with a client of DynamoDB."""

    def perform(self, plans: Sequence[Plan]) -> Replies:
        """Run one round."""
        if self._pid != os.getpid():
            self._start_over()
        work = Round(plans)
        if len(work.chains) == 1:
            return work.replies([self.carry(work.chains[0])])
        return work.replies(self._side_by_side(work.chains))

    def carry(self, chain: Flow[T]) -> T:
        """Run one chain, or other work made of the same commands."""
        return run(chain, self._execute)

    def _execute(self, command: Any) -> Any:
        if isinstance(command, Together):
            return self._side_by_side(command.chains)
        return run(exchange(self._context, command), self._act)
