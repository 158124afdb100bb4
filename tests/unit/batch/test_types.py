"""What type checkers see of batches. mypy reads `assert_type`; pytest runs the same lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from semel import AsyncSemel, Semel
from semel.batch import Batch, Batches, BatchStatus, Item, ItemResult, item
from semel.errors import UsageError
from semel.stores.memory import MemoryStore


@dataclass
class Receipt:
    """What a handler gives."""

    number: str


def pay(item: Item) -> Receipt:
    return Receipt(item.id)


async def pay_awaited(item: Item) -> Receipt:
    return Receipt(item.id)


def started(semel: Semel) -> Batch[Semel]:
    return Batches(semel).start("b", [{"id": "a"}], operation="pay", item_id="id")


def test_batches_of_threads_give_what_they_say() -> None:
    semel = Semel(MemoryStore())
    batches = Batches(semel)
    assert_type(batches, Batches[Semel])
    batch = batches.start("b", [{"id": "a"}], operation="pay", item_id="id")
    assert_type(batch, Batch[Semel])
    assert_type(batches.get("b"), Batch[Semel])
    assert_type(batches.list(), Iterator[Batch[Semel]])
    assert_type(batch.run(pay), BatchStatus)
    assert_type(batch.status(), BatchStatus)
    assert_type(batch.retry("failed"), int)


def test_batches_of_loops_are_awaited() -> None:
    async def main() -> None:
        semel = AsyncSemel(MemoryStore())
        batches = Batches(semel)
        assert_type(batches, Batches[AsyncSemel])
        batch = await batches.start("b", [{"id": "a"}], operation="pay", item_id="id")
        assert_type(batch, Batch[AsyncSemel])
        running = batch.run(pay_awaited)
        assert_type(running, Awaitable[BatchStatus])
        assert_type(await running, BatchStatus)
        assert_type(await batches.get("b"), Batch[AsyncSemel])
        assert_type(batches.list(), AsyncIterator[Batch[AsyncSemel]])
        assert_type(await batch.status(), BatchStatus)
        await semel.close()

    asyncio.run(main())


def test_results_are_of_the_type_that_they_are_read_as() -> None:
    batch = started(Semel(MemoryStore()))
    batch.run(pay)
    typed = batch.results(type=Receipt)
    assert_type(typed, Iterator[ItemResult[Receipt]])
    (line,) = typed
    assert_type(line.value, Receipt | None)
    assert line.value == Receipt("a")
    assert_type(batch.results(), Iterator[ItemResult[Any]])
    assert_type(batch.results(type=list[Receipt]), Iterator[ItemResult[list[Receipt]]])


def test_results_of_loops_are_iterated_so() -> None:
    async def main() -> None:
        semel = AsyncSemel(MemoryStore())
        batch = await Batches(semel).start("b", [{"id": "a"}], operation="pay", item_id="id")
        await batch.run(pay_awaited)
        found = batch.results(type=Receipt)
        assert_type(found, AsyncIterator[ItemResult[Receipt]])
        assert [line.value async for line in found] == [Receipt("a")]
        assert_type(batch.results(status="failed"), AsyncIterator[ItemResult[Any]])
        await semel.close()

    asyncio.run(main())


def test_an_item_by_itself_keeps_what_its_function_gives() -> None:
    batch = started(Semel(MemoryStore()))
    guarded = item(batch, "a", max_attempts=2, lease_for=5, wait_for=1)(pay)
    assert_type(guarded, Callable[[], Receipt])
    assert_type(guarded(), Receipt)


def test_an_item_by_itself_of_loops_is_awaited() -> None:
    async def main() -> None:
        semel = AsyncSemel(MemoryStore())
        batch = await Batches(semel).start("b", [{"id": "a"}], operation="pay", item_id="id")
        guarded = item(batch, "a")(pay_awaited)
        assert_type(guarded, Callable[[], Awaitable[Receipt]])
        assert_type(await guarded(), Receipt)
        await semel.close()

    asyncio.run(main())


def test_mistakes_are_found_by_type_checkers_and_when_run() -> None:
    batch = started(Semel(MemoryStore()))
    with pytest.raises(UsageError):
        item(batch, "a", lease=5)  # type: ignore[call-overload]  # a field that there is not
    with pytest.raises(UsageError):
        batch.retry("completed")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        item(batch, "a")(pay)("a")  # type: ignore[call-arg]  # it takes nothing
    with pytest.raises(UsageError):
        batch.run(pay, keep_for=5)  # type: ignore[call-arg]  # records go with their batch
