"""The second port of a store: what operators do to it, and the findings of `semel doctor`. The command line calls this.

- A method works if, and only if, the store declares its capability; otherwise it refuses before anything is opened.
- Looking changes nothing, and a promise is reported as kept only where nothing was found that breaks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Final, Literal, NoReturn, Protocol, cast

import msgspec
from msgspec.structs import replace

from semel.core.policy import Policy
from semel.core.store import Capability, Store
from semel.errors import UsageError

Verdict = Literal["ok", "note", "fix"]
"""note: worth knowing; fix: a promise does not hold until it is changed."""
Need = Literal["durable", "primary", "schema", "kept", "joins"]

MICROSECOND: Final = timedelta(microseconds=1)
DEFAULT_HORIZON: Final = timedelta(hours=24)


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. `breaks`: what does not hold because of it."""

    topic: str
    found: str
    verdict: Verdict = "ok"
    advice: str = ""
    breaks: tuple[Need, ...] = ()


def required_finding(topic: str, found: str, advice: str, *breaks: Need, fine: bool) -> Finding:
    """A finding about what must be so: `advice` and what it `breaks` count only where it is not `fine`."""
    return Finding(topic, found) if fine else Finding(topic, found, "fix", advice, breaks)


class Promise(msgspec.Struct, frozen=True):
    """A row of the promise, and whether it holds here. None: it does not apply, or is not in this release."""

    boundary: str
    promise: str
    holds: bool | None
    because: str


MOST_COUNTED: Final = 100_000
"""How many records a look at a store counts, or goes through, of each kind: what is beyond is not read."""


class Numbers(msgspec.Struct, frozen=True):
    """Figures about the records. More than MOST_COUNTED: there are more, and nobody knows how many.

    Attributes:
        shortest_keep_us: None where there are no records.
        lapsed_among: of how many of the newest records the leases were looked at; None: of all.
        shortest_among: the same of the shortest keep_for.
    """

    expired: int
    in_doubt: int
    lapsed: int
    shortest_keep_us: int | None
    lapsed_among: int | None = None
    shortest_among: int | None = None


_OUTBOX: Final = "event in the outbox"
_NO_OUTBOX: Final = "this store has no outbox"
_ALWAYS: Final[tuple[Need, ...]] = ("durable", "primary", "schema")
_ROWS: Final[tuple[tuple[str, str, tuple[Need, ...], str], ...]] = (
    ("outcome per key", "at most one, fenced", _ALWAYS, "the store keeps acknowledged commits"),
    ("replay", "byte-equal within keep_for", (*_ALWAYS, "kept"), "records outlive the retries"),
    ("effect in the same database (within)", "exactly once", (*_ALWAYS, "joins"), "for connections to this database"),
    (
        _OUTBOX,
        "recorded exactly once, published at least once",
        (*_ALWAYS, "joins"),
        "the consumer's inbox makes it effectively once",
    ),
    (
        "external effect that honours our derived key",
        "effectively once",
        (*_ALWAYS, "kept"),
        "inside the other side's own window",
    ),
    (
        "external effect with a reconcile hook",
        "effectively once",
        (*_ALWAYS, "kept"),
        "where the hook is definitive",
    ),
    ('external effect, in_doubt="rerun" (default)', "at least once", _ALWAYS, "repeats only when in doubt"),
    ('external effect, in_doubt="hold"', "at most once", (*_ALWAYS, "kept"), "somebody resolves what is held"),
)
_REDIS: Final = ("Redis as the only store", "best effort")


def promises(findings: Sequence[Finding], *, best_effort: bool = False, outbox: bool = True) -> list[Promise]:
    """Which rows of the promise hold, by what was found.

    Args:
        findings: what was found.
        best_effort: the store is Redis, with nothing behind it.
        outbox: whether the store has an outbox.
    """
    held = [_promise(*row, findings) for row in _ROWS]
    if not outbox:
        held = [replace(row, holds=None, because=_NO_OUTBOX) if row.boundary == _OUTBOX else row for row in held]
    if not best_effort:
        return [*held, Promise(*_REDIS, None, "this store is another")]
    refused = any(finding.verdict == "fix" for finding in findings)
    return [*held, Promise(*_REDIS, not refused, "no eviction, no failover loss")]


def _promise(
    boundary: str, promise: str, needs: tuple[Need, ...], condition: str, findings: Sequence[Finding]
) -> Promise:
    broken = [finding.topic for finding in findings if set(finding.breaks) & set(needs)]
    return Promise(boundary, promise, not broken, f"see: {', '.join(broken)}" if broken else condition)


def about_records(numbers: Numbers, horizon: timedelta) -> list[Finding]:
    """What the figures about records mean."""
    shortest = numbers.shortest_keep_us
    keep = Policy().keep_for if shortest is None else shortest * MICROSECOND
    newest = numbers.shortest_among
    known = "the shortest there is" if newest is None else f"the shortest of the newest {newest:,} records"
    whose = "the default policy" if shortest is None else known
    kept = keep >= horizon
    return [
        Finding(
            "keep_for",
            f"{_hours(keep)} ({whose}); callers try again for {_hours(horizon)}",
            "ok" if kept else "fix",
            "" if kept else "a retry after keep_for runs the operation again: raise keep_for above the retry horizon",
            () if kept else ("kept",),
        ),
        _count("expired records", numbers.expired, 10_000, "the sweep does not keep up: run `semel sweep --every 1m`"),
        _count("in doubt", numbers.in_doubt, 0, "look at them: `semel list --stuck`"),
        _count(
            "lease ended, not swept",
            numbers.lapsed,
            0,
            "run `semel sweep`, or wait for the next claim of the key",
            among=numbers.lapsed_among,
        ),
    ]


def about_clock(offset: timedelta, precision: timedelta) -> Finding:
    """How far this machine's clock is from the store's. Only the store's decides, so it is never more than a note."""
    far = abs(offset) - precision > timedelta(seconds=1)
    seconds = offset.total_seconds()
    return Finding(
        "clock",
        f"this machine is {abs(seconds):.3f} s {'ahead of' if seconds > 0 else 'behind'} the store "
        f"(± {precision.total_seconds():.3f} s)",
        "note" if far else "ok",
        "only the store's clock decides; set this machine's by NTP so that logs agree" if far else "",
    )


def _hours(length: timedelta) -> str:
    return f"{length.total_seconds() / 3600:g} h"


def _count(topic: str, count: int, most: int, advice: str, *, among: int | None = None) -> Finding:
    over = count > most
    found = f"more than {MOST_COUNTED:,}" if count > MOST_COUNTED else str(count)
    if among is not None:
        found += f" among the newest {among:,} records"
    return Finding(topic, found, "note" if over else "ok", advice if over else "")


Half = Literal["pre", "post"]
"""pre: what workers of the release before can live with; post: the rest, once they are gone."""

_REFUSALS: Final = {
    Capability.EXAMINE: "{name} cannot be looked at; nothing was done.",
    Capability.MIGRATE: "{name} has no schema to migrate; nothing was done.",
    Capability.MIGRATION_SQL: "{name} knows no SQL; nothing was done. Without --sql the table is made.",
    Capability.ONLINE_MIGRATION: ("--half and --partitions are for SQL servers, not for {name}; nothing was done."),
    Capability.SEARCH_INDEXES: "{name} has no indexes to be made on demand (--search); nothing was done.",
    Capability.RESEAL: (
        "{name} cannot be sealed again in place; nothing was done. Keep older keys in the keyring until what "
        "they sealed has expired."
    ),
    Capability.RESTORE_HOLD: "{name} takes no restore mark, only servers do; nothing was done.",
    Capability.COUNT: "{name} cannot tell how far so many records reach: it has no order of all; nothing was read.",
    Capability.INVALIDATIONS: (
        "{name} cannot stand behind a cache: it does not record pending invalidations. Nothing was changed. "
        "Use PostgreSQL, MySQL, MariaDB or SQLite."
    ),
}


class Mark(msgspec.Struct, frozen=True):
    """A restore mark, as it is kept. No operations: all of them."""

    at_us: int
    marked_us: int
    until_us: int
    operations: tuple[str, ...] | None = None


class Marked(msgspec.Struct, frozen=True):
    """What setting the mark did: `held` records were unsettled at the restore point, `forgotten` had expired."""

    mark: Mark
    held: int
    forgotten: int


class SealedRows(Protocol):
    """The rows of a SQL store, for sealing their values again."""

    @property
    def step_key(self) -> tuple[str, ...]:
        """The columns that tell finished steps apart."""

    def fill(self, text: str) -> str:
        """`text` with the names of the tables in it, such as `{record_table}`."""

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> list[Sequence[Any]]:
        """Run one statement, with `?` for each value; answers its rows."""

    def transaction(self) -> AbstractContextManager[None]:
        """What is executed inside is committed together, where that is cheaper than one by one."""


class Admin:
    """What operators do to one store. A backend overrides what its store declares; the rest refuses."""

    def __init__(self, name: str) -> None:
        self.name = name

    def migrate(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> list[str]:
        """Apply what is pending, or make what is missing; answers what was done.

        Raises:
            UsageError: the store lacks `Capability.MIGRATE`, or what was asked for does not fit what is there.
            SchemaOutdated: it is of a newer release.
            StoreUnavailable: it did not answer, or a lock was not to be had.
        """
        del half, search, partitions
        self._refuse(Capability.MIGRATE)

    def pending(self) -> list[str]:
        """What is not applied yet."""
        return []

    def pending_sql(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> str:
        """The SQL that `migrate` would run now, empty where nothing is pending. Changes nothing.

        Raises:
            UsageError: the store lacks `Capability.MIGRATION_SQL`.
        """
        del half, search, partitions
        self._refuse(Capability.MIGRATION_SQL)

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What `semel doctor` finds. `horizon`: how long after its first call a caller may still try again.

        Raises:
            UsageError: the store lacks `Capability.EXAMINE`.
        """
        del horizon
        self._refuse(Capability.EXAMINE)

    def sealed_rows(self) -> AbstractContextManager[SealedRows]:
        """The rows that may hold sealed values, while the context is open.

        Raises:
            UsageError: the store lacks `Capability.RESEAL`.
        """
        self._refuse(Capability.RESEAL)

    def restored(self, at_us: int, for_us: int, operations: tuple[str, ...] | None = None) -> Marked:
        """Set the restore mark.

        Raises:
            UsageError: the store lacks `Capability.RESTORE_HOLD`, or the restore point is in the future.
        """
        del at_us, for_us, operations
        self._refuse(Capability.RESTORE_HOLD)

    def end_restored(self) -> bool:
        """Take the restore mark away; answers whether there was one.

        Raises:
            UsageError: the store lacks `Capability.RESTORE_HOLD`.
        """
        self._refuse(Capability.RESTORE_HOLD)

    def _refuse(self, capability: Capability) -> NoReturn:
        raise lacking_error(self.name, capability)


class Administered(Protocol):
    """What a store that declares something of `ADMINISTRATION` has beside the methods of a store."""

    def admin(self) -> Admin:
        """What operators do to it."""


def admin_of(store: Store, capability: Capability) -> Admin:
    """The administration of a store, for something that it has to declare.

    Raises:
        UsageError: it does not declare it.
    """
    if capability not in store.capabilities:
        raise lacking_error(store.name, capability)
    return cast("Administered", store).admin()


def lacking_error(name: str, capability: Capability) -> UsageError:
    """The error for a store that does not declare what was asked of it."""
    return UsageError(_REFUSALS[capability].format(name=name))
