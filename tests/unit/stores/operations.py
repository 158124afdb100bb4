"""Operations as tests need them: keys, claims and policies by short names, and random sequences of all kinds."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Literal, TypeVar

from msgspec.structs import replace

from semel.core.key import Key
from semel.core.operations import (
    AddReplays,
    Answer,
    Checkpoint,
    Claim,
    Complete,
    CountFailure,
    CountRecords,
    Erase,
    Fail,
    Granted,
    JoinTransaction,
    MarkLapsed,
    Operation,
    Purge,
    Query,
    Read,
    ReadHistory,
    Renew,
    Reopen,
    Resolve,
    Scan,
    SkipRecords,
    Terms,
)
from semel.core.policy import Doubt
from semel.core.record import About, Ending, Failure, Lease, Status, Step

T = TypeVar("T")
Ends = Literal[Status.COMPLETED, Status.FAILED, Status.CANCELLED]
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
DOUBTS: tuple[Doubt, ...] = ("rerun", "reconcile", "hold")
KEYS = tuple(Key.of(f"o-{i}", operation="charge", scope=f"tenant-{i % 2}") for i in range(3))
FINGERPRINTS = (b"\x01first", b"\x01second")
ABOUTS = (
    About(),
    About(business_key="b-1", process_instance="p-1", subject="ann", requester="web", tags={"a": "1", "ü": "\x00"}),
    About(process_instance="p-2"),
)


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def terms(*, lease: float = 30, keep: float = 3600, in_doubt: Doubt = "rerun", reconcile_after: float = 10) -> Terms:
    return Terms(int(lease * SECOND), int(keep * SECOND), in_doubt, int(reconcile_after * SECOND))


def claim(
    key: Key = KEYS[0],
    *,
    number: int = 1,
    fingerprint: bytes = FINGERPRINTS[0],
    of: Terms | None = None,
    about: About = ABOUTS[0],
) -> Claim:
    return Claim(key, fingerprint, nonce(number), of or terms(), about)


def without_lease(operation: Operation) -> Operation:
    """What a joined claim comes to: it ends with the caller's transaction, so its lease is none."""
    if isinstance(operation, Claim):
        return replace(operation, terms=replace(operation.terms, lease_us=0))
    return operation


def without_transaction(answer: Answer | Exception) -> Answer | Exception:
    """What a joined claim is granted, apart from the name of the caller's transaction."""
    if isinstance(answer, Granted):
        assert answer.transaction
        return replace(answer, transaction="")
    return answer


class Clock:
    """A store's clock that stands still until it is moved."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


class Sequences:
    """Random operations over few keys, nonces and fingerprints, so that they meet each other."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._leases: list[Lease] = []
        self._counts: list[CountFailure] = []
        self._seen: dict[bytes, bytes] = {}
        self._nonces = 1

    def steps(self, count: int) -> Iterator[tuple[float, Operation]]:
        """Pairs of seconds that pass, and what is asked for then."""
        for _ in range(count):
            passing = self._random.choice((0, 0, 0, 0.000001, 1, 5, 9.999999, 10, 30, 40, 1800, 3600))
            yield passing, self._operation()

    def learn(self, answer: Answer | Exception) -> None:
        """Leases that were granted are shown again later, also when they are long over."""
        if isinstance(answer, Granted):
            self._leases.append(answer.lease)
        record = getattr(answer, "record", None)
        if record is not None:
            self._seen[record.key.digest] = record.nonce

    def _operation(self) -> Operation:
        chance = self._random
        makers: tuple[Callable[[], Operation], ...] = (
            *[self._claim] * 8,
            *[self._complete] * 3,
            *[self._fail] * 4,
            *[self._checkpoint] * 3,
            self._renew,
            self._resolve,
            self._resolve,
            *[self._reopen] * 2,
            *[self._count] * 3,
            self._erase,
            *[self._scan] * 2,
            lambda: CountRecords(self._query()),
            lambda: SkipRecords(self._query(), chance.randrange(4)),
            lambda: Read(self._digest(), with_steps=chance.random() < 0.5),
            lambda: Purge(10),
            lambda: MarkLapsed(10),
            lambda: AddReplays(self._digest(), chance.randrange(3)),
            lambda: JoinTransaction(self._lease()),
            *[self._history] * 2,
        )
        return chance.choice(makers)()

    def _history(self) -> ReadHistory:
        return ReadHistory(self._digest(), "charge")

    def _digest(self) -> bytes:
        return self._random.choice(KEYS).digest

    def _nonce(self) -> bytes:
        if self._random.random() < 0.8:
            self._nonces += 1
            return nonce(self._nonces)
        return nonce(self._random.randint(1, self._nonces))

    def _claim(self) -> Claim:
        chance = self._random
        made = terms(
            lease=chance.choice((5, 30)),
            keep=chance.choice((1, 60, 3600)),
            in_doubt=chance.choice((*DOUBTS, "rerun", "reconcile")),
            reconcile_after=chance.choice((0, 10)),
        )
        fingerprint = FINGERPRINTS[chance.random() < 0.15]
        return Claim(chance.choice(KEYS), fingerprint, self._nonce(), made, chance.choice(ABOUTS))

    def _lease(self) -> Lease:
        chance = self._random
        if self._leases and chance.random() < 0.9:
            recent = self._leases[-3:]
            lease = chance.choice(recent if chance.random() < 0.8 else self._leases)
            if chance.random() < 0.9:
                return lease
            return Lease(lease.key, lease.fence + chance.choice((-1, 1)), lease.nonce, lease.until)
        return Lease(chance.choice(KEYS), chance.randint(1, 3), self._nonce(), START)

    def _complete(self) -> Complete:
        return Complete(self._lease(), self._random.choice((b"\x00", b"outcome", b"x" * 5000)))

    def _fail(self) -> Fail:
        chance = self._random
        error = chance.choice((Failure("app.Declined", "no"), Failure("app.Broke", "\x00 ü")))
        endings: tuple[Ending, ...] = ("final", "retry", "doubt")
        ending = chance.choice(endings)
        return Fail(self._lease(), ending, error, doubtful=chance.random() < 0.4, started=chance.random() < 0.8)

    def _checkpoint(self) -> Checkpoint:
        chance = self._random
        step = Step(chance.randrange(3), chance.choice(("reserve", "charge")), chance.choice((b"", b"one")))
        return Checkpoint(self._lease(), step)

    def _renew(self) -> Renew:
        return Renew(self._lease(), self._random.choice((5, 30)) * SECOND)

    def _resolve(self) -> Resolve:
        statuses: tuple[Ends, ...] = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
        status = self._random.choice(statuses)
        outcome = b"decided" if status is Status.COMPLETED else None
        corrects = self._nonce() if self._random.random() < 0.3 else None
        error = Failure("app.Stated", "\x00 ü") if status is Status.FAILED and self._random.random() < 0.5 else None
        force = corrects is None and self._random.random() < 0.4
        return Resolve(
            self._digest(), self._nonce(), status, outcome, "because", corrects=corrects, error=error, force=force
        )

    def _reopen(self) -> Reopen:
        """Mostly of the record as it was last seen; now and then the same again."""
        digest, fresh = self._digest(), self._nonce()
        seen = self._seen.get(digest, nonce(0)) if self._random.random() < 0.8 else nonce(0)
        return Reopen(digest, fresh, seen if seen != fresh else nonce(0), "again")

    def _count(self) -> CountFailure:
        """An attempt that was rolled back, or the same one again."""
        chance = self._random
        if self._counts and chance.random() < 0.3:
            return chance.choice(self._counts[-3:])
        claim = self._claim()
        self._nonces += 1
        error = chance.choice((Failure("app.Declined", "no"), Failure("app.Broke", "\x00 ü")))
        most = chance.choice((None, 1, 2, 3))
        count = CountFailure(claim.key, claim.fingerprint, nonce(self._nonces), error, claim.terms, claim.about, most)
        self._counts.append(count)
        return count

    def _erase(self) -> Erase:
        return Erase(self._digest(), "asked", self._random.choice(("", "charge")), self._random.random() < 0.5)

    def _scan(self) -> Scan:
        chance = self._random
        cursor = chance.choice((None, None, (START + 100 * SECOND, KEYS[0].digest)))
        return Scan(self._query(), cursor, chance.choice((1, 2, 10)))

    def _query(self) -> Query:
        return Query(
            status=self._maybe((*Status,)),
            operation=self._maybe(("charge", "refund")),
            scope=self._maybe(("tenant-0", "tenant-1", "")),
            before_us=self._maybe((START + SECOND, START + 5000 * SECOND, START + 50000 * SECOND)),
            after_us=self._maybe((START, START + 5000 * SECOND)),
            process_instance=self._maybe(("p-1", "p-2", "p-3")),
            business_key=self._maybe(("b-1", "b-2")),
            reference=self._maybe(("", KEYS[0].reference, KEYS[1].reference[:5], KEYS[2].reference.upper(), "xyz")),
            subject=self._maybe(("ann", "bob")),
            requester=self._maybe(("web", "ann")),
            tag=self._maybe((("a", "1"), ("ü", "\x00"), ("1", "a"))),
            stuck=self._random.random() < 0.1,
            scan=True,
            hides_erased=self._random.random() < 0.15,
            without_operation=self._maybe(("charge", "refund")),
        )

    def _maybe(self, choices: Sequence[T]) -> T | None:
        return self._random.choice(choices) if self._random.random() < 0.15 else None
