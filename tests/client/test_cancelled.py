"""Cut off in the middle: a task that is cancelled, a thread that is interrupted, a process that forks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from semel import AsyncSemel
from semel.client import AsyncClient, Client, OnceTransport
from semel.core.record import Status
from semel.engine.engine import engine_of
from tests.client.service import Hold, Say, Service


async def _until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


def test_a_task_that_is_cancelled_while_sending_leaves_a_key_that_is_resumed(service: Service, keys: Path) -> None:
    hold = Hold()
    service.next("/pay", hold)

    async def play() -> None:
        async with AsyncClient(keys, trust_env=False) as client:
            task = asyncio.create_task(client.post(f"{service.url}/pay", content=b"body"))
            await _until(hold.arrived)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            hold.go.set()
            [resumed] = await client.resume()
            assert resumed.response is not None
            assert resumed.response.status_code == 201

    asyncio.run(play())
    assert len(set(service.keys())) == 1
    assert len(service.seen) == 2
    assert service.effects["/pay"] == 1


def test_a_task_that_is_cancelled_in_a_pause_leaves_a_key_that_is_resumed(service: Service, keys: Path) -> None:
    service.next("/pay", Say(503, {"Retry-After": "30"}))

    async def play() -> None:
        async with AsyncSemel(keys) as engine, AsyncClient(engine, trust_env=False) as client:
            resting = asyncio.Event()
            clock = engine_of(engine).clock
            arest = clock.arest

            async def told(wake: asyncio.Event, until: float | None) -> None:
                if until is not None and until > clock.monotonic() + 20:
                    resting.set()
                await arest(wake, until)

            clock.arest = told  # type: ignore[method-assign]
            task = asyncio.create_task(client.post(f"{service.url}/pay"))
            await asyncio.wait_for(resting.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            [resumed] = await client.resume()
            assert resumed.response is not None

    asyncio.run(play())
    assert len(set(service.keys())) == 1
    assert len(service.seen) == 2


def test_the_loop_goes_on_while_a_request_is_under_way(service: Service, keys: Path) -> None:
    hold = Hold()
    service.next("/slow", hold)

    async def play() -> None:
        async with AsyncClient(keys, trust_env=False) as client:
            slow = asyncio.create_task(client.post(f"{service.url}/slow"))
            await _until(hold.arrived)
            assert (await client.post(f"{service.url}/pay")).status_code == 201
            assert not slow.done()
            hold.go.set()
            assert (await slow).status_code == 201

    asyncio.run(play())


class _Below(httpx.BaseTransport):
    """Carries a request, then does what the test says."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._carrier = httpx.HTTPTransport()
        self._then = then

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._carrier.handle_request(request)
        try:
            self._then()
        except BaseException:
            response.close()
            raise
        return response

    def close(self) -> None:
        self._carrier.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_error_that_nobody_expects_leaves_it_open(service: Service, keys: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    with httpx.Client(transport=OnceTransport(keys, transport=_Below(fail))) as client, pytest.raises(error):
        client.post(f"{service.url}/pay")
    with Client(keys, trust_env=False) as client:
        [resumed] = client.resume()
        assert resumed.response is not None
    assert len(set(service.keys())) == 1
    assert service.effects["/pay"] == 1


def test_a_child_of_a_fork_sends_with_keys_of_its_own(service: Service, keys: Path) -> None:
    with Client(keys, trust_env=False) as client:
        client.post(f"{service.url}/pay")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with Client(client._once.executor.engine, trust_env=False) as own:
                    status = 0 if own.post(f"{service.url}/pay").status_code == 201 else 1
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.post(f"{service.url}/pay")
        engine = client._once.executor.engine
        assert [record.status for record in engine.records()] == [Status.COMPLETED] * 3
    assert len(set(service.keys())) == 3
