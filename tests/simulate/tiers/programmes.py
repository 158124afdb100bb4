"""Who plays on two tiers: readers, the one who erases, the sweep, and the one who completes."""

from __future__ import annotations

from semel.core.operations import Awaiting, Claim, Complete, Confirm, Erase, Invalidate, Pending
from semel.errors import StoreUnavailable
from tests.simulate.tiers.world import BODY, KEY, LEASE, Begin, Caller, End, Joined, Process, Programme, Shown, claim_of


def reader(number: int, *, times: int = 1, fingerprint: bytes = b"\1") -> Programme:
    """Asks for the one key, so often."""

    def programme(process: Process) -> Caller:
        for _ in range(times):
            yield from _asks(process, claim_of(number, fingerprint))

    return programme


def _asks(process: Process, claim: Claim) -> Caller:
    began = yield Begin()
    answer = process.tiers.at_hand(claim)
    try:
        flow = None if answer is not None else process.tiers.ask(claim)
        answer = answer if flow is None else (yield from flow)
    except StoreUnavailable:
        return
    yield Shown(answer, claim, began)


def eraser(process: Process) -> Caller:
    """Erases the record."""
    yield Begin()
    flow = process.tiers.ask(Erase(KEY.digest, "", KEY.operation))
    assert flow is not None
    try:
        yield from flow
    except StoreUnavailable:
        return


def sweeper(process: Process) -> Caller:
    """Repeats what is pending, as a sweep does."""
    try:
        awaiting: Awaiting = yield Pending(10)
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
