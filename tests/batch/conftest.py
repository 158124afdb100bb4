"""A desk for each kind of engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.batch.desk import KINDS, ClockedDesk, Desk


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=KINDS)
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    made = Desk(request.param)
    yield made
    await made.close()


@pytest.fixture(params=KINDS)
async def clocked(request: pytest.FixtureRequest) -> AsyncIterator[ClockedDesk]:
    made = ClockedDesk(request.param)
    yield made
    await made.close()
