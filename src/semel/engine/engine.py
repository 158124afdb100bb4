"""What both colours share: settings, requests, the registry of operations. No I/O, nothing that waits."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import os
import secrets
import socket
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Required, TypedDict, TypeVar, get_args

from semel.core import codec
from semel.core.circuit import Change, Guard, Limits
from semel.core.erasure.port import Erasable
from semel.core.erasure.stored import erasables_of
from semel.core.fingerprint import Fingerprints, Secret, Secrets
from semel.core.key import SHARED, Key, is_internal
from semel.core.observer import TRACE_TAG, Logging, Observer, Signal, counter_of, is_heard, notify, tracer_of
from semel.core.operations import Complete, Fail, LapsedRecord, Query, Terms
from semel.core.policy import DeclaredOperations, Policy, PolicyFields
from semel.core.record import (
    NOTHING,
    PROCESS_BYTES,
    About,
    Status,
    Worker,
    is_storable,
    store_instant,
    tombstone_reason,
)
from semel.core.store import Capability, Store
from semel.engine import context
from semel.engine.background import RunningHandlers, Stalled, Waiting
from semel.engine.call_flow import CallFlow, Request, Result, stored_record_of, terms_of
from semel.engine.clock import Clock, Crash, RetryBudget, SystemClock
from semel.engine.decorator import ShapeCache, resolved_hints, shape_of_result
from semel.engine.lane import Lane
from semel.engine.runtime import EnginePort
from semel.errors import InProgress, LeaseLost, NotInTransaction, SemelError, UsageError
from semel.validation import explain_unknown

if TYPE_CHECKING:
    from semel.engine.admin import SweepReport

_log = logging.getLogger("semel")
_NONCE = 16
_KINDS = {
    "in_doubt": "in_doubt",
    "lease_lost": "lease_lost",
    "key_reused": "reused",
    "in_progress": "waited",
    "too_many_waiting": "waited",
    "too_many_handlers": "refused",
    "store_unavailable": "store_down",
    "store_misconfigured": "store_down",
    "failed_before": "replayed",
    "result_not_kept": "replayed",
}


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredOperation:
    """An operation this engine was told about: how to reconcile it and how to read its results."""

    policy: Policy
    shape: codec.Shape
    terms: Terms


class CallOptions(TypedDict, total=False):
    """What a call is asked with, beside its key."""

    operation: Required[str]
    fingerprint: Required[Any]
    scope: Any
    policy: Policy | None
    about: About | Mapping[str, Any] | None
    returns: Any


ASKED: Final = frozenset(CallOptions.__annotations__)


def refuse_unknown(
    call: str, given: Iterable[str], known: Iterable[str], hints: Mapping[str, str] | None = None
) -> None:
    """Refuse keywords that a call does not take; `hints` say what to write instead of some of them.

    Raises:
        UsageError: there is one.
    """
    for name in sorted(given):
        raise UsageError(explain_unknown(call, name, known, outcome="nothing ran", hints=hints))


@lru_cache
def process_name() -> bytes:
    """The bytes with which the nonces of this process begin."""
    return os.urandom(PROCESS_BYTES)


os.register_at_fork(after_in_child=process_name.cache_clear)


def nonces_of(process: bytes) -> Callable[[], bytes]:
    """Draws nonces that begin so and never come again. Put together of functions of C: every claim draws one."""
    return map(process.__add__, map(os.urandom, repeat(_NONCE - PROCESS_BYTES))).__next__


def this_worker() -> Worker:
    """What others may know of this process."""
    return Worker.of(process_name(), socket.gethostname(), os.getpid(), _release())


@lru_cache
def _release() -> str:
    try:
        return importlib.metadata.version("semel")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


C = TypeVar("C")


class EngineBase:
    """Settings of an engine, and requests made from them."""

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
        new_nonce: Callable[[], bytes] | None = None,
        limits: Limits | None = None,
        fingerprint_secret: Secret | Sequence[Secret | None] | None = None,
    ) -> None:
        self.store = store
        self.without_hit: Literal["miss"] | None = "miss" if Capability.LANE_WRAPPER in store.capabilities else None
        self.policy = policy or Policy()
        self._operations: DeclaredOperations | None = None
        self._declared: dict[str, tuple[Policy, Policy]] = {}
        self.clock: Clock = clock or SystemClock()
        self.observe_with(observer or Logging())
        self.new_nonce = new_nonce or nonces_of(process_name())
        self._worker = this_worker if new_nonce is None else None
        if new_nonce is None:
            draw_anew = weakref.WeakMethod(self._draw_anew)
            os.register_at_fork(after_in_child=lambda: _call(draw_anew()))
        self.jitter = secrets.SystemRandom().random
        self.limits = limits or Limits()
        most = self.limits.max_handlers
        self._handlers = None if most is None else RunningHandlers(most)
        self.retry_budget = RetryBudget(self.jitter, self.limits.retry_budget)
        self._left: list[Guard] = []
        self.known: dict[str, RegisteredOperation] = {}
        self.erasables: list[Erasable] = erasables_of(store)
        self.secrets = Secrets(fingerprint_secret)
        self.fingerprints = Fingerprints(self.secrets)
        self.shapes = ShapeCache()
        self._companions: dict[type, object] = {}

    def companion(self, kind: type[C]) -> C:
        """The one object of a class that goes with this engine, such as what another package has seen of its store."""
        made = self._companions.get(kind) or self._companions.setdefault(kind, kind())  # of two threads one wins
        assert isinstance(made, kind)  # noqa: S101 - by its name
        return made

    def observe_with(self, observer: Observer) -> None:
        """Tell this observer what happens from now on."""
        self.observer: Observer = observer
        self.tracer = tracer_of(observer)
        self.reports = CallReports(observer)

    def _draw_anew(self) -> None:
        """A forked process has a name of its own."""
        self.new_nonce = nonces_of(process_name())

    def _new_lane(self) -> Lane:
        """A new lane to the store, with a guard in front of it unless the store has its own."""
        guard = None
        with suppress(IndexError):  # most often nothing was left, and another thread may be quicker
            guard = self._left.pop()
        if guard is None and Capability.OWN_CIRCUIT not in self.store.capabilities:
            breaker = self.limits.breaker(self.jitter)
            patience = self.limits.slow_call.total_seconds()
            guard = Guard(breaker, self.clock.monotonic, name=self.store.name, patience=patience)
        return Lane(self.store, guard, self.limits.max_queue)

    def _new_waiting(self) -> Waiting:
        """A new place to wait for keys that others run."""
        return Waiting(self.jitter, self.limits)

    def _host(self) -> EnginePort:
        """What runtimes need of this engine."""
        return EnginePort(
            self,
            new_lane=self._new_lane,
            new_waiting=self._new_waiting,
            retire=self._retire,
            tell_change=self._tell_change,
            tell_stall=self._tell_stall,
            worker=self._worker,
        )

    def _retire(self, guard: Guard | None) -> None:
        """A lane is gone. Where its store was left alone the next lane goes on so, and tells when it answers again."""
        if guard is not None and not guard.closed:
            guard.on_lane_closed()
            self._left.append(guard)

    def policy_of(self, policy: Policy | None, changes: PolicyFields) -> Policy:
        """The policy of a call: the one given, or else the engine's, with changes.

        Raises:
            UsageError: what was given is no policy.
        """
        if policy is not None and not isinstance(policy, Policy):
            message = f"policy= must be a Policy, not {type(policy).__name__}; nothing ran."
            raise UsageError(message)
        return (policy or self.policy).replace(**changes)

    def declare(self, operations: DeclaredOperations) -> None:
        """Apply what a settings file says of operations to all that are asked for from now on."""
        self._operations = operations if operations.declared or operations.strict else None

    def policy_for(self, operation: str, policy: Policy | None, changes: PolicyFields) -> Policy:
        """The policy of an operation: `policy_of`, with what the settings file declares of the operation.

        Raises:
            UsageError: what was given is no policy, or the settings file is strict and does not declare the operation.
        """
        own = self.policy_of(policy, changes)
        if self._operations is None:
            return own
        return self._operations.policy(operation, own, self.policy, changes)

    def kept_for(self, operation: str, own: timedelta) -> timedelta:
        """How long what belongs to records of an operation is kept: as the settings file, or else the code, says."""
        return own if self._operations is None else self._operations.kept_for(operation, own)

    def _declared_policy(self, operation: str, own: Policy, operations: DeclaredOperations) -> Policy:
        """As `policy_for`; worked out once for each operation, because it is asked for at every call."""
        known = self._declared.get(operation)
        if known is None or known[0] is not own:
            known = self._declared[operation] = (own, operations.policy(operation, own, self.policy))
        return known[1]

    def request(
        self,
        key: Any,
        handler: Callable[..., Any],
        *,
        operation: str,
        scope: Any,
        asked: Any,
        policy: Policy | None,
        about: About | Mapping[str, Any] | None,
        returns: Any,
    ) -> Request:
        """What a call of `run` asks for.

        Raises:
            UsageError: the handler cannot be called, or what identifies the call is not usable.
        """
        if not callable(handler):
            message = f"The handler must be callable, not {type(handler).__name__}; nothing ran."
            raise UsageError(message)
        shape = shape_of(returns) if returns is not codec.NO_ANNOTATION else _shape(handler)
        return self._asked(key, operation=operation, scope=scope, asked=asked, policy=policy, about=about, shape=shape)

    def _asked(
        self,
        key: Any,
        *,
        operation: str,
        scope: Any,
        asked: Any,
        policy: Policy | None,
        about: About | Mapping[str, Any] | None,
        shape: codec.Shape,
    ) -> Request:
        if policy is None or type(policy) is not Policy:
            policy = self.policy_of(policy, {})
        identity = key if isinstance(key, Key) else Key.of(key, operation=operation, scope=scope)
        if self._operations is not None:
            policy = self._declared_policy(identity.operation, policy, self._operations)
        taken = self.fingerprints.take(asked)
        known = self.known.get(identity.operation)
        if known is None:
            known = self.known.setdefault(identity.operation, RegisteredOperation(policy, shape, terms_of(policy)))
        terms = known.terms if known.policy is policy else terms_of(policy)
        searched = NOTHING if about is None else About.of(about)
        return Request(identity, taken, policy, terms, searched, shape, asked, self.fingerprints)

    def _request_to_open(self, key: Any, asked: CallOptions) -> Request:
        """What a call asks for that `open` begins.

        Raises:
            UsageError: it does not say what is compared.
        """
        if "fingerprint" not in asked:
            message = "fingerprint= says what was asked, and None that nothing is compared; nothing ran."
            raise UsageError(message)
        if not asked.keys() <= ASKED:
            refuse_unknown("open()", asked.keys() - ASKED, ASKED)
        return self._asked(
            key,
            operation=asked["operation"],
            scope=asked.get("scope", SHARED),
            asked=asked["fingerprint"],
            policy=asked.get("policy"),
            about=asked.get("about"),
            shape=shape_of(asked.get("returns", codec.NO_ANNOTATION)),
        )

    def _joined(self, request: Request) -> Any:
        """The caller's transaction that a new call becomes part of, if there is one.

        Raises:
            KeyReentered: the handler that asks is itself running the key.
        """
        if context.current_handler.get() is not None:
            context.refuse_reentry(request.key, self.store.name)
        return None if context.current_transaction.get() is None else context.joined_here(self.store.name)

    def handlers_for_call(self, operation: str) -> RunningHandlers | None:
        """Where a new call is counted while its handler runs; None: there is no limit, or nothing to be counted.

        That is where the caller is counted, and where the claim is one of semel's own, which runs no handler: what
        holds it calls one, or runs for as long as the process.
        """
        handlers = self._handlers
        if handlers is not None and (context.is_in_handler(self.store.name) or is_internal(operation)):
            return None
        return handlers

    def identity(self, key: Any, operation: str | None, scope: Any) -> Key:
        """The key, given as a value with its operation, or as the `Key` of a record."""
        if isinstance(key, Key):
            return key
        if operation is None:
            message = "operation= is needed to find a record by its key; nothing was read or changed."
            raise UsageError(message)
        return Key.of(key, operation=operation, scope=scope)

    def _tell_change(self, change: Change) -> None:
        """Tell the observer that the store is left alone from now on, or answers again."""
        if is_heard(self.observer, change):
            notify(self.observer, Signal(kind=change, operation="", reference="", detail=self.store.name))

    def _tell_stall(self, stall: Stalled) -> None:
        """Tell the observer that this process, or its event loop, stood still for so long that leases lapsed."""
        if is_heard(self.observer, "stalled"):
            leases = "1 lease" if stall.lapsed == 1 else f"{stall.lapsed} leases"
            detail = f"stood still for {stall.seconds:.1f} s; {leases} lapsed"
            signal = Signal(kind="stalled", operation="", reference="", seconds=stall.seconds, detail=detail)
            notify(self.observer, signal)

    def tell_lapsed(self, record: LapsedRecord) -> None:
        """Tell the observer of a record that a sweep marked as in doubt."""
        if is_heard(self.observer, "lapsed"):
            seconds = record.age_us / 1_000_000
            detail = f"the lease of an attempt ended that began {seconds:.0f} s ago; it is in doubt now"
            reference = record.digest.hex()
            notify(
                self.observer,
                Signal(kind="lapsed", operation=record.operation, reference=reference, seconds=seconds, detail=detail),
            )

    def tell_swept(self, report: SweepReport) -> SweepReport:
        """Tell the observer of a sweep that ended; gives its report on."""
        if is_heard(self.observer, "swept"):
            detail = " ".join(f"{name}={number}" for name, number in dataclasses.asdict(report).items())
            number = report.deleted + report.lapsed + report.reconciled + report.invalidated
            notify(self.observer, Signal(kind="swept", operation="", reference="", number=number, detail=detail))
        return report


E_co = TypeVar("E_co", bound=EngineBase, covariant=True)


class SemelBase(Generic[E_co]):
    """What people hold: a view on an engine, which shows what is on the sheet and keeps the rest to itself."""

    def __init__(self, engine: E_co) -> None:
        self._engine = engine

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._engine.store.name!r})"


def engine_of(semel: SemelBase[E_co]) -> E_co:
    """The engine behind what people hold, for the parts of semel that are built on it."""
    return semel._engine  # noqa: SLF001 - the one place that looks inside


class CallReports:
    """Tells the observer how calls went."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._count_call = counter_of(observer)
        self._not_kept: set[str] = set()

    def waited(self, key: Key) -> None:
        """Tell of a request that was refused, because somebody else still runs its key."""
        if is_heard(self._observer, "waited"):
            signal = Signal(kind="waited", operation=key.operation, reference=key.reference, detail=InProgress.__name__)
            notify(self._observer, signal)

    def ended(self, call: CallFlow, result: Result[Any]) -> None:
        """Tell of a call that ended well."""
        request = call.request
        kind = "replayed" if result.replayed else "ran"
        if self._count_call is not None:
            began, ended = call.handler_began, call.handler_ended
            handler_seconds = None if began is None or ended is None else ended - began
            try:
                self._count_call(kind, request.key.operation, result.seconds, handler_seconds)
            except Exception:  # noqa: BLE001 - whatever an observer does, the operation goes on
                _log.exception("an observer failed; the operation is not affected")
            return
        if not is_heard(self._observer, kind):
            return
        signal = Signal(
            kind=kind,  # type: ignore[arg-type]  # one of the two words just chosen
            operation=request.key.operation,
            reference=request.key.reference,
            seconds=result.seconds,
            handler_seconds=_handler_seconds(call),
            tier=call.tier,
            process_instance=request.about.process_instance,
            trace=call.trace,
            first_trace=_first_trace(result) if result.replayed else None,
        )
        notify(self._observer, signal)

    def not_kept(self, request: Request, outcome: bytes) -> None:
        """Tell, once for each operation, why the result which a function gave could not be kept."""
        operation = request.key.operation
        if operation in self._not_kept:
            return
        reason = tombstone_reason(outcome)
        self._not_kept.add(operation)
        detail = f"{reason}; duplicates get ResultNotKept. Declare the type of the result, or return plain data."
        signal = Signal(kind="not_kept", operation=operation, reference=request.key.reference, detail=detail)
        notify(self._observer, signal)

    def failed(self, call: CallFlow, error: BaseException) -> None:
        """Tell of a call that did not."""
        kind = _KINDS.get(error.code) if isinstance(error, SemelError) else None
        self._tell_failure(call, error, kind or _ending_of(call, error))

    def rolled_back(self, call: CallFlow, error: BaseException) -> None:
        """Tell of a call that did not end well, whose transaction is rolled back by whoever opened it."""
        if isinstance(error, LeaseLost):
            kind = "lease_lost"
        else:
            left = call.has_left_transaction or isinstance(error, NotInTransaction)
            kind = "in_doubt" if left else "rolled_back"
        self._tell_failure(call, error, kind)

    def _tell_failure(self, call: CallFlow, error: BaseException, kind: str | None) -> None:
        if kind is None or not is_heard(self._observer, kind):
            return
        signal = Signal(
            kind=kind,  # type: ignore[arg-type]  # one of the known words
            operation=call.request.key.operation,
            reference=call.request.key.reference,
            detail=type(error).__name__,
            handler_seconds=_handler_seconds(call),
            process_instance=call.request.about.process_instance,
            trace=call.trace,
        )
        notify(self._observer, signal)


def _first_trace(result: Result[Any]) -> str | None:
    """The span in which what is replayed was first claimed, where that is kept."""
    record = stored_record_of(result)
    return None if record is None else record.about.tags.get(TRACE_TAG)


def _handler_seconds(call: CallFlow) -> float | None:
    """How long the handler ran; None where it was not called, or was cut off."""
    began, ended = call.handler_began, call.handler_ended
    return None if began is None or ended is None else ended - began


def _ending_of(call: CallFlow, error: BaseException) -> str | None:
    """What became of a call that ended with an error; None where it was cut off before anything happened."""
    if isinstance(error, Crash):
        return None  # the dead tell nothing
    match call.written:
        case Complete():
            return "ran"  # recorded, although its caller did not stay to see it
        case Fail(lease, "doubt"):
            # Inside the caller's transaction nothing is in doubt yet: that decides, unless the handler has ended it.
            return "in_doubt" if call.has_left_transaction or not lease.transaction else "failed"
        case None if not isinstance(error, Exception):
            return "in_doubt" if call.started else None
    return "failed"


def _shape(handler: Callable[..., Any]) -> codec.Shape:
    """What a handler declares to return. `run` asks at every call, so what needs no resolving is not resolved."""
    declared = getattr(handler, "__annotations__", None)
    if type(declared) is dict and not hasattr(handler, "__wrapped__"):
        returns = declared.get("return", codec.NO_ANNOTATION)
        if returns is codec.NO_ANNOTATION:
            return codec.shape_of(returns)
        if isinstance(returns, type) and not get_args(returns):
            return _shape_of_class(returns)
    return shape_of_result(handler, resolved_hints(handler))


def shape_of(returns: Any) -> codec.Shape:
    """What results look like that are said to be `returns`."""
    return _shape_of_class(returns) if isinstance(returns, type) else codec.shape_of(returns)


@lru_cache(maxsize=256)
def _shape_of_class(declared: type) -> codec.Shape:
    return codec.shape_of(declared)


class RecordFilter(TypedDict, total=False):
    """Which records to list or count; what is left out, or None, does not restrict.

    Attributes:
        status: where it is in its life.
        operation: what the key is for.
        scope: whom the key belongs to.
        before: created before this moment.
        after: created at this moment or later.
        subject: what it is about.
        business_key: the business object.
        process_instance: the workflow.
        requester: who asked.
        tag: the name and the value of one of its tags.
        reference: how the reference begins.
        stuck: only what waits for somebody: in doubt, or running with its lease over.
        scan: read all records where the store cannot find those asked for otherwise.
        newest_first: those created last come first; by default those created first do.
    """

    status: str | None
    operation: str | None
    scope: Any
    before: datetime | None
    after: datetime | None
    subject: str | None
    business_key: str | None
    process_instance: str | None
    requester: str | None
    tag: tuple[str, str] | None
    reference: str | None
    stuck: bool
    scan: bool
    newest_first: bool


_TEXTS: Final = ("operation", "subject", "business_key", "process_instance", "requester", "reference")


def query_of(filters: RecordFilter) -> Query:
    """Which records to list or count.

    Raises:
        UsageError: there is no such restriction, or its value cannot be used.
    """
    for name in sorted(filters.keys() - RecordFilter.__annotations__.keys()):
        raise UsageError(explain_unknown("A search", name, RecordFilter.__annotations__, outcome="nothing was read"))
    before, after, stuck = filters.get("before"), filters.get("after"), filters.get("stuck", False)
    status = _status(filters.get("status"))
    if stuck and status is not None:
        message = "stuck= chooses by status itself, so status= cannot be given beside it; nothing was read."
        raise UsageError(message)
    texts: Any = {name: _text(name, filters.get(name)) for name in _TEXTS}
    return Query(
        status=status,
        scope=scope_text(filters.get("scope")),
        before_us=None if before is None else store_instant(before),
        after_us=None if after is None else store_instant(after),
        tag=_tag(filters.get("tag")),
        stuck=bool(stuck),
        scan=bool(filters.get("scan", False)),
        newest_first=bool(filters.get("newest_first", False)),
        **texts,
    )


def _status(given: str | None) -> Status | None:
    try:
        return None if given is None else Status(given)
    except ValueError:
        message = f"There is no status {given!r}; nothing was read. There are: {', '.join(Status)}."
        raise UsageError(message) from None


def _text(name: str, given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str):
        message = f"{name}= must be a string, not {type(given).__name__}; nothing was read."
        raise UsageError(message)
    if not is_storable(given):
        message = f"{name}= holds NUL or half a character, which no record has; nothing was read."
        raise UsageError(message)
    return given


def _tag(given: object) -> tuple[str, str] | None:
    match given:
        case None:
            return None
        case (str() as name, str() as value):
            return _text("tag", name) or "", _text("tag", value) or ""
    message = 'tag= must be the name and the value of a tag, as in tag=("tenant", "acme"); nothing was read.'
    raise UsageError(message)


def scope_text(scope: Any) -> str | None:
    """A scope as keys have it; None where none is given."""
    if scope is None:
        return None
    return "" if scope is SHARED else Key.of("any", operation="any", scope=scope).scope


def _call(function: Callable[[], None] | None) -> None:
    if function is not None:
        function()
