"""Chunks of a batch as tasks of Celery, called as functions: what becomes of items, and what is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

from semel import AsyncSemel, DidNotHappen, Semel
from semel.batch import Batches, Item, Skip, item
from semel.batch.engines.celery import batch_task, dispatch
from semel.batch.engines.single import SyncSingleRunner
from semel.errors import KeyReused, RecordNotFound, RecordUnreadable, SemelError, StoreUnavailable, TryLater, UsageError
from tests.batch.test_item import Died, die
from tests.security.test_resealing import RING


class Shop:
    """A batch of ten items, and a task that runs chunks of it."""

    def __init__(self) -> None:
        self.semel = Semel("memory://")
        self.batches = Batches(self.semel)
        self.app = Celery("shop", broker="memory://", set_as_current=False)
        items = [{"id": f"i{n}", "n": n} for n in range(10)]
        self.batch = self.batches.start("b", items, operation="pay", item_id="id")
        self.ran: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.sent: list[tuple[Any, ...]] = []
        self.task = self.make()

    def make(self, **options: Any) -> Any:
        """A task, which notes what is sent to it."""
        made = batch_task(self.app, self.batches, shared=False, name=f"pay-{len(self.app.tasks)}", **options)(self.pay)
        made.apply_async = lambda args, **_: self.sent.append(args)
        return made

    def pay(self, item: Item) -> str:
        self.ran.append(item.id)
        if item.id in self.errors:
            raise self.errors[item.id]
        return item.id


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.semel.close()
    made.app.close()


def test_a_chunk_runs_its_items_once_however_often_it_is_delivered(shop: Shop) -> None:
    assert [shop.task("b", ["i1", "i2"]) for _ in range(2)] == [2, 2]
    assert shop.ran == ["i1", "i2"]
    assert shop.batch.status().completed == 2


def test_the_batch_is_completed_when_all_chunks_are(shop: Shop) -> None:
    dispatch(shop.task, shop.batch, chunk=4)
    for args in reversed(shop.sent):
        shop.task(*args)
    assert shop.batch.status().state == "completed"


def test_what_fails_or_is_skipped_does_not_keep_the_others_of_a_chunk_from_running(shop: Shop) -> None:
    shop.errors = {"i0": OSError("down"), "i1": Skip("nothing to pay")}
    assert shop.task("b", ["i0", "i1", "i2"]) == 3
    status = shop.batch.status()
    assert (status.completed, status.failed, status.skipped) == (1, 1, 1)


def test_an_item_whose_key_was_used_for_something_else_fails_alone(shop: Shop) -> None:
    shop.semel.run(("b", "i1"), lambda: "other", operation="pay", fingerprint={"other": 1})
    assert shop.task("b", ["i0", "i1", "i2"]) == 3
    status = shop.batch.status()
    assert (status.completed, status.failed, shop.ran) == (2, 1, ["i0", "i2"])


@pytest.mark.parametrize("kind", [KeyReused, RecordNotFound, UsageError, TryLater, StoreUnavailable])
def test_an_error_of_semel_that_the_function_raised_ends_its_item_alone(shop: Shop, kind: type[SemelError]) -> None:
    shop.errors = {"i1": kind("of another call")}
    assert shop.task("b", ["i0", "i1", "i2"]) == 3
    status = shop.batch.status()
    assert (status.completed, status.failed) == (2, 1)


def test_an_item_that_may_be_tried_again_is_left_and_the_others_are_not(shop: Shop) -> None:
    task = shop.make(max_attempts=2)
    shop.errors = {"i0": OSError("down")}
    with pytest.raises(TryLater, match="1 items of the batch 'b' have not ended"):
        task("b", ["i0", "i1"])
    shop.errors.clear()
    assert task("b", ["i0"]) == 1
    assert shop.ran == ["i0", "i1", "i0"]


def test_an_item_whose_value_was_not_kept_has_ended(shop: Shop) -> None:
    task = shop.make(max_attempts=3, max_result=1)
    assert [task("b", ["i1", "i2"]) for _ in range(2)] == [2, 2]
    assert shop.ran == ["i1", "i2"]


def test_a_time_limit_ends_one_item_and_leaves_the_rest_of_the_chunk(shop: Shop) -> None:
    shop.errors = {"i1": SoftTimeLimitExceeded()}
    with pytest.raises(TryLater, match="2 items"):
        shop.task("b", ["i0", "i1", "i2", "i3"])
    assert shop.ran == ["i0", "i1"]


def test_an_item_that_may_be_tried_again_after_a_time_limit_is_sent_again(shop: Shop) -> None:
    shop.errors = {"i1": SoftTimeLimitExceeded()}
    with pytest.raises(TryLater, match="3 items"):
        shop.make(max_attempts=2)("b", ["i0", "i1", "i2", "i3"])


def test_an_item_that_a_time_limit_cut_off_beside_its_function_is_sent_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: Any) -> None:
        raise SoftTimeLimitExceeded

    monkeypatch.setattr(SyncSingleRunner, "_prepare", cut_off)
    with pytest.raises(TryLater, match="2 items"):
        shop.task("b", ["i0", "i1"])


def test_what_a_store_that_does_not_answer_cut_off_is_left(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def go_silent(_runner: Any, id_: str) -> None:
        if id_ == "i1":
            raise StoreUnavailable("no answer")

    monkeypatch.setattr(SyncSingleRunner, "run_one", go_silent)
    with pytest.raises(TryLater, match="2 items of the batch 'b' have not ended"):
        shop.task("b", ["i0", "i1", "i2"])
    monkeypatch.setattr(Batches, "get", die_silently)
    with pytest.raises(TryLater, match="3 items"):
        shop.task("b", ["i0", "i1", "i2"])


def die_silently(*_: Any, **__: Any) -> None:
    raise StoreUnavailable("no answer")


def test_a_chunk_of_a_paused_batch_runs_nothing_and_is_sent_after_it_was_resumed(shop: Shop) -> None:
    shop.task("b", ["i0"])
    shop.batch.pause()
    assert shop.task("b", ["i1", "i2"]) == 0
    with pytest.raises(UsageError, match="is paused"):
        dispatch(shop.task, shop.batch)
    assert shop.ran == ["i0"]
    shop.batch.resume()
    assert dispatch(shop.task, shop.batch, chunk=5) == 2
    assert shop.sent == [("b", ["i1", "i2", "i3", "i4", "i5"]), ("b", ["i6", "i7", "i8", "i9"])]


def test_a_chunk_of_a_cancelled_batch_runs_nothing(shop: Shop) -> None:
    shop.batch.cancel()
    assert shop.task("b", ["i1"]) == 0
    assert shop.ran == []


def test_what_a_person_says_did_not_happen_is_sent_again(shop: Shop) -> None:
    def end_the_process() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        item(shop.batch, "i1", in_doubt="hold")(end_the_process)()
    assert shop.make(in_doubt="hold")("b", ["i1"]) == 1
    assert shop.batch.status().in_doubt == 1
    shop.semel.resolve(("b", "i1"), DidNotHappen(), operation="pay", reason="seen")
    dispatch(shop.task, shop.batch)
    assert "i1" in [id_ for _, ids in shop.sent for id_ in ids]


def test_to_dispatch_finishes_what_a_crash_left(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(SyncSingleRunner, "_finish_page_of", die)
        for n in range(10):
            with pytest.raises(Died):
                item(shop.batch, f"i{n}")(shop.pay)()
    assert shop.batch.status().state == "running"
    assert dispatch(shop.task, shop.batch) == 0
    assert shop.batch.status().state == "completed"


def test_a_worker_without_the_keys_of_a_sealed_store_counts_nothing_as_ended(shop: Shop, tmp_path: Path) -> None:
    with Semel(tmp_path / "semel.db", seal=RING) as sealed, Semel(tmp_path / "semel.db") as keyless:
        batch = Batches(sealed).start("s", [{"id": "i0"}, {"id": "i1"}], operation="pay", item_id="id")
        shop.batches = Batches(keyless)
        with pytest.raises(RecordUnreadable):
            shop.make()("s", ["i0", "i1"])
        shop.batches = Batches(sealed)
        assert shop.make()("s", ["i0", "i1"]) == 2
        assert batch.status().completed == 2


def test_what_would_lose_messages_or_cannot_be_called_is_refused(shop: Shop) -> None:
    with pytest.raises(UsageError, match="acks_late=False"):
        shop.make(acks_late=False)
    with pytest.raises(UsageError, match="leave bind out"):
        shop.make(bind=True)
    with pytest.raises(UsageError, match="lease_for"):
        shop.make(lease_fro=1)
    with pytest.raises(UsageError, match="Batches of a Semel"):
        batch_task(shop.app, Batches(AsyncSemel("memory://")))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="from 1 to 10000"):
        dispatch(shop.task, shop.batch, chunk=0)
