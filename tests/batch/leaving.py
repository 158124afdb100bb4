"""What a process leaves behind that dies: a batch that has begun, and claims that nobody ends."""

from __future__ import annotations

from typing import Any

import msgspec

from semel.batch import Item
from semel.core.batch.operations import BeginRun, ClaimItems, TakePage
from semel.core.batch.values import KEPT_US, BatchPage, item_digest, item_key, page_key
from semel.core.fingerprint import Digest
from semel.core.flow import ask
from semel.core.operations import Claim, Terms
from semel.core.record import NOTHING
from semel.engine.engine import engine_of
from tests.batch.desk import Desk


async def perform(desk: Desk, operation: Any) -> Any:
    """Have the store carry an operation out, as some other process would."""

    def flow() -> Any:
        return (yield from ask(operation))

    return await desk.do(lambda: engine_of(desk.semel).perform_on(None, flow()))


async def leave_behind(desk: Desk, batch: Any, items: range, *, in_doubt: Any = "rerun", page: int = 0) -> list[Any]:
    """Claim a page and items of it as a process does that dies then; answers the leases of the items."""
    fingerprints = engine_of(desk.semel).fingerprints
    number = batch._batch.number
    await perform(desk, TakePage(number))
    terms = Terms(30_000_000, KEPT_US, in_doubt, 30_000_000)
    of_page = Claim(
        page_key("", "b", BatchPage(page, 0)),
        fingerprints.take(None),
        b"p" * 16,
        Terms(30_000_000, KEPT_US, "rerun", 0),
        NOTHING,
    )
    claims = [of_page]
    for n in items:
        data = msgspec.json.encode({"id": f"i{n}", "n": n}, order="deterministic")
        taken = fingerprints.take(Digest(item_digest(f"i{n}", data)))
        claims.append(Claim(item_key("", "pay", "b", f"i{n}"), taken, bytes([n + 1]) * 16, terms, NOTHING))
    answers = (await perform(desk, ClaimItems(tuple(claims)))).answers
    return [answer.lease for answer in answers[1:]]


async def begin(desk: Desk, batch: Any) -> None:
    """Have the batch running, with pages of three, and nothing done."""

    def stop(_item: Item) -> None:
        raise AssertionError("nothing is to be run")

    await desk.do(batch.pause)
    await desk.run(batch, stop)
    await desk.do(batch.resume)
    await perform(desk, BeginRun(batch._batch.number, 3))
