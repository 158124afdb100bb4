"""What the tiers do with an operation, as flows: they yield operations, for the cache (`InFront`) or the store behind.

What always holds: only completed, unexpired records of the same key are taken from a cache, and their fingerprint is
compared as the store would. A cache is filled from what the store answered to a claim, never by a completion, and under
an epoch that was there before the claim was sent. Whatever befalls a cache, the store behind it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from semel.core.flow import Flow
from semel.core.observer import Event, Observer, is_heard, notify
from semel.core.operations import Answer, Claim, Operation, Replay, Resolve, Resolved, Reused
from semel.core.record import Record, Status
from semel.core.tiers import CacheOperation, Drop, Fill, Hit, InFront, Look, Missed
from semel.stores.tiered.entries import fits
from semel.stores.tiered.gate import Gate
from semel.stores.tiered.local import Kept, Local
from semel.stores.tiered.settings import Cache

_SECOND: Final = 1_000_000
_A_MOMENT_US: Final = 10 * _SECOND
_NOTHING: Final = Missed()


class Tiers:
    """The caches in front of a store, and the rules for them."""

    def __init__(
        self,
        cache: Cache,
        gate: Gate,
        local: Local | None,
        *,
        monotonic: Callable[[], float],
        observer: Observer,
        new_epoch: Callable[[], bytes],
    ) -> None:
        self._cache = cache
        self._gate = gate
        self._local = local
        self._monotonic = monotonic
        self._observer = observer
        self._new_epoch = new_epoch
        self._shared = cache.url is not None

    def at_hand(self, operation: Operation) -> Answer | None:
        """The answer to a claim, where this process knows it."""
        if self._local is None or not isinstance(operation, Claim):
            return None
        kept = self._local.get(operation.key.digest, self._monotonic())
        if kept is None:
            return None
        return self._hit(operation, kept.record, kept.now_us, "process")

    def ask(self, operation: Operation) -> Flow[Answer] | None:
        """The flow for an operation that concerns a cache."""
        match operation:
            case Claim():
                return self._claim(operation)
            case Resolve():
                return self._resolve(operation)
        return None

    def _claim(self, claim: Claim) -> Flow[Answer]:
        asked = self._monotonic()
        generation = 0 if self._local is None else self._local.generation
        seen: Hit | Missed = yield from self._look(claim)
        if isinstance(seen, Hit):
            self._keep(Kept(seen.record, seen.now_us, self._until(asked, seen.rest_us)), generation)
            return self._hit(claim, seen.record, seen.now_us, "redis")
        self._tell("cache_miss", claim, "")
        answer: Answer = yield claim
        if isinstance(answer, Replay) and answer.record.status is Status.COMPLETED:
            rest_us = answer.record.expires_us - answer.now_us
            self._keep(Kept(answer.record, answer.now_us, self._until(asked, rest_us)), generation)
            yield from self._fill(answer, seen, rest_us)
        return answer

    def _look(self, claim: Claim) -> Flow[Hit | Missed]:
        if not self._shared or not self._gate.admits():
            return _NOTHING
        seen: Hit | Missed = (yield from self._in_front(Look(claim.key, self._new_epoch()))) or _NOTHING
        return seen if isinstance(seen, Missed) or _is_good(seen.record, claim) else _NOTHING

    def _fill(self, answer: Replay, seen: Missed, rest_us: int) -> Flow[None]:
        """Cache what the store has just replayed: from the instant of the look on, which was before the store's."""
        life_us = min(rest_us, round(self._cache.cap * _SECOND))
        if seen.epoch and life_us > 0 and not self._gate.shut and fits(answer.record):
            yield from self._in_front(Fill(answer.record, seen.epoch, seen.now_us + life_us, answer.now_us))

    def _in_front(self, operation: CacheOperation) -> Flow[Any]:
        """What the cache says; None where anything went wrong, which is no reason to fail a caller."""
        try:
            return (yield InFront(operation))
        except Exception:  # noqa: BLE001 - as the docstring says
            return None

    def _hit(self, claim: Claim, record: Record, now_us: int, where: str) -> Replay | Reused:
        self._tell("cache_hit", claim, where)
        if record.fingerprint != claim.fingerprint:
            return Reused(record, now_us)
        return Replay(record, now_us, cached=True)

    def _until(self, asked: float, rest_us: int) -> float:
        """When this process forgets what it is told: counted from before it asked."""
        return asked + min(self._cache.local_for, rest_us / _SECOND)

    def _keep(self, kept: Kept, generation: int) -> None:
        if self._local is not None:
            self._local.keep(kept, generation)

    def _resolve(self, resolve: Resolve) -> Flow[Answer]:
        """What was in doubt was never cached; should it be, it is not any more."""
        answer: Answer = yield resolve
        if isinstance(answer, Resolved):
            if self._shared:
                yield from self._in_front(Drop(resolve.digest, answer.record.key.operation, _A_MOMENT_US))
            self._forget(resolve.digest)
        return answer

    def _forget(self, digest: bytes) -> None:
        if self._local is not None:
            self._local.drop(digest)

    def _tell(self, kind: str, claim: Claim, detail: str) -> None:
        if is_heard(self._observer, kind):
            event = Event(
                kind=kind,  # type: ignore[arg-type]  # one of the two
                operation=claim.key.operation,
                reference=claim.key.reference,
                detail=detail,
            )
            notify(self._observer, event)


def _is_good(record: Record, claim: Claim) -> bool:
    """Whether a cached record may answer a claim at all. Its time is not over, or the cache would not have it."""
    return record.key.digest == claim.key.digest and record.status is Status.COMPLETED
