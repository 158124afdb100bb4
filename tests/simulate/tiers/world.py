"""Every schedule of callers on two tiers: the real flows, stepped operation by operation, on models of both servers.

A state is a value: what the two servers hold, and what each process was told, in order. From it every process is built
again by telling it the same. So the search goes from state to state, and never meets one twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import msgspec

from semel.core.circuit import Breaker
from semel.core.key import Key
from semel.core.observer import Logging
from semel.core.operations import (
    Claim,
    Complete,
    Confirm,
    Granted,
    Invalidation,
    Operation,
    Replay,
    Reused,
    Terms,
)
from semel.core.record import NOTHING, Lease, StoredRecord
from semel.errors import StoreUnavailable
from semel.stores.cache.logic import CacheBreaker, LruCache, Tiers
from semel.stores.cache.operations import CacheRequest
from semel.stores.cache.settings import Cache
from semel.stores.memory import Table
from semel_lab.simulate.models.cache import CacheTable, Entry

SECOND = 1_000_000
KEEP = 100 * SECOND
KEY = Key.of("k", operation="pay")
BODY = b"what is erased later"
TERMS = Terms(30 * SECOND, KEEP, "rerun", 0)
OTHER = b"\2"
CACHE = Cache("redis://localhost", cap=600, local=10, local_for=5)


class Begin(msgspec.Struct, frozen=True):
    """A caller is about to ask: nothing happens, but it may take its time."""


class Shown(msgspec.Struct, frozen=True):
    """What a caller got, when it began, and whether the erase was confirmed, or done in its own process, by then."""

    answer: Any
    claim: Claim
    began: tuple[int, bool]
    erased_here: bool


class Purged(msgspec.Struct, frozen=True):
    """What became of a purge: the error if it gave up, and whether the process can still answer by itself."""

    began: tuple[int, bool]
    problem: str
    is_at_hand: bool


class Joined(msgspec.Struct, frozen=True):
    """An operation inside the caller's transaction."""

    operation: Operation


class End(msgspec.Struct, frozen=True):
    """The caller's transaction ends, one way or the other."""


Caller = Generator[Any, Any, None]
Programme = Callable[["Process"], Caller]


class Told(NamedTuple):
    """What one caller of a process was told, and when."""

    caller: int
    answer: Any
    now_us: int


class State(NamedTuple):
    """All there is, as a value."""

    now_us: int
    record: StoredRecord | None
    noted: Invalidation | None
    entry: Entry | None
    histories: tuple[tuple[Told, ...], ...]
    faults: int
    waits: tuple[int, ...]
    confirmed: bool = False
    happened: bool = False
    open_: Complete | None = None


class Violation(AssertionError):
    """A schedule that must not be."""


class Process:
    """One process: its caches, its callers, and what each of them wants next."""

    def __init__(self, world: World, number: int, history: tuple[Told, ...]) -> None:
        self.now_us = 0
        self.has_erased = False
        self.local = LruCache(CACHE.local, CACHE.local_bytes)
        gate = CacheBreaker(Breaker(failures=99, rest=1, longest=1, chance=float), self.monotonic, Logging())
        epochs = (b"%d-%d" % (number, count) for count in range(99))
        self.tiers = world.tiers(
            CACHE, gate, self.local, monotonic=self.monotonic, observer=Logging(), new_epoch=lambda: next(epochs)
        )
        callers = [programme(self) for programme in world.programmes[number]]
        self.wanted: list[Any] = [next(caller) for caller in callers]
        for told in history:
            self.now_us = told.now_us
            self.wanted[told.caller] = _go_on(callers[told.caller], told.answer)

    def monotonic(self) -> float:
        return self.now_us / SECOND


def _go_on(caller: Caller, answer: Any) -> Any:
    try:
        return caller.throw(StoreUnavailable(answer)) if isinstance(answer, str) else caller.send(answer)
    except StopIteration:
        return None


class World:
    """What is explored: processes with their callers, the faults, the times that may pass.

    At first there is a record, completed or not, in the shared cache or not.
    """

    def __init__(
        self,
        *programmes: list[Programme],
        tiers: type[Tiers] = Tiers,
        cache: type[CacheTable] = CacheTable,
        faults: int = 0,
        waits: tuple[int, ...] = (),
        completed: bool = True,
        cached: bool = False,
    ) -> None:
        self.programmes = programmes
        self.tiers = tiers
        self._cache = cache
        self._faults = faults
        self._waits = waits
        self._completed = completed
        self._cached = cached
        self._numbers: dict[int, int] = {}
        self._by_text: dict[str, int] = {}
        self._seen: list[Any] = []

    def explore(self) -> tuple[int, int]:
        """Go through all of it: how many states there are, and how many schedules lead through them.

        Raises:
            Violation: of a rule, with the schedule that leads to it.
        """
        schedules: dict[Any, int] = {}
        return self._explored(self._first(), schedules, ()), len(schedules)

    def _explored(self, state: State, schedules: dict[Any, int], trace: tuple[str, ...]) -> int:
        mark = self._mark(state)
        if mark in schedules:
            return schedules[mark]
        count = 0
        for name, following in self._steps(state, trace):
            count += self._explored(following, schedules, (*trace, name))
        schedules[mark] = count or 1
        return schedules[mark]

    def _mark(self, state: State) -> tuple[Any, ...]:
        """A state by the numbers of its parts: equal parts have equal numbers, and each is looked at once."""
        parts: list[Any] = [state.record, state.noted, state.entry, state.open_]
        histories = tuple(tuple(map(self._number, history)) for history in state.histories)
        plain = (state.now_us, state.faults, state.waits, state.confirmed, state.happened)
        return (*map(self._number, parts), histories, plain)

    def _number(self, part: Any) -> int:
        known = self._numbers.get(id(part))
        if known is None:
            known = self._numbers[id(part)] = self._by_text.setdefault(repr(part), len(self._by_text))
            self._seen.append(part)  # kept, so that its id stays its own
        return known

    def _first(self) -> State:
        table = Table()
        now = SECOND
        granted = table.claim(claim_of(9), now)
        assert isinstance(granted, Granted)
        if self._completed:
            table.complete(Complete(granted.lease, BODY), now)
        record = table.records[KEY.digest]
        entry = Entry("record", now + KEEP, record=record, now_us=now) if self._cached else None
        return State(
            now, record, None, entry, ((),) * len(self.programmes), self._faults, self._waits, happened=self._completed
        )

    def _steps(self, state: State, trace: tuple[str, ...]) -> Iterator[tuple[str, State]]:
        if state.waits:
            yield "time", state._replace(now_us=state.now_us + state.waits[0], waits=state.waits[1:])
        if state.faults and state.entry is not None:
            yield "evicted", state._replace(entry=None, faults=state.faults - 1)
        for number in range(len(self.programmes)):
            process = Process(self, number, state.histories[number])
            for caller, wanted in enumerate(process.wanted):
                if wanted is not None:
                    for name, answer, after in self._fates(state, wanted, trace):
                        told = Told(caller, answer, state.now_us)
                        yield f"{number}.{caller} {name}", _tell(after, number, told)

    def _fates(self, state: State, wanted: Any, trace: tuple[str, ...]) -> Iterator[tuple[str, Any, State]]:
        name = repr(wanted.operation if isinstance(wanted, CacheRequest | Joined) else wanted)[:60]
        match wanted:
            case Begin():
                yield name, (state.now_us, state.confirmed), state
            case Shown():
                _check(state, wanted, (*trace, name), can_fail=self._faults > 0)
                yield name, None, state
            case Purged():
                _check_purged(state, wanted, (*trace, name), can_fail=self._faults > 0)
                yield name, None, state
            case Joined(operation):
                yield name, *self._inside(state, operation)
            case End():
                assert state.open_ is not None
                answer, after = self._applied(state._replace(open_=None), state.open_)
                yield "commit", answer, after._replace(happened=True)
                yield "rollback", None, state._replace(open_=None)
            case _:
                answer, after = self._applied(state, wanted)
                yield name, answer, after
                if state.faults:
                    yield f"{name} lost", "lost", after._replace(faults=state.faults - 1)
                    yield f"{name} refused", "refused", state._replace(faults=state.faults - 1)

    def _inside(self, state: State, operation: Operation) -> tuple[Any, State]:
        """The caller's transaction sees its own writes; nobody else does."""
        if isinstance(operation, Complete):
            return None, state._replace(open_=operation)
        assert state.open_ is not None
        answer, _ = self._applied(self._applied(state, state.open_)[1], operation)
        return answer, state

    def _applied(self, state: State, wanted: Any) -> tuple[Any, State]:
        if isinstance(wanted, CacheRequest):
            cache = self._cache({} if state.entry is None else {KEY.digest: state.entry})
            answer: Any = cache.apply(wanted.operation, state.now_us)
            return answer, state._replace(entry=cache.entries.get(KEY.digest))
        table = Table()
        if state.record is not None:
            table.records[KEY.digest] = state.record
        if state.noted is not None:
            table.invalidations.note(state.noted)
        answer = table.apply(wanted, state.now_us)
        noted = next(iter(table.invalidations._noted.values()), None)
        confirmed = isinstance(wanted, Confirm) and state.noted is not None and noted is None
        return answer, state._replace(
            record=table.records.get(KEY.digest),
            noted=noted,
            confirmed=state.confirmed or confirmed,
            happened=state.happened or isinstance(wanted, Complete),
        )


def _tell(state: State, number: int, told: Told) -> State:
    histories = list(state.histories)
    histories[number] = (*histories[number], told)
    return state._replace(histories=tuple(histories))


def _check(state: State, shown: Shown, trace: tuple[str, ...], *, can_fail: bool) -> None:
    """What no caller may be shown; `can_fail`: whether a cache may have failed to hear of the erase."""
    if isinstance(shown.answer, Reused) and not shown.answer.record.fingerprint:
        raise Violation("\n".join((*trace, "an erased record was compared with the request")))
    if not isinstance(shown.answer, Replay):
        return
    record = shown.answer.record
    told = "\n".join(trace)
    began_us, confirmed = shown.began
    if record.outcome == BODY and confirmed:
        raise Violation(f"shown after a confirmed erase:\n{told}")
    if record.outcome == BODY and shown.erased_here and not can_fail:
        raise Violation(f"shown by the process that has erased it:\n{told}")
    if record.expires_us <= began_us:
        raise Violation(f"shown after it expired:\n{told}")
    if record.fingerprint not in (b"", shown.claim.fingerprint):  # an erased one is for every request
        raise Violation(f"shown to another request:\n{told}")
    if not state.happened:
        raise Violation(f"shown although it never happened:\n{told}")


def _check_purged(state: State, purged: Purged, trace: tuple[str, ...], *, can_fail: bool) -> None:
    """A purge is over when the shared cache and this process have forgotten, whatever other processes hold."""
    told = "\n".join(trace)
    if purged.problem and not can_fail:
        raise Violation(f"a purge at once waits for other processes: {purged.problem}\n{told}")
    if not purged.problem and purged.is_at_hand:
        raise Violation(f"purged, and still at hand in the process that did it:\n{told}")
    # Where the cache evicts, the tombstone may go, and others may fill in what the store still has.
    if not purged.problem and not can_fail and state.entry is not None and state.entry.kind == "record":
        raise Violation(f"purged, and still in the shared cache:\n{told}")


def claim_of(number: int, fingerprint: bytes = b"\1") -> Claim:
    """A claim of the one key there is."""
    return Claim(KEY, fingerprint, bytes([number]) * 16, TERMS, NOTHING)


LEASE = Lease(KEY, 1, bytes([9]) * 16, 31 * SECOND)
"""Of the one who runs at first."""
