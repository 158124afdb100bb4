"""Who plays on two tiers: readers, the one who erases, the sweep, and the one who completes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from semel.core.flow import Flow
from semel.core.operations import Answer, Claim, Complete, Confirm, Erase, Invalidate, Pending, PendingInvalidations
from semel.errors import StoreUnavailable
from tests.simulate.tiers.world import (
    BODY,
    KEY,
    LEASE,
    Begin,
    Caller,
    End,
    Joined,
    Process,
    Programme,
    Purged,
    Shown,
    claim_of,
)


def reader(number: int, *, times: int = 1, fingerprint: bytes = b"\1", slowly: bool = False) -> Programme:
    """Asks for the one key, so often. `slowly`: what it is answered takes its time on the way."""

    def programme(process: Process) -> Caller:
        for _ in range(times):
            yield from _asks(process, claim_of(number, fingerprint), slowly=slowly)

    return programme


def _asks(process: Process, claim: Claim, *, slowly: bool) -> Caller:
    began = yield Begin()
    erased_here = process.has_erased
    answer = process.tiers.at_hand(claim)
    try:
        flow = None if answer is not None else process.tiers.ask(claim)
        if flow is not None:
            answer = yield from _delayed(flow) if slowly else flow
    except StoreUnavailable:
        return
    yield Shown(answer, claim, began, erased_here)


def _delayed(flow: Flow[Answer]) -> Generator[Any, Any, Answer]:
    """The same flow; between what it asks for and the answer others may come."""
    wanted = next(flow)
    while True:
        answer = yield wanted
        yield Begin()
        try:
            wanted = flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # of the flow


def eraser(process: Process) -> Caller:
    """Erases the record."""
    yield Begin()
    flow = process.tiers.ask(Erase(KEY.digest, "", KEY.operation))
    assert flow is not None
    try:
        yield from flow
    except StoreUnavailable:
        return
    process.has_erased = True


def purger(process: Process) -> Caller:
    """Has the caches forget the record at once, and asks for it again: the answer is to come from the store."""
    began = yield Begin()
    flow = process.tiers.ask(Invalidate(KEY.digest, KEY.operation, at_once=True))
    assert flow is not None
    try:
        yield from flow
    except StoreUnavailable as error:
        yield Purged(began, str(error), is_at_hand=False)
        return
    yield Purged(began, "", is_at_hand=process.tiers.at_hand(claim_of(7)) is not None)


def reads_and_purges(process: Process) -> Caller:
    """One after the other, so that nobody fills anything in between."""
    yield from reader(1)(process)
    yield from purger(process)


def sweeper(process: Process) -> Caller:
    """Repeats what is pending, as a sweep does."""
    try:
        awaiting: PendingInvalidations = yield Pending(10)
        for noted in awaiting.invalidations:
            flow = process.tiers.ask(Invalidate(noted.digest, noted.operation, noted.noted_us))
            assert flow is not None
            yield from flow
            yield Confirm(noted.digest, noted.noted_us)
    except StoreUnavailable:
        return


def completer(process: Process) -> Caller:
    """Completes what it runs."""
    complete = Complete(LEASE, BODY)
    flow = process.tiers.ask(complete)
    try:
        if flow is None:
            yield complete
        else:
            yield from flow
    except StoreUnavailable:
        return


def joined_completer(process: Process) -> Caller:
    """Completes in a transaction of the caller, asks for it there once more, and ends the transaction one way or other.

    The engine never asks the tiers about what is joined; a mutant that would has a method `joined`.
    """
    joined = getattr(process.tiers, "joined", Joined)
    for operation in (Complete(LEASE, BODY), claim_of(8)):
        wanted = joined(operation)
        if isinstance(wanted, Joined):
            yield wanted
        else:
            yield from wanted
    yield End()
