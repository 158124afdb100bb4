"""Random sequences of acts on a few sessions, done by a model and by a real server, and compared answer by answer.

What always holds: a sequence is made from its number alone. The server never waits for long: whatever waits for a row
loses patience after a few milliseconds, on lanes and on the connections of callers alike, and the model says so first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from semel.core.fingerprint import fingerprint
from semel.core.key import Key
from semel.core.operations import (
    AddReplays,
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
    TransactionJoined,
)
from semel.core.policy import Doubt
from semel.core.record import NOTHING, About, Failure, Lease, Status, Step, StoredRecord
from semel_lab.simulate.models import Act, Begin, Commit, Isolation, Rollback, Session

KEYS: Final = tuple(Key.of(value, operation="charge", scope="a") for value in ("v", "w-10006"))
"""Two keys that share a gate on MySQL: their digests begin with the same two bytes."""
ABOUTS: Final = (NOTHING, About(subject="ann", tags={"till": "7"}), About(subject="bob", tags={"till": "7"}))
QUERIES: Final = (
    *(Query(subject=subject, scope=scope) for subject in ("ann", "bob") for scope in (None, "a", "b")),
    *(Query(tag=("till", "7"), scope=scope) for scope in (None, "a")),
    Query(subject="ann", tag=("till", "7")),
    Query(operation="charge"),
    Query(hides_erased=True, operation="charge"),
    Query(without_operation="charge", subject="ann"),
)
FINGERPRINTS: Final = (fingerprint({"amount": 1}), fingerprint({"amount": 2}))
LEASE, KEEP, QUIET = 300, 1_000, 200
START: Final = 1_700_000_000_000_000
LANE = 0
_SEARCHING: Final = (Scan, CountRecords, SkipRecords)
_DECIDING: Final = (Resolve, Reopen, CountFailure, Erase, Purge, MarkLapsed, ReadHistory, *_SEARCHING)
Sends = Callable[[Act, bool, bool], bool]


class Model(Protocol):
    """A model of a server."""

    def apply(self, session: Session, act: Any, now: int) -> Any:
        """Do it, and give the answer or the error."""


class Real(Protocol):
    """A real server, with a connection for each session."""

    def perform(self, session: int, act: Any) -> Any:
        """Do it, and give the answer or the error."""

    def begin(self, isolations: tuple[Isolation, ...]) -> None:
        """Start over: an empty table, and callers with these levels of isolation."""


@dataclass(slots=True)
class Clock:
    """The clock of both."""

    now: int = START

    def __call__(self) -> int:
        return self.now


def everything(_act: Act, _joined: bool, _steps: bool) -> bool:
    """Whatever is drawn is sent."""
    return True


@dataclass(frozen=True)
class Kind:
    """What kind of server it is.

    Args:
        sends: whether an act belongs on a lane, or in a caller's transaction, in a sequence with steps or without.
        joins: whether callers bring transactions of their own.
        happens: what else may happen to the server, as an act of nobody.
        spans: how much time may pass between two acts.
    """

    sends: Sends = everything
    joins: bool = True
    happens: Callable[[random.Random, Key], Any] | None = None
    spans: tuple[int, ...] = (1, 50, QUIET, LEASE, KEEP)


class Different(AssertionError):
    """Model and server gave different answers."""


@dataclass(slots=True)
class Sequence:
    """One sequence on its way."""

    number: int
    model: Model
    real: Real
    clock: Clock
    kind: Kind
    seen: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    _leases: list[Lease] = field(default_factory=list)
    _claims: list[Claim] = field(default_factory=list)
    _resolutions: list[Resolve] = field(default_factory=list)
    _reopenings: list[Reopen] = field(default_factory=list)
    _counts: list[CountFailure] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _nonces: int = 0

    def run(self, dice: random.Random, length: int) -> None:
        """Do so many acts, and after them look at what is left.

        Raises:
            Different: an answer was not the same.
        """
        callers = dice.choice((1, 2, 2)) if self.kind.joins else 0
        levels = tuple(dice.choice(list(Isolation)) for _ in range(callers))
        sessions = [Session("lane"), *(Session(f"caller {number}", level) for number, level in enumerate(levels, 1))]
        keys = KEYS[: dice.choice((1, 1, 2))]
        steps = dice.random() < 0.5
        self.real.begin(levels)
        for _ in range(length):
            if dice.random() < 0.25:
                self.clock.now += dice.choice(self.kind.spans)
            number = dice.randrange(len(sessions))
            act = self._drawn(dice, number, keys)
            if number != LANE and isinstance(act, _DECIDING):
                continue  # refused inside within(): they decide for everybody, or tell what is committed
            if isinstance(act, _SEARCHING) and not self.kind.joins:
                continue  # only databases keep rows beside a record
            if self.kind.sends(act, number != LANE, steps):
                self._act(sessions, number, act)
        for number in range(1, len(sessions)):
            self._act(sessions, number, dice.choice((Commit(), Rollback())))
        for key in keys:
            self._act(sessions, LANE, Read(key.digest, with_steps=True))
            self._act(sessions, LANE, ReadHistory(key.digest, key.operation))
        for query in QUERIES if self.kind.joins else ():
            self._act(sessions, LANE, Scan(query, None, 10))
            self._act(sessions, LANE, CountRecords(query))
            self._act(sessions, LANE, SkipRecords(replace(query, operation=None, after_us=START), 1))

    def _act(self, sessions: list[Session], number: int, act: Any) -> None:
        expected = self.model.apply(sessions[number], act, self.clock.now)
        given = self.real.perform(number, self._as_real(act))
        level = sessions[number].isolation
        self.log += [
            f"{self.clock.now - START:>10} {number} ({level or 'lane'}) {brief(act)}",
            f"             model {brief(expected)}",
            f"             real  {brief(given)}",
        ]
        self.seen[f"{'lane' if level is None else level}: {type(act).__name__} {type(expected).__name__}"] += 1
        if not self._same(expected, given):
            raise Different("\n".join(self.log))
        if isinstance(expected, Granted):
            self._leases.append(expected.lease)
        elif isinstance(expected, TransactionJoined) and isinstance(act, JoinTransaction):
            self._leases.append(replace(act.lease, transaction=expected.transaction))

    def _as_real(self, act: Any) -> Any:
        lease = getattr(act, "lease", None)
        if not isinstance(lease, Lease) or not lease.transaction:
            return act
        named = replace(lease, transaction=self._names.get(lease.transaction, lease.transaction))
        return replace(act, lease=named)

    def _same(self, expected: Any, given: Any) -> bool:
        if isinstance(expected, Exception):
            return type(expected) is type(given)
        name = getattr(expected, "transaction", "")
        if name and type(given) is type(expected):
            self._names.setdefault(name, given.transaction)
            given = replace(given, transaction=name) if given.transaction == self._names[name] else given
        return bool(expected == given)

    def _drawn(self, dice: random.Random, session: int, keys: tuple[Key, ...]) -> Any:
        if self.kind.happens is not None and dice.random() < 0.1:
            return self.kind.happens(dice, dice.choice(keys))
        if session != LANE and dice.random() < 0.25:
            return dice.choice((Begin(), Commit(), Commit(), Rollback()))
        return _DRAWN[dice.choices(list(_DRAWN), _WEIGHTS)[0]](self, dice, dice.choice(keys))

    def _nonce(self) -> bytes:
        self._nonces += 1
        return self._nonces.to_bytes(16, "big")

    def claim(self, dice: random.Random, key: Key) -> Operation:
        """A new claim, or now and then one that was sent before."""
        if self._claims and dice.random() < 0.1:
            return dice.choice(self._claims)
        words: tuple[Doubt, ...] = ("rerun", "rerun", "rerun", "hold", "reconcile")
        terms = Terms(LEASE, KEEP, dice.choice(words), dice.choice((0, QUIET)))
        claim = Claim(key, dice.choices(FINGERPRINTS, (8, 1))[0], self._nonce(), terms, dice.choice(ABOUTS))
        self._claims.append(claim)
        return claim

    def _lease(self, dice: random.Random, key: Key) -> Lease:
        if not self._leases:
            return Lease(key, 1, b"\0" * 16, 0)
        lease = self._leases[-1] if dice.random() < 0.6 else dice.choice(self._leases)
        return replace(lease, transaction="") if dice.random() < 0.1 else lease

    def complete(self, dice: random.Random, key: Key) -> Operation:
        """A completion."""
        return Complete(self._lease(dice, key), dice.choice((b"one", b"two")))

    def fail(self, dice: random.Random, key: Key) -> Operation:
        """An end without a value."""
        endings: tuple[Literal["final", "retry", "doubt"], ...] = ("final", "retry", "doubt")
        error = Failure("Error", dice.choice(("this", "that")))
        return Fail(self._lease(dice, key), dice.choice(endings), error, dice.random() < 0.3, dice.random() < 0.8)

    def renew(self, dice: random.Random, key: Key) -> Operation:
        """A renewal."""
        return Renew(self._lease(dice, key), LEASE)

    def checkpoint(self, dice: random.Random, key: Key) -> Operation:
        """A finished step."""
        index = dice.randrange(2)
        return Checkpoint(self._lease(dice, key), Step(index, f"step {index}", dice.choice((b"x", b"y"))))

    def enter(self, dice: random.Random, key: Key) -> Operation:
        """A step in the caller's transaction."""
        return JoinTransaction(self._lease(dice, key))

    def read(self, dice: random.Random, key: Key) -> Operation:
        """A look."""
        return Read(key.digest, with_steps=True, waits=dice.random() < 0.3)

    def history(self, _dice: random.Random, key: Key) -> Operation:
        """A look at what happened."""
        return ReadHistory(key.digest, key.operation)

    def resolve(self, dice: random.Random, key: Key) -> Operation:
        """A decision, or the same one again."""
        if self._resolutions and dice.random() < 0.3:
            return dice.choice(self._resolutions)
        choices: tuple[Literal[Status.COMPLETED, Status.FAILED, Status.CANCELLED], ...] = (
            Status.COMPLETED,
            Status.FAILED,
            Status.CANCELLED,
        )
        status = dice.choice(choices)
        outcome = b"found" if status is Status.COMPLETED else None
        error = Failure("Stated", "why") if status is Status.FAILED and dice.random() < 0.5 else None
        force = dice.random() < 0.3
        resolve = Resolve(key.digest, self._nonce(), status, outcome, "looked", error=error, force=force)
        if self._resolutions and dice.random() < 0.3:  # a correction of one before, which may have changed nothing
            seen = dice.choice(self._resolutions)
            resolve = Resolve(seen.digest, self._nonce(), status, outcome, "corrected", corrects=seen.nonce)
        self._resolutions.append(resolve)
        return resolve

    def reopen(self, dice: random.Random, key: Key) -> Operation:
        """A second chance for whoever wrote a record last, mostly; or the same decision again."""
        if self._reopenings and dice.random() < 0.2:
            return dice.choice(self._reopenings)
        written = [lease.nonce for lease in self._leases if lease.key == key]
        written += [act.nonce for act in self._resolutions if act.digest == key.digest]
        written += [act.nonce for act in self._counts if act.key == key]
        seen = max(written, default=b"\0" * 16) if dice.random() < 0.7 else dice.choice([*written, b"\0" * 16])
        reopen = Reopen(key.digest, self._nonce(), seen, "again")
        self._reopenings.append(reopen)
        return reopen

    def count(self, dice: random.Random, key: Key) -> Operation:
        """An attempt that was rolled back, or the same one again."""
        if self._counts and dice.random() < 0.2:
            return dice.choice(self._counts)
        taken = dice.choices(FINGERPRINTS, (8, 1))[0]
        most = dice.choice((None, 1, 2, 3))
        terms = Terms(LEASE, KEEP, "rerun", 0)
        count = CountFailure(
            key, taken, self._nonce(), Failure("Error", "rolled back"), terms, dice.choice(ABOUTS), most
        )
        self._counts.append(count)
        return count

    def search(self, dice: random.Random, key: Key) -> Operation:
        """What is found by what claims have said, or how many there are."""
        del key
        query = dice.choice(QUERIES)
        # Some servers have rows of their own beside the keys, which are older than all that the model knows.
        places = replace(query, operation=None, after_us=START, newest_first=dice.random() < 0.5)
        skip = SkipRecords(places, dice.randrange(3))
        return dice.choice((Scan(query, None, 10), CountRecords(query), skip))

    def erase(self, dice: random.Random, key: Key) -> Operation:
        """What may be personal has to go."""
        return Erase(key.digest, "asked", invalidates=dice.random() < 0.5)

    def purge(self, dice: random.Random, key: Key) -> Operation:
        """Half of a sweep."""
        del key
        return Purge(dice.choice((10, 10, 10, 0)))

    def lapse(self, dice: random.Random, key: Key) -> Operation:
        """The other half."""
        del key
        return MarkLapsed(dice.choice((10, 10, 10, 0)))

    def tally(self, dice: random.Random, key: Key) -> Operation:
        """Counted replays."""
        return AddReplays(key.digest, dice.randrange(1, 4))


_DRAWN: Final[dict[str, Callable[[Sequence, random.Random, Key], Operation]]] = {
    "claim": Sequence.claim,
    "complete": Sequence.complete,
    "fail": Sequence.fail,
    "renew": Sequence.renew,
    "checkpoint": Sequence.checkpoint,
    "enter": Sequence.enter,
    "read": Sequence.read,
    "resolve": Sequence.resolve,
    "reopen": Sequence.reopen,
    "count": Sequence.count,
    "erase": Sequence.erase,
    "purge": Sequence.purge,
    "lapse": Sequence.lapse,
    "tally": Sequence.tally,
    "history": Sequence.history,
    "search": Sequence.search,
}
_WEIGHTS: Final = (30, 12, 10, 5, 8, 10, 8, 6, 5, 6, 5, 5, 4, 2, 4, 6)


def compare(
    model: Callable[[], Model],
    real: Real,
    clock: Clock,
    *,
    seed: int,
    first: int,
    count: int,
    kind: Kind = Kind(),  # noqa: B008 - it is frozen
) -> Counter[str]:
    """Run sequences `first` to `first + count`, and tell what was reached.

    Raises:
        Different: model and server differ; the message shows the whole sequence.
    """
    seen: Counter[str] = Counter()
    for number in range(first, first + count):
        dice = random.Random(f"{seed}:{number}")
        clock.now = max(clock.now, START) + 10 * KEEP
        sequence = Sequence(number, model(), real, clock, kind)
        try:
            sequence.run(dice, dice.randint(6, 24))
        except Different as different:
            raise Different(f"sequence {seed}:{number}\n{different}") from None
        seen += sequence.seen
    return seen


def brief(value: Any) -> str:
    """A value as it can be read in a log: without what is the same in every sequence."""
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {str(value)[:120]}"
    if isinstance(value, bytes):
        return value[-1:].hex() if len(value) > 3 else repr(value)
    if isinstance(value, Key):
        return value.value
    if not isinstance(value, msgspec.Struct):
        return repr(value - START) if isinstance(value, int) and value > START else str(value)
    dull = (
        ("about", "created_us", "started_us", "keep_us", "in_doubt_policy") if isinstance(value, StoredRecord) else ()
    )
    fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in dull}
    shown = ", ".join(f"{name}={brief(field)}" for name, field in fields.items() if field not in (None, (), "", False))
    return f"{type(value).__name__}({shown})"
