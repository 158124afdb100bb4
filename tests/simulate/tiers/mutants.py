"""Tiers with one rule broken each, and the smallest world in which it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from semel.core.flow import Flow
from semel.core.operations import Answer, Claim, Complete, Erase, Invalidate, Operation, Replay, Reused
from semel.core.record import StoredRecord
from semel.stores.cache.logic import LruEntry, Tiers
from semel.stores.cache.operations import (
    CacheGet,
    CacheHit,
    CacheInvalidate,
    CacheInvalidated,
    CacheMiss,
    CacheOperation,
    CachePut,
    CachePutResult,
    CacheRequest,
)
from semel_lab.simulate.models.cache import CacheTable, Entry
from tests.simulate.tiers.programmes import eraser, joined_completer, reader, reads_and_purges
from tests.simulate.tiers.world import KEEP, KEY, OTHER, SECOND, Joined, World, claim_of

_QUIET = 86_400 * SECOND


class FillsWithoutEpoch(CacheTable):
    """A fill looks at nothing."""

    def fill(self, fill: CachePut, now: int) -> CachePutResult:
        del now
        entry = Entry("record", fill.until_us, record=fill.record, now_us=fill.now_us)
        self.entries[fill.record.key.digest] = entry
        return CachePutResult(done=True)


class DropLeavesEpoch(CacheTable):
    """A drop takes the record away, and leaves an epoch that was placed before."""

    def apply(self, operation: CacheOperation, now: int) -> Any:
        entry = self.entries.get(KEY.digest)
        answer = super().apply(operation, now)
        if isinstance(operation, CacheInvalidate) and entry is not None and entry.kind == "epoch":
            self.entries[KEY.digest] = entry
        return answer


class CacheFirst(Tiers):
    """The cache is told before the store, and not again after it."""

    def _erase(self, erase: Erase) -> Flow[Answer]:
        yield CacheRequest(CacheInvalidate(erase.digest, erase.operation, 0))
        return (yield from super()._erase(erase))

    def _forgotten_for(self, digest: bytes, operation: str, *, since_us: int) -> Flow[int]:
        del digest, operation, since_us
        return _QUIET
        yield


class FillsFromCompletion(Tiers):
    """A completion fills what it has just written."""

    def joined(self, operation: Operation) -> Any:
        return self._filling(operation) if isinstance(operation, Complete) else Joined(operation)

    def _filling(self, complete: Complete) -> Flow[None]:
        seen = yield CacheRequest(CacheGet(KEY, b"mutant"))
        yield Joined(complete)
        answer = yield Joined(claim_of(8))
        yield from self._fill(answer, seen, KEEP)


class FillsFromJoinedRead(Tiers):
    """What the caller's transaction reads is filled in like anything else."""

    def joined(self, operation: Operation) -> Any:
        return self._filling(operation) if isinstance(operation, Claim) else Joined(operation)

    def _filling(self, claim: Claim) -> Flow[None]:
        seen = yield CacheRequest(CacheGet(KEY, b"mutant"))
        answer = yield Joined(claim)
        if isinstance(answer, Replay):
            yield from self._fill(answer, seen, KEEP)


class KeepsForKeepFor(Tiers):
    """An entry lives for the whole of keep_for, however late it was filled in."""

    def _fill(self, answer: Replay, seen: Any, rest_us: int) -> Flow[None]:
        del rest_us
        yield from super()._fill(answer, seen, answer.record.keep_us)


class ComparesNoFingerprint(Tiers):
    """Whoever has the key is shown the record."""

    def _hit(self, claim: Claim, record: StoredRecord, now_us: int, tier: Any) -> Replay | Reused:
        return super()._hit(replace(claim, fingerprint=record.fingerprint), record, now_us, tier)


class ComparesErased(Tiers):
    """A cached record is compared although it was erased."""

    def _hit(self, claim: Claim, record: StoredRecord, now_us: int, tier: Any) -> Replay | Reused:
        answer = super()._hit(claim, record, now_us, tier)
        return answer if record.fingerprint == claim.fingerprint else Reused(record, now_us)


class ReadsGenerationAfterCache(Tiers):
    """The generation of the process's own tier is read after the shared cache was asked."""

    _late = 0

    def _look(self, claim: Claim) -> Flow[CacheHit | CacheMiss]:
        seen = yield from super()._look(claim)
        assert self._local is not None
        self._late = self._local.generation
        return seen

    def _keep(self, kept: LruEntry, generation: int) -> None:
        del generation
        super()._keep(kept, self._late)


class ReadsGenerationAfterStore(Tiers):
    """The generation of the process's own tier is read after the store was asked."""

    def _keep(self, kept: LruEntry, generation: int) -> None:
        assert self._local is not None
        del generation
        super()._keep(kept, self._local.generation)


class ConfirmsTooEarly(Tiers):
    """The processes' own tiers are not waited for."""

    def _forgotten_for(self, digest: bytes, operation: str, *, since_us: int) -> Flow[int]:
        del since_us
        return -1 if (yield from self._dropped(digest, operation, _QUIET)) is None else _QUIET


class ConfirmsUnheard(Tiers):
    """The note goes although the cache did not answer."""

    def _forgotten_for(self, digest: bytes, operation: str, *, since_us: int) -> Flow[int]:
        yield from super()._forgotten_for(digest, operation, since_us=since_us)
        return _QUIET


class PurgesAsErased(Tiers):
    """What is to go at once waits for other processes, as what was erased does."""

    def _invalidate(self, invalidate: Invalidate) -> Flow[Answer]:
        return super()._invalidate(replace(invalidate, at_once=False))


class PurgesSharedAlone(Tiers):
    """The copy of the process itself stays."""

    def _dropped(self, digest: bytes, operation: str, quiet_us: int) -> Flow[CacheInvalidated | None]:
        local, self._local = self._local, None
        try:
            return (yield from super()._dropped(digest, operation, quiet_us))
        finally:
            self._local = local


class PurgesUnheard(Tiers):
    """The shared cache is not asked."""

    def _dropped(self, digest: bytes, operation: str, quiet_us: int) -> Flow[CacheInvalidated | None]:
        del operation, quiet_us
        assert self._local is not None
        self._local.drop(digest)
        return CacheInvalidated(0)
        yield


def _no_local(tiers: type[Tiers]) -> type[Tiers]:
    """The same without a tier in the process, so that an erase confirms by itself."""

    class WithoutLocal(tiers):  # type: ignore[misc, valid-type]  # made for one test
        def __init__(self, cache: Any, gate: Any, local: Any, **rest: Any) -> None:
            del local
            super().__init__(cache, gate, None, **rest)

    return WithoutLocal


def _erased_beside(**settings: Any) -> World:
    """A process that asks, and erases while the answer is on its way."""
    return World([reader(1, times=2, slowly=True), eraser], **settings)


def _erasing(**settings: Any) -> World:
    tiers = _no_local(settings.pop("tiers", Tiers))
    return World([reader(1)], [reader(2)], [eraser], tiers=tiers, **settings)


def _purging(**settings: Any) -> World:
    """A process that reads and then purges, so that nobody fills in between."""
    return World([reads_and_purges], cached=True, **settings)


WORLDS: dict[str, tuple[Callable[[], World], Callable[[], World]]] = {
    "fill without epoch": (lambda: _erasing(cache=FillsWithoutEpoch), _erasing),
    "drop leaves the epoch": (lambda: _erasing(cache=DropLeavesEpoch), _erasing),
    "cache told before the store": (lambda: _erasing(tiers=CacheFirst), _erasing),
    "fill from a completion": (
        lambda: World([reader(1)], [joined_completer], tiers=FillsFromCompletion, completed=False),
        lambda: World([reader(1)], [joined_completer], completed=False),
    ),
    "fill of a joined read": (
        lambda: World([reader(1)], [joined_completer], tiers=FillsFromJoinedRead, completed=False),
        lambda: World([reader(1)], [joined_completer], completed=False),
    ),
    "life of keep_for instead of its rest": (
        lambda: World([reader(1)], [reader(2)], tiers=_no_local(KeepsForKeepFor), waits=(60 * SECOND, 60 * SECOND)),
        lambda: World([reader(1)], [reader(2)], tiers=_no_local(Tiers), waits=(60 * SECOND, 60 * SECOND)),
    ),
    "fingerprint not compared": (
        lambda: World([reader(1)], [reader(2, fingerprint=OTHER)], tiers=ComparesNoFingerprint),
        lambda: World([reader(1)], [reader(2, fingerprint=OTHER)]),
    ),
    "fingerprint of an erased record compared": (
        lambda: World([reader(1, times=2)], [eraser], tiers=ComparesErased, waits=(6 * SECOND,)),
        lambda: World([reader(1, times=2)], [eraser], waits=(6 * SECOND,)),
    ),
    "generation read after the shared cache was asked": (
        lambda: _erased_beside(tiers=ReadsGenerationAfterCache, cached=True),
        lambda: _erased_beside(cached=True),
    ),
    "generation read after the store was asked": (
        lambda: _erased_beside(tiers=ReadsGenerationAfterStore),
        _erased_beside,
    ),
    "other processes not waited for": (
        lambda: World([reader(1, times=2)], [eraser], tiers=ConfirmsTooEarly),
        lambda: World([reader(1, times=2)], [eraser]),
    ),
    "confirmed without the cache": (
        lambda: World([reader(1, times=2)], [eraser], tiers=_no_local(ConfirmsUnheard), faults=1),
        lambda: World([reader(1, times=2)], [eraser], tiers=_no_local(Tiers), faults=1),
    ),
    "a purge at once waits for others": (lambda: _purging(tiers=PurgesAsErased), _purging),
    "a purge leaves the copy of its process": (lambda: _purging(tiers=PurgesSharedAlone), _purging),
    "a purge leaves the copy that is shared": (lambda: _purging(tiers=PurgesUnheard), _purging),
}
