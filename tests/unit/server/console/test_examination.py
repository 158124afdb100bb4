"""What the doctor's page finds: looked for by one, and kept for half a minute."""

import asyncio
from datetime import timedelta

import pytest

from semel.core.store import Capability
from semel.server.console.examination import KEPT_SECONDS, Examination
from semel.stores.admin import Admin, Finding
from semel.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Examined(MemoryStore):
    """A store that counts how often it is looked at."""

    capabilities = MemoryStore.capabilities | {Capability.EXAMINE}
    looks = 0
    fails = False

    def admin(self) -> Admin:
        """What is looked at."""
        store = self

        class Looked(Admin):
            def examine(self, horizon: timedelta) -> list[Finding]:
                del horizon
                store.looks += 1
                if store.fails:
                    raise ConnectionError
                return [Finding("disk", "full", "fix", "empty it", ("durable",))]

        return Looked("examined")


async def test_many_who_ask_at_a_time_look_once_and_later_ones_look_again() -> None:
    store, now = Examined(), [0.0]
    examination = Examination(store, [Finding("server", "open")], lambda: now[0])
    found = await asyncio.gather(*(examination.look() for _ in range(5)))
    assert store.looks == 1
    assert {one.to_fix for one in found} == {1}
    assert [finding.topic for finding in found[0].findings] == ["server", "disk"]
    assert not found[0].promises[0].holds
    now[0] = KEPT_SECONDS - 1
    await examination.look()
    assert store.looks == 1
    now[0] = KEPT_SECONDS
    await examination.look()
    assert store.looks == 2


async def test_a_look_that_failed_is_not_kept() -> None:
    store = Examined()
    store.fails = True
    examination = Examination(store)
    with pytest.raises(ConnectionError):
        await examination.look()
    store.fails = False
    assert (await examination.look()).to_fix == 1
