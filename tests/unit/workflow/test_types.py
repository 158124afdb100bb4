"""What type checkers see of delegates. mypy reads `assert_type`; pytest runs the same lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import assert_type

from semel import AsyncSemel, Semel
from semel.stores.memory import MemoryStore
from semel.workflow import BpmnError, Completed, Delegate, Incident, Retry, delegate

End = Completed | BpmnError | Retry | Incident


class ForLoops(Delegate):
    """Without saying so, a delegate is for event loops."""

    operation = "LOOPS"
    key = "claimId"

    async def execute(self, claimId: str) -> int:  # noqa: N803
        return 1


class ForThreads(Delegate[Semel]):
    """The same for threads."""

    operation = "THREADS"
    key = "claimId"

    def execute(self, claimId: str) -> int:  # noqa: N803
        return 1


def test_a_delegate_of_threads_gives_its_end() -> None:
    task = ForThreads(Semel(MemoryStore()))
    assert_type(task.run({"claimId": "1"}), End)


def test_a_delegate_of_loops_is_awaited() -> None:
    async def main() -> None:
        semel = AsyncSemel(MemoryStore())
        task = ForLoops(semel)
        running = task.run({"claimId": "1"})
        assert_type(running, Awaitable[End])
        assert_type(await running, End)
        await semel.close()

    asyncio.run(main())


def test_a_decorated_function_is_of_the_kind_of_its_engine() -> None:
    @delegate(Semel(MemoryStore()), operation="DECORATED", key="claimId")
    def decorated(claimId: str) -> int:  # noqa: N803
        return 1

    assert_type(decorated, Delegate[Semel])
    assert_type(decorated.run({"claimId": "1"}), End)
