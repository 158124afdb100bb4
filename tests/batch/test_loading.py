"""Loading: an input is read once, is there as a whole or not at all, and is compared when it comes again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from semel import AsyncSemel, Semel
from semel.batch import Batch, BatchChanged, Batches, BatchInvalid, Item
from semel.batch import sources as batch_sources
from semel.engine.engine import engine_of
from semel.errors import KeyInvalid, UsageError
from tests.batch.desk import Desk

pytestmark = pytest.mark.anyio
UNSEEN = "characters nobody sees"


class Payment(msgspec.Struct):
    id: str
    amount: Decimal


class Amount(msgspec.Struct):
    amount: Decimal


@dataclass
class PaymentRow:
    id: str
    amount: Decimal


class PaymentModel(pydantic.BaseModel):
    id: str
    amount: Decimal


def items_of(count: int) -> list[dict[str, Any]]:
    return [{"id": f"i{n}", "n": n} for n in range(count)]


async def data_of(desk: Desk, batch: Any) -> list[Any]:
    """The data of all items, as their handler gets it."""
    seen: dict[int, Any] = {}
    await desk.run(batch, lambda item: seen.__setitem__(item.position, item.data))
    return [seen[position] for position in sorted(seen)]


async def test_an_iterable_is_loaded_in_its_order(desk: Desk) -> None:
    batch = await desk.start(items=iter(items_of(5)))
    assert batch.total == 5
    assert await data_of(desk, batch) == items_of(5)


async def test_an_async_iterable_is_loaded_by_an_async_engine_alone(desk: Desk) -> None:
    async def items() -> AsyncIterator[dict[str, Any]]:
        for item in items_of(5):
            yield item

    if desk.kind == "async":
        assert (await desk.start(items=items())).total == 5
        return
    with pytest.raises(UsageError, match="have to be awaited"):
        await desk.start(items=items())


async def test_items_without_an_id_are_numbered(desk: Desk) -> None:
    batch = await desk.start(items=["a", "b"], item_id=None)
    assert [result.id for result in await desk.results(batch)] == ["b_0", "b_1"]


async def test_an_id_may_lie_deeper_and_be_a_number(desk: Desk) -> None:
    batch = await desk.start(items=[{"order": {"no": 7}}, {"order": {"no": "x"}}], item_id="order.no")
    assert [result.id for result in await desk.results(batch)] == ["7", "x"]


@pytest.mark.parametrize("kind", [Payment, PaymentRow, PaymentModel])
async def test_items_may_be_objects_of_a_type_and_are_given_so(desk: Desk, kind: Any) -> None:
    items = [kind(id="p1", amount=Decimal("10.10")), kind(id="p2", amount=Decimal("0.3"))]
    batch = await desk.start(items=items, type=kind)
    assert await data_of(desk, batch) == items


async def test_json_lines_are_loaded(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "p1", "amount": 10.10}\n\n{"id": "p2", "amount": "0.30"}\n')
    batch = await desk.start(items=path, type=Payment)
    assert await data_of(desk, batch) == [Payment("p1", Decimal("10.10")), Payment("p2", Decimal("0.30"))]


async def test_a_number_of_a_file_keeps_all_its_digits(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "p1", "amount": 12345678901234567890.123456789}\n')
    batch = await desk.start(items=str(path), type=Payment)
    assert (await data_of(desk, batch))[0].amount == Decimal("12345678901234567890.123456789")


@pytest.mark.parametrize("kind", [Payment, PaymentModel])
async def test_csv_is_loaded_as_a_type(desk: Desk, tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "p.csv"
    path.write_text('\ufeffid,amount\np1,10.10\n"p,2","0.30"\n', encoding="utf-8")
    batch = await desk.start(items=path, type=kind)
    assert await data_of(desk, batch) == [
        kind(id="p1", amount=Decimal("10.10")),
        kind(id="p,2", amount=Decimal("0.30")),
    ]


async def test_json_lines_may_begin_with_a_byte_order_mark(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('\ufeff{"id": "p1", "amount": 1}\n{"id": "p2", "amount": 2}\n', encoding="utf-8")
    batch = await desk.start(items=path, type=Payment)
    assert [item.id for item in await data_of(desk, batch)] == ["p1", "p2"]


async def test_every_bad_line_is_named_before_anything_runs(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "a", "amount": 1}\nnonsense\n{"amount": 1}\n{"id": "b", "amount": "x"}\n{"id": true}\n')
    with pytest.raises(BatchInvalid) as caught:
        await desk.start(items=path, type=Payment)
    assert [line for line, _ in caught.value.problems] == [2, 3, 4, 5]
    assert caught.value.count == 4


async def test_every_bad_row_of_csv_is_named(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("id,amount\na,1\nb\nc,1,2\nd,x\n ,5\n")
    with pytest.raises(BatchInvalid) as caught:
        await desk.start(items=path, type=Payment)
    assert [line for line, _ in caught.value.problems] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ('a,1\nb,"1"2\nc,3\nd,"4"5\n', [3, 5]),
        ('a,1\nb,"2\nc,3\n', [3]),
        (f"a,1\nb,{'2' * 200_000}\nc,3\n", [3]),
        ('a,1\n\n\nb\n\nc,"1"2\n', [5, 7]),
        ('a,"1\n\n2"\na,"3\n4"\nb\n', [5, 7]),
    ],
    ids=["quotes inside", "quotes without an end", "longer than may be", "empty lines", "texts of several lines"],
)
async def test_a_bad_row_of_csv_is_named_by_the_line_where_it_begins(
    desk: Desk, tmp_path: Path, rows: str, lines: list[int]
) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"id,amount\n{rows}")
    with pytest.raises(BatchInvalid) as caught:
        await desk.start(items=path)
    assert [line for line, _ in caught.value.problems] == lines


@pytest.mark.parametrize("rows", ["", "a;1\nb;2\n"])
async def test_a_column_of_ids_that_is_not_there_is_told_once(desk: Desk, tmp_path: Path, rows: str) -> None:
    path = tmp_path / "items.csv"
    path.write_text(f"id;amount\n{rows}")
    with pytest.raises(BatchInvalid) as error:
        await desk.start(items=path)
    assert error.value.problems == ((1, "there is no column 'id' among 'id;amount'"),)
    assert await desk.listed(desk.batches()) == []


@pytest.mark.parametrize("text", ["", "\n\n"], ids=["nothing", "empty lines"])
async def test_a_file_without_a_line_is_a_batch_without_items(desk: Desk, tmp_path: Path, text: str) -> None:
    path = tmp_path / "items.csv"
    path.write_text(text)
    assert (await desk.start(items=path)).total == 0


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("p.csv", b"id,amount\nab\xff,1\nx,2\n", (2, "no UTF-8: there is the byte 0xff")),
        ("p.csv", b"id,amount\nab\xff,1\nx,2\n", (2, UNSEEN)),
        ("p.jsonl", b'{"id": "\\ud800"}\n{"id": "x"}\n', (1, "")),
        ("p.csv", b"id,amount,amount\n1,5,500\n", (1, "several columns 'amount'")),
        ("p.csv", b'"id,amount\n1,5\n', (1, "no CSV")),
        ("p.jsonl", b'{"id": "a", "amount": 1e400}\n{"id": "b"}\n', (1, "out of range")),
    ],
    ids=["byte", "byte of an id", "half a character", "column", "header", "number"],
)
async def test_what_a_handler_could_not_read_is_named_before_anything_runs(
    desk: Desk, tmp_path: Path, name: str, content: bytes, problem: tuple[int, str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BatchInvalid) as caught:
        await desk.start(items=path, type=Amount if problem[1] == UNSEEN else Any)
    ((line, text),) = caught.value.problems
    assert (line, problem[1] in text) == (problem[0], True), text


async def test_a_number_of_any_size_is_loaded_as_a_type_that_holds_it(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "p1", "amount": 1e400}\n')
    batch = await desk.start(items=path, type=Payment)
    assert await data_of(desk, batch) == [Payment("p1", Decimal("1e400"))]


async def test_an_input_that_is_refused_leaves_no_batch(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sources, "LOT", 3)
    with pytest.raises(BatchInvalid):
        await desk.start(items=[*items_of(8), {"no": "id"}])
    assert await desk.listed(desk.batches()) == []
    assert (await desk.run(await desk.start(8))).completed == 8


async def test_a_load_that_was_given_up_can_be_cancelled(desk: Desk) -> None:
    await give_up_loading(desk)
    batch = await desk.do(lambda: desk.batches().get("b"))
    assert (await desk.do(batch.status)).state == "loading"
    assert (await desk.do(lambda: batch.cancel("the file is gone"))).state == "cancelled"
    with pytest.raises(UsageError, match=r"was cancelled while it was loaded \(the file is gone\)"):
        await desk.start(5)


async def test_whoever_loads_a_batch_that_is_cancelled_meanwhile_is_told_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sources, "LOT", 3)
    other = Semel(engine_of(desk.semel).store)

    def cancel_in_the_middle() -> Iterator[Any]:
        yield from items_of(5)
        Batches(other).get("b").cancel("another file")
        yield from items_of(9)[5:]

    with pytest.raises(UsageError, match=r"was cancelled while it was loaded \(another file\)"):
        await desk.start(items=cancel_in_the_middle())


async def test_a_load_that_was_given_up_goes_by_itself(desk: Desk) -> None:
    await give_up_loading(desk)
    desk.clock.advance(timedelta(days=29))
    await desk.do(desk.semel.sweep)
    assert await desk.listed(desk.batches()) == ["b"]
    desk.clock.advance(timedelta(days=2))
    await desk.do(desk.semel.sweep)
    assert await desk.listed(desk.batches()) == []
    assert (await desk.run(await desk.start(5))).completed == 5


async def give_up_loading(desk: Desk) -> None:
    """Items of which some are loaded, and the rest cannot be read."""

    def some() -> Iterator[Any]:
        yield from items_of(batch_sources.LOT)
        raise ConnectionError("the source is gone")

    with pytest.raises(ConnectionError):
        await desk.start(items=some())


async def test_a_batch_that_was_found_while_it_was_loaded_is_run_and_read_to_its_end(desk: Desk) -> None:
    found: list[Any] = []

    def items() -> Iterator[Any]:
        yield {"id": "i0"}
        batches = desk.batches()
        found.append(batches.get("b") if desk.kind == "sync" else batches)
        yield from ({"id": f"i{n}"} for n in range(1, 10))

    async def aitems() -> AsyncIterator[Any]:
        for item in items():
            yield item
            if found and not isinstance(found[0], Batch):
                found[0] = await found[0].get("b")

    await desk.start(items=items() if desk.kind == "sync" else aitems())
    (early,) = found
    assert [result.status for result in await desk.results(early)] == ["pending"] * 10

    def fail_some(item: Item) -> None:
        if item.position < 4:
            raise ValueError("no")

    status = await desk.run(early, fail_some, concurrency=1, max_failed="40%")
    assert (status.state, status.completed, status.failed) == ("completed", 6, 4)
    assert len(await desk.results(early)) == 10


@pytest.mark.parametrize("apart", [1, 5])
async def test_an_id_that_occurs_twice_is_refused(desk: Desk, apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sources, "LOT", 3)
    items = items_of(8)
    items[1 + apart]["id"] = "i1"
    with pytest.raises(BatchInvalid, match="'i1' was there already") as caught:
        await desk.start(items=items)
    assert [line for line, _ in caught.value.problems] == [1 + apart]


async def test_each_id_that_cannot_be_used_is_named_among_many_that_can(desk: Desk) -> None:
    items = items_of(150)
    for line, id_ in {3: " i3", 9: "i9\n", 12: "größe", 70: "", 90: "i8", 91: "x" * 201, 140: "i139"}.items():
        items[line]["id"] = id_
    with pytest.raises(BatchInvalid) as caught:
        await desk.start(items=items)
    assert [line for line, _ in caught.value.problems] == [3, 9, 70, 90, 91, 140]


@pytest.mark.parametrize(("has_one_writer", "largest"), [(True, 2000), (False, 5000)])
def test_lots_are_smaller_where_all_other_writers_wait(has_one_writer: bool, largest: int) -> None:
    items = [{"id": f"i{n}"} for n in range(5500)]
    reader = batch_sources.make_reader("b", items, "id", Any, None, has_one_writer=has_one_writer)
    lots = list(batch_sources.sync_lots(items, reader))
    assert max(len(lot.items) for lot in lots) == largest
    assert [item.position for lot in lots for item in lot.items] == list(range(5500))


async def test_duplicates_and_bad_items_are_named_together(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sources, "LOT", 2)
    items: list[Any] = [*items_of(4), {"id": "i0"}, {"no": 1}, {"id": "i9"}, {"id": "i9"}]
    with pytest.raises(BatchInvalid) as caught:
        await desk.start(items=items)
    assert [line for line, _ in caught.value.problems] == [4, 5, 7]


async def test_a_corrected_input_is_loaded_under_the_same_id(desk: Desk) -> None:
    with pytest.raises(BatchInvalid):
        await desk.start(items=[{"id": "a"}, {"no": 1}])
    assert (await desk.start(items=[{"id": "a"}, {"id": "b"}])).total == 2


async def test_the_same_items_are_the_same_batch_in_any_order(desk: Desk) -> None:
    first = await desk.start(5)
    await desk.run(first)
    again = await desk.start(items=list(reversed(items_of(5))))
    assert (await desk.run(again)).completed == 5
    assert len(desk.ran) == 5


async def test_other_items_under_the_same_id_are_refused_with_what_differs(desk: Desk) -> None:
    await desk.start(5)
    changed = items_of(6)[1:]
    changed[0]["n"] = 100
    with pytest.raises(BatchChanged) as caught:
        await desk.start(items=changed)
    assert caught.value.differences == (
        "'i1' (in 0) has other data",
        "'i5' (in 4) is new",
        "'i0' is missing",
    )
    assert desk.ran == []


async def test_no_more_than_ten_differences_are_shown(desk: Desk) -> None:
    await desk.start(5)
    with pytest.raises(BatchChanged) as caught:
        await desk.start(items=[{"id": f"x{n}"} for n in range(50)])
    assert len(caught.value.differences) == 10


async def test_two_equal_items_more_are_noticed(desk: Desk) -> None:
    await desk.start(items=["a"], item_id=None)
    with pytest.raises(BatchChanged):
        await desk.start(items=["a", "b", "b"], item_id=None)


async def test_another_operation_under_the_same_id_is_refused(desk: Desk) -> None:
    await desk.start(3)
    with pytest.raises(BatchChanged, match="operation was 'pay' and is 'refund'"):
        await desk.start(3, operation="refund")


async def test_other_metadata_is_noted_and_the_first_stays(desk: Desk) -> None:
    await desk.start(3, metadata={"by": "ann"})
    batch = await desk.start(3, metadata={"by": "bob"})
    await desk.start(3, metadata={"by": "carl"})
    status = await desk.do(batch.status)
    assert status.metadata == {"by": "ann"}
    assert len(status.notes) == 1


async def test_other_metadata_is_noted_where_a_load_goes_on_that_was_cut_off(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sources, "LOT", 3)
    items = items_of(10)
    with pytest.raises(ConnectionResetError):
        await desk.start(items=cut_off(items, 8), metadata={"by": "ann"})
    status = await desk.do((await desk.start(items=items, metadata={"by": "bob"})).status)
    assert (status.state, status.metadata, len(status.notes)) == ("pending", {"by": "ann"}, 1)


def cut_off(items: list[Any], after: int) -> Iterator[Any]:
    yield from items[:after]
    raise ConnectionResetError("the source broke off")


async def test_loading_goes_on_after_it_was_cut_off(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sources, "LOT", 3)
    items = items_of(10)
    with pytest.raises(ConnectionResetError):
        await desk.start(items=cut_off(items, 8))
    batch = await desk.do(lambda: desk.batches().get("b"))
    status = await desk.do(batch.status)
    assert (status.state, status.loaded, status.total) == ("loading", 6, 0)
    assert (await desk.run(batch)).state == "loading", "workers see nothing of it"
    assert desk.ran == []
    again = await desk.start(items=iter(items))
    assert await data_of(desk, again) == items


async def test_what_was_loaded_of_another_input_is_replaced(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sources, "LOT", 3)
    with pytest.raises(ConnectionResetError):
        await desk.start(items=cut_off([{"id": f"old{n}"} for n in range(9)], 9))
    batch = await desk.start(4)
    assert await data_of(desk, batch) == items_of(4)


async def test_an_empty_batch_is_completed_by_its_first_run(desk: Desk) -> None:
    batch = await desk.start(0)
    assert (await desk.run(batch)).state == "completed"


@pytest.mark.parametrize("source", [7, {"a": 1}, b"bytes"])
async def test_what_is_no_source_is_refused(desk: Desk, source: Any) -> None:
    with pytest.raises(UsageError, match="iterable or a path"):
        await desk.start(items=source)


async def test_a_file_of_another_kind_is_refused(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither in .jsonl nor in .csv"):
        await desk.start(items=tmp_path / "p.txt")


async def test_a_batch_needs_an_id_that_can_be_one(desk: Desk) -> None:
    with pytest.raises(KeyInvalid):
        await desk.start(1, id="")


@pytest.mark.parametrize("id_", [("a", "b"), 5, None])
async def test_a_batch_is_named_by_a_text_alone(desk: Desk, id_: Any) -> None:
    with pytest.raises(KeyInvalid, match="named by a text"):
        await desk.start(1, id=id_)
    with pytest.raises(KeyInvalid, match="named by a text"):
        await desk.do(lambda: desk.batches().get(id_))


def no_batch_source(_path: Path) -> Any:
    return 7


def missing_file(path: Path) -> Any:
    return path / "missing.csv"


def folder(path: Path) -> Any:
    (path / "folder.csv").mkdir()
    return path / "folder.csv"


def broken(_path: Path) -> Any:
    yield from ()
    raise ConnectionError("the source is gone")


@pytest.mark.parametrize("make", [no_batch_source, missing_file, folder, broken])
async def test_a_source_that_gives_nothing_leaves_no_batch(desk: Desk, tmp_path: Path, make: Any) -> None:
    with pytest.raises(ConnectionError if make is broken else UsageError):
        await desk.start(items=make(tmp_path))
    assert await desk.listed(desk.batches()) == []


async def test_what_has_to_be_awaited_leaves_no_batch_where_it_cannot(desk: Desk) -> None:
    async def items() -> AsyncIterator[Any]:
        yield {"id": "i0"}

    if desk.kind == "sync":
        with pytest.raises(UsageError, match="have to be awaited"):
            await desk.start(items=items())
        assert await desk.listed(desk.batches()) == []


async def test_whatever_about_raises_is_named_with_its_item(desk: Desk) -> None:
    with pytest.raises(BatchInvalid) as refused:
        await desk.start(items=[{"id": "a", "who": "ann"}, {"id": "b"}], about=lambda item: {"subject": item["who"]})
    assert refused.value.problems == ((1, "about= raised KeyError: 'who'"),)
    assert await desk.listed(desk.batches()) == []


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_number_that_json_does_not_have_is_refused(desk: Desk, number: float) -> None:
    with pytest.raises(BatchInvalid, match="cannot be kept as JSON"):
        await desk.start(items=[{"id": "a", "rows": [{"amount": number}]}])


async def test_nothing_is_loaded_as_nothing(desk: Desk) -> None:
    batch = await desk.start(items=[{"id": "a", "amount": None}])
    seen: list[Any] = []
    await desk.run(batch, lambda item: seen.append(item.data))
    assert seen == [{"amount": None, "id": "a"}]


@pytest.mark.parametrize("metadata", [object(), {"x": float("nan")}])
async def test_metadata_that_has_no_json_is_refused(desk: Desk, metadata: Any) -> None:
    with pytest.raises(UsageError, match="metadata= cannot be kept as JSON"):
        await desk.start(1, metadata=metadata)
    assert await desk.listed(desk.batches()) == []


@pytest.mark.parametrize("make", [Semel, AsyncSemel])
@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "dynamodb://table?endpoint=http://127.0.0.1:1&region=x"])
def test_a_store_without_batches_is_refused_when_batches_are_made(make: Callable[[str], Any], url: str) -> None:
    with pytest.raises(UsageError, match="would lose count of itself"):
        Batches(make(url))
