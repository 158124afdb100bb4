"""The port that stores implement: plans of operations, and drivers that execute them.

- `plan` is neither sync nor async and takes operations of one kind. It returns one answer per operation, in order; an
  error of one operation is the answer of that one alone.
- The effects of a batch are durable when the driver returns.
- Nothing connects before it is used, and nothing is shared with a forked process.
- What a store can do beyond that it declares in `capabilities`; nobody probes for methods or classes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any, Final, Protocol, cast

from semel.core.operations import Answer, Operation
from semel.errors import UsageError

Plan = Generator[Any, Any, list[Answer | Exception]]
Answers = list[Answer | Exception]


class Capability(Enum):
    """What a store may be able to do beside carrying out operations; it declares those that it has."""

    JOIN = "operations inside a transaction of the caller: `join` and `async_join`"
    NOTIFY = "telling of ends: drivers have a method `listen`"
    EAGER = "`perform` of its async drivers may be started outside a task: it awaits only futures of the running loop"
    GATHER = "eager only for an asker who is alone: what several tasks ask in one turn of the loop is cheaper together"
    SEPARATE_LOOP = "drivers for an event loop of semel's own: `separate_async_driver`"
    OWN_CIRCUIT = "it guards what it is made of by itself, so no circuit breaker is put in front of it"
    INVALIDATIONS = "notes of erased records until every copy of them is confirmed to be gone: `install_id`"
    LANE_WRAPPER = "a lane around the engine's, which may answer from copies: `wrap_lane` and `async_wrap_lane`"
    CLIENT_LIBRARIES = "it needs client libraries, which may be missing: `libraries`"
    FILE = "it is a file: `path`"
    SEARCH = "finding records by what they are about without reading all of them"
    SEARCH_ON_DEMAND = "the same once its indexes were made; without them the store refuses it by itself"
    COUNT = "counting records exactly, in one statement"
    LETTERS = "dead letters of consumers of events, written together with the end of their record"
    OUTBOX = "events that are published if, and only if, the transaction they were added in commits"
    BATCH = "batches: their items and pages beside the records of their items"
    AUDIT = "the audit chain, whose entries follow each other by compare-and-set, and tokens of operators"
    DURABLE = "what it acknowledged survives a crash"
    EXAMINE = "`semel doctor`: `admin().examine`"
    MIGRATE = "`semel migrate`: `admin().migrate`"
    MIGRATION_SQL = "`semel migrate --sql`: `admin().pending_sql`"
    ONLINE_MIGRATION = "migrations while workers run, in two halves, with partitions"
    SEARCH_INDEXES = "`semel migrate --search`: indexes on demand, `admin().migrate(search=True)`"
    RESEAL = "`semel reseal`: sealing again what was sealed with an older key, `admin().sealed_rows`"
    RESTORE_HOLD = "`semel restored`: `admin().restored` and `admin().end_restored`"


Capabilities = frozenset[Capability]
ITS_OWN: Final = frozenset({Capability.LANE_WRAPPER, Capability.CLIENT_LIBRARIES, Capability.FILE})
"""What a store that stands in front of another one does not have from it."""
SEARCHING: Final = frozenset({Capability.SEARCH, Capability.COUNT})
"""What is answered by an index or in one statement; a store without it reads all records, where that is asked for."""
ADMINISTRATION: Final = frozenset(
    {
        Capability.EXAMINE,
        Capability.MIGRATE,
        Capability.MIGRATION_SQL,
        Capability.ONLINE_MIGRATION,
        Capability.SEARCH_INDEXES,
        Capability.RESEAL,
        Capability.RESTORE_HOLD,
    }
)
"""What operators do to a store, through the second port: `semel.stores.admin.Admin`."""


class Driver(Protocol):
    """Executes batches of plans on connections of its own.

    One of a store with `Capability.NOTIFY` has a method `listen(told)`: from then on `told(digest)` is called, in any
    thread, when a run ends that was read with `waits`. Nothing depends on it: waiters poll too.
    """

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Execute one batch. Returns for each plan its answers, or the exception that failed the whole plan."""

    def close(self) -> None:
        """Close every connection."""


class AsyncDriver(Protocol):
    """A driver for event loops.

    With `Capability.EAGER` a lane gives answers that are at hand without waiting. Where there is a `listen(told)`, it
    calls `told` in the running loop.
    """

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Execute one batch. Returns for each plan its answers, or the exception that failed the whole plan."""

    async def close(self) -> None:
        """Close every connection."""


class Joined(Protocol):
    """The caller's own connection, made usable for single operations inside the caller's transaction."""

    def perform(self, plan: Plan) -> Answers:
        """Run one plan. Never begins, commits, rolls back or retries.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """


class AsyncJoined(Protocol):
    """The caller's own async connection."""

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan. Never begins, commits, rolls back or retries."""


class Batching(Protocol):
    """What a lane needs: a name, how many operations go together, and what to send for them."""

    @property
    def name(self) -> str:
        """What it is called in messages: never with a password."""

    @property
    def max_operations(self) -> int:
        """How many operations a lane may send together."""

    def plan(self, operations: Sequence[Any], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""


class Store(Protocol):
    """A place that keeps records: what it must be able to execute. What it may administer is another port."""

    @property
    def name(self) -> str:
        """What the store is called in messages: never with a password."""

    @property
    def max_operations(self) -> int:
        """How many operations a lane may send together."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do beside that."""

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""

    def driver(self) -> Driver:
        """A driver for threads of this process."""

    def async_driver(self) -> AsyncDriver:
        """A driver for the running event loop."""

    def join(self, connection: Any) -> Joined:
        """The caller's connection as a place for plans.

        Raises:
            UsageError: this store cannot join that kind of connection.
        """

    def async_join(self, connection: Any) -> AsyncJoined:
        """The same for connections that are awaited."""


class SeparateLoop(Store, Protocol):
    """What a store with `Capability.SEPARATE_LOOP` has beside the methods of a store."""

    def separate_async_driver(self) -> AsyncDriver:
        """A driver for an event loop of semel's own, whichever loop the connections of the caller belong to."""


class WithLibraries(Store, Protocol):
    """What a store with `Capability.CLIENT_LIBRARIES` has beside the methods of a store."""

    @property
    def libraries(self) -> tuple[str, str]:
        """The modules that have to be installed, for threads and for event loops."""


class WithBatches(Store, Protocol):
    """What a store with `Capability.BATCH` has beside the methods of a store."""

    def is_outage(self, error: Exception) -> bool:
        """Whether an error of the caller's client library says nothing of what was sent: it may be sent again as it is.

        The database was not there, or another transaction was in the way.
        """

    @property
    def has_one_writer(self) -> bool:
        """Whether everybody waits who wants to write while a transaction has written, in whatever rows."""


class InFile(Store, Protocol):
    """What a store with `Capability.FILE` has beside the methods of a store."""

    @property
    def path(self) -> str:
        """The absolute path of the file."""


class Notifying(Protocol):
    """What a driver of a store with `Capability.NOTIFY` has beside the methods of a driver."""

    def listen(self, told: Callable[[bytes], None]) -> None:
        """Have `told` called with the digest when a run ends that was read with `waits`."""


def listener_of(store: Store, driver: Driver | AsyncDriver) -> Notifying | None:
    """`driver`, if it can tell of ends."""
    return cast("Notifying", driver) if Capability.NOTIFY in store.capabilities else None


def libraries_of(store: Store) -> tuple[str, str] | None:
    """The modules that `store` needs, for threads and for event loops; None: it needs none."""
    return cast("WithLibraries", store).libraries if Capability.CLIENT_LIBRARIES in store.capabilities else None


def path_of(store: Store) -> str | None:
    """The file that `store` is; None: it is none."""
    return cast("InFile", store).path if Capability.FILE in store.capabilities else None


def maker_of_separate_drivers(store: Store) -> Callable[[], AsyncDriver] | None:
    """What makes a driver for an event loop of semel's own; None: all connections belong to the caller's loop."""
    if Capability.SEPARATE_LOOP not in store.capabilities:
        return None
    return cast("SeparateLoop", store).separate_async_driver


class CacheableStore(Store, Protocol):
    """What a store with `Capability.INVALIDATIONS` has beside the methods of a store."""

    @property
    def install_id(self) -> bytes | None:
        """Which database this is: random, and kept in it. None until it was read; nothing is asked for it."""


class LanePort(Protocol):
    """What has operations performed: for threads, or for an event loop, where what its methods give is awaited."""

    def perform(self, operation: Any) -> Any:
        """Have one operation performed, together with whatever else is asked meanwhile."""

    def close(self) -> Any:
        """Let what is under way come to its end, and let go of what the lane itself opened."""


class LaneWrapper(Protocol):
    """What a store with `Capability.LANE_WRAPPER` has beside the methods of a store.

    `open_lane` makes a further lane, to whatever else the wrapper asks: what goes there does not wait for the store.
    Joined operations never pass a lane, so a wrapper does not see them.
    """

    def wrap_lane(self, lane: LanePort, open_lane: Callable[[Batching, Driver], LanePort]) -> LanePort:
        """The lane that threads use instead of `lane`, which leads to the store."""

    def async_wrap_lane(self, lane: LanePort, open_lane: Callable[[Batching, AsyncDriver], LanePort]) -> LanePort:
        """The lane that an event loop uses instead of `lane`, which leads to the store."""


def lane_wrapper_of(store: Store) -> LaneWrapper | None:
    """`store`, if it puts a lane of its own around the engine's."""
    return cast("LaneWrapper", store) if Capability.LANE_WRAPPER in store.capabilities else None


def scan_needed_error(name: str, why: str) -> UsageError:
    """The error for what a store could only answer by reading all of its records."""
    return UsageError(
        f"{name} {why}, so all records would have to be read; nothing was read. scan=True, or --scan, reads them."
    )
