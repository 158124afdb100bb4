"""What a cache does with an operation, as flows; its breaker, the LRU cache in the process, and its entries as bytes.

The flows yield operations of the store, and `CacheRequest` for the shared cache.

- Only completed, unexpired records of the same key are taken from a cache, and their fingerprint is compared as the
  store would.
- A cache is filled from what the store answered to a claim, never by a completion, under an epoch that was there before
  the claim was sent, and not for a while after it said that it is full.
- If a cache fails in any way, the store behind it is asked.
- What this release cannot read counts as a miss. Finished steps are not cached: a completed record is replayed without
  them.
- While the breaker is open, callers go past the cache at once, and one request at a time finds out whether it is back.
  A batch counts once, however many callers it was for; each change is reported to the observer once.
- The LRU cache holds no more entries and bytes than allowed and gives nothing at or after its end. After an
  invalidation nothing is kept that was read before it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from semel.core.circuit import Breaker
from semel.core.flow import Flow
from semel.core.observer import Observer, Signal, is_heard, notify
from semel.core.operations import (
    Answer,
    Claim,
    Confirm,
    Erase,
    Erased,
    Found,
    Invalidate,
    Operation,
    Read,
    Recorded,
    Replay,
    Resolve,
    Resolved,
    Reused,
)
from semel.core.record import NOTHING, Status, StoredRecord
from semel.core.sealing.values import CACHE_ENTRY, Sealer
from semel.errors import RecordUnreadable, SemelError, StoreUnavailable
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
from semel.stores.cache.settings import Cache

LARGEST: Final = 262_144
"""Larger records are not cached: a round of them would take longer than the cache is given."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    now_us: int
    record: StoredRecord


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Entry)


def size_of(record: StoredRecord) -> int:
    """Bytes of what has no bound of its own in a record, roughly: its outcome, and what it is about."""
    about = record.about
    return len(record.outcome or b"") + (0 if about is NOTHING else sum(map(len, about.texts())))


def fits(record: StoredRecord) -> bool:
    """Whether a record is small enough."""
    return size_of(record) <= LARGEST


def pack_record(record: StoredRecord, now_us: int, sealer: Sealer | None = None) -> bytes:
    """An entry, sealed as a whole where there is a sealer; `now_us` is the store's now when the record was read."""
    body = _ENCODER.encode(_Entry(now_us, replace(record, steps=()) if record.steps else record))
    return body if sealer is None else sealer.seal(record.key.digest, CACHE_ENTRY, body)


def unpack_record(body: bytes, digest: bytes, sealer: Sealer | None = None) -> tuple[StoredRecord, int] | None:
    """The record of the entry of `digest` and when it was read; None where it cannot be read, or is not sealed."""
    try:
        entry = _DECODER.decode(body if sealer is None else sealer.open(digest, CACHE_ENTRY, body))
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecordUnreadable):
        return None
    return entry.record, entry.now_us


class CacheBreaker:
    """A circuit breaker that threads share."""

    def __init__(self, breaker: Breaker, monotonic: Callable[[], float], observer: Observer) -> None:
        self._breaker = breaker
        self._monotonic = monotonic
        self._observer = observer
        self._lock = threading.Lock()
        self._shut = False

    def renew_lock(self) -> None:
        """After a fork: whoever held the lock may not be here."""
        self._lock = threading.Lock()

    @property
    def shut(self) -> bool:
        """Whether callers go past the cache, except for the one who tries it."""
        return self._shut

    @property
    def resting(self) -> bool:
        """Whether nobody is trying: what still waits to be sent need not be."""
        return self._shut and self._breaker.state == "open"

    def admits(self) -> bool:
        """Whether this caller may look. Of those who come while it is shut, one at a time may."""
        if not self._shut:
            return True
        with self._lock:
            return self._breaker.allow(self._monotonic())

    def answered(self) -> None:
        """The cache answered a round."""
        with self._lock:
            self._breaker.on_success()
            changed, self._shut = self._shut, False
        if changed:
            self._tell("cache_closed", "")

    def silent(self, error: Exception) -> None:
        """The cache did not answer a round."""
        with self._lock:
            self._breaker.on_failure(self._monotonic())
            was, self._shut = self._shut, self._breaker.state != "closed"
            changed = self._shut and not was
        if changed:
            self._tell("cache_open", type(error).__name__)

    def _tell(self, kind: Literal["cache_open", "cache_closed"], detail: str) -> None:
        if is_heard(self._observer, kind):
            notify(self._observer, Signal(kind=kind, operation="", reference="", detail=detail))


_BESIDES: Final = 1024
"""Bytes that an entry takes beside that, roughly."""


class LruEntry(NamedTuple):
    """A record, with the store's now when it was read there, and the monotonic instant at which it is forgotten."""

    record: StoredRecord
    now_us: int
    until: float

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return _BESIDES + size_of(self.record)


class LruCache:
    """Records by digest."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[bytes, LruEntry] = OrderedDict()
        self._bytes = 0
        self.generation = 0
        """How often something was dropped; whoever is about to keep a record took note of it before reading it."""
        self._lock = threading.Lock()

    def renew_lock(self) -> None:
        """After a fork: whoever held the lock may not be here."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, digest: bytes, now: float) -> LruEntry | None:
        """What is kept of a digest at the monotonic instant `now`."""
        if digest not in self._kept:
            return None
        with self._lock:
            kept = self._kept.get(digest)
            if kept is not None and kept.until <= now:
                self._remove(digest)
                return None
            if kept is not None:
                self._kept.move_to_end(digest)
            return kept

    def keep(self, kept: LruEntry, generation: int) -> None:
        """Keep a record that was read while `generation` was the current one."""
        digest = kept.record.key.digest
        with self._lock:
            # Something was dropped since the record was asked for: it may be this one, read before it was erased.
            if generation != self.generation or kept.size > self._most_bytes:
                return
            self._remove(digest)
            self._kept[digest] = kept
            self._bytes += kept.size
            while len(self._kept) > self._most or self._bytes > self._most_bytes:
                self._remove(next(iter(self._kept)))

    def drop(self, digest: bytes) -> None:
        """Forget a digest, and let nothing in that is on its way."""
        with self._lock:
            self.generation += 1
            self._remove(digest)

    def _remove(self, digest: bytes) -> None:
        kept = self._kept.pop(digest, None)
        if kept is not None:
            self._bytes -= kept.size


_SECOND: Final = 1_000_000
_A_MOMENT_US: Final = 10 * _SECOND
_TWO_DAYS_US: Final = 2 * 86_400 * _SECOND
"""How long a shared cache remembers that something was erased, once no process can hold it any more: a sweep a day
finds out that this is so, also if it comes a little late."""
_COMMIT_US: Final = 60 * _SECOND
"""How long an erase may take from the instant that it notes to its commit; until then others read what it erases."""
_NOTHING: Final = CacheMiss()
_FULL_FOR: Final = 5.0
"""Seconds without a fill after one that the cache had no room for: each would be a round trip for nothing."""


class Tiers:
    """The caches in front of a store, and the rules for them."""

    def __init__(
        self,
        cache: Cache,
        gate: CacheBreaker,
        local: LruCache | None,
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
        self._fills_from = -inf
        self._held_us = 0 if local is None else round(cache.local_for * _SECOND)
        """For how long a process may hold what was dropped elsewhere."""
        self._quiet_us = self._held_us + _TWO_DAYS_US if self._held_us else _A_MOMENT_US
        """How long the shared cache remembers a drop. Where no process holds anything, nobody will ask for it."""

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
            case Erase():
                return self._erase(operation)
            case Invalidate():
                return self._invalidate(operation)
        return None

    def _claim(self, claim: Claim) -> Flow[Answer]:
        asked = self._monotonic()
        generation = 0 if self._local is None else self._local.generation
        seen: CacheHit | CacheMiss = yield from self._look(claim)
        if isinstance(seen, CacheHit):
            self._keep(LruEntry(seen.record, seen.now_us, self._until(asked, seen.rest_us)), generation)
            return self._hit(claim, seen.record, seen.now_us, "redis")
        self._tell("cache_miss", claim, "")
        answer: Answer = yield claim
        if isinstance(answer, Replay) and answer.record.status is Status.COMPLETED:
            rest_us = answer.record.expires_us - answer.now_us
            self._keep(LruEntry(answer.record, answer.now_us, self._until(asked, rest_us)), generation)
            yield from self._fill(answer, seen, rest_us)
        return answer

    def _look(self, claim: Claim) -> Flow[CacheHit | CacheMiss]:
        if not self._shared or not self._gate.admits():
            return _NOTHING
        seen: CacheHit | CacheMiss = (yield from self._ask_cache(CacheGet(claim.key, self._new_epoch()))) or _NOTHING
        return seen if isinstance(seen, CacheMiss) or _is_good(seen.record, claim) else _NOTHING

    def _fill(self, answer: Replay, seen: CacheMiss, rest_us: int) -> Flow[None]:
        """Cache what the store has just replayed: from the instant of the look on, which was before the store's."""
        life_us = min(rest_us, round(self._cache.cap * _SECOND))
        if not seen.epoch or life_us <= 0 or self._gate.shut or not fits(answer.record):
            return
        if self._monotonic() < self._fills_from:
            return
        fill = CachePut(answer.record, seen.epoch, seen.now_us + life_us, answer.now_us)
        filled: CachePutResult | None = yield from self._ask_cache(fill)
        if filled is not None and filled.full:
            self._fills_from = self._monotonic() + _FULL_FOR

    def _ask_cache(self, operation: CacheOperation) -> Flow[Any]:
        """What the cache says; None where anything went wrong, which is no reason to fail a caller."""
        try:
            return (yield CacheRequest(operation))
        except Exception:  # noqa: BLE001 - as the docstring says
            return None

    def _hit(
        self, claim: Claim, record: StoredRecord, now_us: int, tier: Literal["process", "redis"]
    ) -> Replay | Reused:
        self._tell("cache_hit", claim, tier)
        if not record.is_for(claim.fingerprint):
            return Reused(record, now_us)
        return Replay(record, now_us, tier)

    def _until(self, asked: float, rest_us: int) -> float:
        """When this process forgets what it is told: counted from before it asked."""
        return asked + min(self._cache.local_for, rest_us / _SECOND)

    def _keep(self, kept: LruEntry, generation: int) -> None:
        if self._local is not None:
            self._local.keep(kept, generation)

    def _resolve(self, resolve: Resolve) -> Flow[Answer]:
        """What was in doubt was never cached; should it be, it is not any more."""
        answer: Answer = yield resolve
        if isinstance(answer, Resolved):
            yield from self._dropped(resolve.digest, answer.record.key.operation, _A_MOMENT_US)
        return answer

    def _erase(self, erase: Erase) -> Flow[Answer]:
        """The store first, which notes in the same transaction what the caches have to forget; then the caches.

        The other way round, somebody could read the store in between and fill in what is about to be erased.
        """
        answer: Answer = yield replace(erase, invalidates=True)
        if isinstance(answer, Erased):
            try:
                yield from self._confirmed(erase.digest, answer.record.key.operation)
            except SemelError:
                return answer  # it is erased, and the note stays: a sweep goes on from here
        return answer

    def _confirmed(self, digest: bytes, operation: str) -> Flow[None]:
        # Read before the caches are told: a note that is newer than this instant is about something they may still
        # hold, and has to stay.
        found: Found = yield Read(digest, operation=operation)
        if (yield from self._forgotten_for(digest, operation, since_us=0)) >= self._held_us:
            yield Confirm(digest, found.now_us)

    def _invalidate(self, invalidate: Invalidate) -> Flow[Answer]:
        """Say that every cache has confirmed, or raise."""
        if invalidate.at_once:
            dropped = yield from self._dropped(invalidate.digest, invalidate.operation, _A_MOMENT_US)
            if self._shared and dropped is None:
                raise _not_dropped()
            return Recorded(0)
        found: Found = yield Read(invalidate.digest, operation=invalidate.operation)
        since_us = max(found.now_us - invalidate.noted_us, 0) if invalidate.noted_us else 0
        since_us = yield from self._forgotten_for(invalidate.digest, invalidate.operation, since_us=since_us)
        if since_us < self._held_us:
            raise _not_yet(self._cache, answered=since_us >= 0)
        return Recorded(found.now_us)

    def _forgotten_for(self, digest: bytes, operation: str, *, since_us: int) -> Flow[int]:
        """Have the caches forget a digest; for how long every one has by now, below 0 where one did not answer.

        `since_us` is how long ago the store was told to. Other processes may hold for `local_for` what they were told
        before it had done so, by the shared cache or the store. A tombstone that came after the note came after the
        commit as well, and its time counts. One of an earlier drop says nothing of this one, and the instant of the
        note is from before the commit: then as much is waited for as a commit may take.
        """
        dropped = yield from self._dropped(digest, operation, self._quiet_us)
        if self._shared and (dropped is None or dropped.since_us <= since_us):
            return -1 if dropped is None else dropped.since_us
        return max(since_us - _COMMIT_US, 0)

    def _dropped(self, digest: bytes, operation: str, quiet_us: int) -> Flow[CacheInvalidated | None]:
        """Have the caches forget a digest, this process last: until the shared one has, it could be told again."""
        dropped = (yield from self._ask_cache(CacheInvalidate(digest, operation, quiet_us))) if self._shared else None
        if self._local is not None:
            self._local.drop(digest)
        return dropped

    def _tell(self, kind: str, claim: Claim, detail: str) -> None:
        if is_heard(self._observer, kind):
            signal = Signal(
                kind=kind,  # type: ignore[arg-type]  # one of the two
                operation=claim.key.operation,
                reference=claim.key.reference,
                detail=detail,
            )
            notify(self._observer, signal)


def _is_good(record: StoredRecord, claim: Claim) -> bool:
    """Whether a cached record may answer a claim at all. Its time is not over, or the cache would not have it."""
    return record.key.digest == claim.key.digest and record.status is Status.COMPLETED


def _not_dropped() -> StoreUnavailable:
    return StoreUnavailable(
        "The cache did not answer, so its copy may still be there; the record itself was not touched. Try again."
    )


def _not_yet(cache: Cache, *, answered: bool) -> StoreUnavailable:
    return StoreUnavailable(
        f"Not every cache has confirmed that it forgot the record; it stays noted. Processes forget what they hold "
        f"themselves within {cache.local_for:g} s of the shared cache, which has to be reached. Sweep again.",
        conflict=answered,
    )
