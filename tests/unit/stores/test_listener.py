"""The completion listener: what operators read when its connection is lost."""

import asyncio
import logging

import pytest

from semel.stores.listener import ListeningTask


class Broken(ListeningTask):
    """A listener that cannot connect."""

    def __init__(self) -> None:
        self.tried = asyncio.Event()
        self._start()

    async def _listened(self) -> None:
        self.tried.set()
        raise ConnectionError


async def _listen_once() -> None:
    listener = Broken()
    await listener.tried.wait()
    await listener.close()


def test_a_lost_connection_is_logged_with_what_waiters_do_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "semel")
    asyncio.run(_listen_once())
    expected = "completion listener lost its connection (ConnectionError); waiters poll until it is back"
    assert [line.getMessage() for line in caplog.records if line.name == "semel"] == [expected]
