"""The life of one call, as flows: claim, run, settle; wait, replay, take over, reconcile; and cleaning up.

What always holds: the handler is called only under a granted claim (or unprotected, where the policy says so); its
value reaches the caller only once it is recorded; a refused write gives the recorded outcome or `LeaseLost`, never the
attempt's own value. An operation whose reply was lost is sent again, the same one, so its answer is that of the first.
Cleaning up after a cancelled caller is a flow of its own (`abandoned`), because a closed flow never yields.

What one call asks for, as a value, and what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from semel.core import codec
from semel.core.codec import Shape
from semel.core.events.letters import Letter
from semel.core.fingerprint import Fingerprints
from semel.core.flow import Asks, Flow, ask
from semel.core.key import Key
from semel.core.observer import TRACE_TAG, Tracer, Work, current_trace, tracing
from semel.core.operations import (
    Answer,
    Checkpoint,
    Claim,
    ClaimAnswer,
    Complete,
    Fail,
    Granted,
    InDoubtAnswer,
    JoinTransaction,
    Lost,
    Read,
    Recorded,
    Replay,
    Reused,
    Running,
    Terms,
    give_back,
    undo_grant,
)
from semel.core.policy import Policy, microseconds
from semel.core.record import (
    MOST_TAGS,
    About,
    DidNotHappen,
    Failure,
    Happened,
    Lease,
    Record,
    Status,
    Step,
    StoredRecord,
    Unknown,
    is_tombstone,
    show_record,
    times_unknown,
    tombstone_reason,
    unknown_failure,
)
from semel.engine import call_errors
from semel.engine.background import Crowded, Ended, News, Promoted, RunningHandlers
from semel.engine.clock import Clock, Crash, RetryBudget
from semel.engine.context import AttemptState
from semel.errors import NotInTransaction, StoreMisconfigured, StoreUnavailable, TransactionAborted, TryLater

T = TypeVar("T")


class Effect(msgspec.Struct, frozen=True):
    """What a flow needs of whoever drives it; everything else that it yields is an operation for the store."""


class RunHandler(Effect, Asks[Any], frozen=True):
    """Run the handler now, as this attempt (None: unprotected, because the store is down and the policy says run)."""

    attempt: AttemptState | None


class RunStep(Effect, Asks[Any], frozen=True):
    """Run the function of a step now."""


class AskReconcileHook(Effect, Asks[Any], frozen=True):
    """Ask the reconcile hook of the call's policy about this attempt."""

    attempt: AttemptState


class RunCall(Effect, Asks["Result[Any]"], frozen=True):
    """Drive another call to its end, under its own lease: ask its reconcile hook, and run no handler."""

    request: Request


class Wait(Effect, Asks[News], frozen=True):
    """Wait for the owner of a key, at most until this instant of the engine's clock."""

    digest: bytes
    until: float


class Pause(Effect, Asks[None], frozen=True):
    """Let so many seconds pass before sending an operation again."""

    seconds: float


DeadLetterRule = Callable[[Failure, Literal["final", "retry", "doubt"], int], Letter | None]
"""From a failure, what it means for the record, and the number of the attempt, to the letter that is kept of it."""


class Request(msgspec.Struct, frozen=True):
    """One call: which key, what was asked, under which policy, and what the result looks like.

    `asked` and `fingerprints` serve to compare it with a record whose fingerprint was taken in another way. Without
    them only equal fingerprints are the same request. `dead_letter` says which letter is written with a failure, and
    `drops_letter` which one goes with the value of a key that was claimed before.
    """

    key: Key
    fingerprint: bytes
    policy: Policy
    terms: Terms
    about: About
    shape: Shape
    asked: Any = None
    fingerprints: Fingerprints | None = None
    dead_letter: DeadLetterRule | None = None
    drops_letter: Callable[[], bytes] | None = None

    def __repr__(self) -> str:
        return f"Request({self.key.operation!r}, {self.key.reference})"  # arguments may be personal

    def is_asked_by(self, stored: bytes) -> bool:
        """Whether a stored fingerprint is one of this request.

        Raises:
            RecordUnreadable: it was made in a way that is not known here.
        """
        if stored == self.fingerprint:
            return True
        return self.fingerprints is not None and self.fingerprints.matches(stored, self.asked)


def terms_of(policy: Policy) -> Terms:
    """What of a policy the store has to know."""
    return Terms(
        microseconds(policy.lease_for),
        microseconds(policy.keep_for),
        policy.in_doubt,
        microseconds(policy.reconcile_after),
    )


class Result(msgspec.Struct, Generic[T], frozen=True, dict=True):
    """What a call gave.

    Attributes:
        value: the value, fresh or replayed.
        replayed: whether it was stored before; then nothing ran now.
        cache: where a cache stands in front of the store, `"hit"` if it answered, `"miss"` if the store did or the
            handler ran; None where there is no cache.
        seconds: how long the call took, waiting included.
        protected: false only where the store was down and the policy said to run all the same, or semel is switched
            off.
    """

    value: T
    replayed: bool
    seconds: float = 0.0
    cache: Literal["hit", "miss"] | None = None
    protected: bool = True
    _granted: Granted | None = None
    _outcome: bytes | None = None
    _at_us: int = 0
    _found: StoredRecord | None = None

    def __repr__(self) -> str:
        return f"Result(value={self.value!r}, replayed={self.replayed}, protected={self.protected})"

    def why_not_kept(self) -> str | None:
        """Why the value of this run could not be kept for duplicates; None where it was, or was replayed."""
        outcome = self._outcome
        return tombstone_reason(outcome) if outcome is not None and is_tombstone(outcome) else None

    @cached_property
    def record(self) -> Record | None:
        """The record behind the value; None where the call was unprotected."""
        stored = stored_record_of(self)
        return None if stored is None else show_record(stored)


def stored_record_of(result: Result[Any]) -> StoredRecord | None:
    """What the store has behind a result, as it keeps it; None where the call was unprotected."""
    granted, at_us = result._granted, result._at_us  # noqa: SLF001 - what only this module writes into a result
    if result._found is not None or granted is None:  # noqa: SLF001 - as above
        return result._found  # noqa: SLF001 - as above
    return replace(
        granted.record,
        status=Status.COMPLETED,
        outcome=result._outcome,  # noqa: SLF001 - as above
        completed_us=at_us,
        updated_us=at_us,
        expires_us=granted.record.kept_until(at_us),
        error=None,
    )


class GiveBack(Exception):
    """Thrown into a call whose claim only kept others away: nothing ran under it, and the key may be claimed again."""


_MOST_LATE = 2
_GIVEN_BACK = Failure("semel.GivenBack", "the turn is over")
_TOO_LATE = Failure("semel.GrantedTooLate", "the lease was over before the answer to the claim was read")
_EXHAUSTED = Failure("semel.AttemptsUsedUp", "every attempt ended without an outcome, the last one without a word")


class CallFlow(AttemptState):
    """One call on its way: where it is, so that it can be cleaned up from any point; and its attempt, once granted.

    Attributes:
        owns_claim: whether a claim was granted, and what came of it is not recorded yet.
        started: whether the handler was called.
        may_wait: whether the call waits for somebody else who runs its key.
        has_left_transaction: whether the handler ended the transaction that the call is part of.
        written: the last write that was meant to settle it, whether it arrived or not.
        asked_at: when the claim was sent, by the engine's clock.
        handler_began: when the handler was called, by the same clock; None where it was not.
        handler_ended: when it had ended.
        tier: where what was replayed came from: a cache, or the store.
        without_hit: what a result says of caches where none answered: `"miss"`, or None where there is none.
        tracer: makes spans, where the observer has one.
        trace: what it gave for this call, to be handed back with the signal.
    """

    owns_claim = False
    started = False
    may_wait = True
    has_left_transaction = False
    written: Complete | Fail | None = None
    handler_began: float | None = None
    handler_ended: float | None = None
    tier: Literal["process", "redis", "store"] | None = None
    without_hit: Literal["miss"] | None = None
    tracer: Tracer | None = None
    trace: object | None = None
    _span: AbstractContextManager[object | None] | None = None
    _settling: Complete | Fail | None = None
    _unsure: Claim | None = None
    _late = 0

    def __init__(
        self,
        request: Request,
        clock: Clock,
        new_nonce: Callable[[], bytes],
        retry_budget: RetryBudget,
        handlers: RunningHandlers | None = None,
        *,
        only_reconcile: bool = False,
    ) -> None:
        self.request = request
        self._handlers = handlers
        self.fingerprint = request.fingerprint
        self._clock = clock
        self._new_nonce = new_nonce
        self._retry_budget = retry_budget
        self._only_reconcile = only_reconcile
        self._began = self.asked_at = clock.monotonic()

    @property
    def key(self) -> Key:
        """The key this call is about."""
        return self.request.key

    @property
    def claimed_at(self) -> float:
        """When the key was claimed, by the engine's clock."""
        return self.asked_at

    def enter_span(self, tracer: Tracer) -> None:
        """Make the span of this call the current one, if its handler is about to run, and not a hook."""
        if not self.started:
            return
        key, seconds = self.request.key, self._clock.monotonic() - self._began
        work = Work(kind="run", operation=key.operation, reference=key.reference, seconds=seconds, trace=self.trace)
        self._span = tracing(tracer, work)
        self.trace = self._span.__enter__()

    def exit_span(self) -> None:
        """The handler is over, and what follows happens outside of the span."""
        span, self._span = self._span, None
        if span is not None:
            span.__exit__(None, None, None)

    def _about_with_trace(self, tracer: Tracer) -> About:
        """What is kept to search by, with the span that the key is claimed in, where the tracer has that kept."""
        about = self.request.about
        trace = current_trace(tracer) if tracer.keeps_traces else None
        if trace is None or len(about.tags) >= MOST_TAGS:
            return about
        return replace(about, tags={**about.tags, TRACE_TAG: trace})

    def flow(self) -> Flow[Result[Any]]:
        """Claim, and do what the answer calls for."""
        self._retry_budget.on_call()
        while True:
            if self._handlers is not None:
                self._handlers.enter(self)
            answer = yield from self._claim()
            if self._handlers is not None and not isinstance(answer, Granted | None):
                self._handlers.leave(self)  # no handler runs while it waits for another
            match answer:
                case Granted():
                    result = yield from self._granted(answer)
                    if result is not None:
                        return result
                case Replay(record, _, tier):
                    return self._replayed(record, tier)
                case Reused(record):
                    self._compare(record.fingerprint)
                case InDoubtAnswer(record, remaining_us):
                    has_given_up = self._has_given_up(times_unknown(record.error))
                    raise call_errors.in_doubt_error(record, None if has_given_up else remaining_us)
                case Running(remaining_us):
                    deadline = self._began + self.request.policy.wait_for.total_seconds()
                    ended = yield from self._wait(remaining_us, deadline)
                    if ended is not None:
                        return self._replayed(ended)
                case None:
                    return (yield from self._unprotected())

    def _compare(self, stored: bytes) -> None:
        """Claim the next time with the record's own fingerprint, if that was taken of this request in another way.

        Raises:
            KeyReused: it is another request.
            RecordUnreadable: nobody here can tell.
        """
        if stored == self.fingerprint or not self.request.is_asked_by(stored):
            raise call_errors.key_reused_error(self.request.key)
        self.fingerprint = stored

    def _claim(self) -> Flow[ClaimAnswer | None]:
        request = self.request
        about = request.about if self.tracer is None else self._about_with_trace(self.tracer)
        claim = Claim(request.key, self.fingerprint, self._new_nonce(), request.terms, about)
        self.asked_at = self._clock.monotonic()  # once: a claim granted again holds the lease of the first time
        sent = 0
        failure = ""  # its words alone: the error itself leads to this frame
        while True:
            try:
                answer = yield from ask(claim)
            except StoreUnavailable as error:
                pause = None
                # Not asked: it never left, and before the rest is over the answer would be the same. Misconfigured: it
                # is the same until somebody changes the URL or the server.
                if error.asked and not isinstance(error, StoreMisconfigured):
                    sent += 1
                    failure = error.message
                    self._unsure = claim
                    pause = self._retry_budget.of_claim(sent)
                if pause is not None:
                    yield Pause(pause)
                elif request.policy.store_down == "run":
                    return None
                elif sent and not error.asked:
                    raise call_errors.not_sent_again_error(failure, error.retry_after) from error
                else:
                    raise
            else:
                self._unsure = None
                return answer

    def _unprotected(self) -> Flow[Result[Any]]:
        value = yield RunHandler(None)
        seconds = self._clock.monotonic() - self._began
        return Result(value, replayed=False, seconds=seconds, cache=self.without_hit, protected=False)

    def _wait(self, remaining_us: int, deadline: float) -> Flow[StoredRecord | None]:
        """The record to replay, or None to claim again. Raises `InProgress` when the time is over."""
        key = self.request.key
        if not self.may_wait or self.request.policy.when_running == "reject":
            raise call_errors.in_progress_error(key, remaining_us)
        news = yield from ask(Wait(key.digest, deadline))
        match news:
            case Ended(record) if self._is_answered_by(record):
                return record
            case Ended() | Promoted():
                return None
            case Crowded(whole_process):
                raise call_errors.too_many_waiting_error(key, remaining_us, whole_process=whole_process)
        return (yield from self._last_look(remaining_us))  # the time is over

    def _is_answered_by(self, record: StoredRecord) -> bool:
        """Whether a final record is the answer to this request, whichever way its fingerprint was taken."""
        return record.is_for(self.fingerprint) or self.request.is_asked_by(record.fingerprint)

    def _last_look(self, remaining_us: int) -> Flow[StoredRecord]:
        """It may have ended in the very moment the waiter gave up."""
        found = yield from ask(Read(self.request.key.digest, operation=self.request.key.operation))
        record = found.record
        if record is not None and record.final and record.expires_us > found.now_us:
            if self._is_answered_by(record):
                return record
        elif record is not None:
            remaining_us = record.lease_us - found.now_us
        raise call_errors.in_progress_error(self.request.key, remaining_us)

    def _is_over(self) -> bool:
        """Whether the lease is over before the handler was called: this process, or its event loop, stood still.

        In the caller's transaction there is no lease that could be over.
        """
        if self.lease.transaction:
            return False
        if self.beat is not None:
            return self.is_lost
        return self._clock.monotonic() >= self.asked_at + self.request.policy.lease_for.total_seconds()

    def _return_late(self, granted: Granted) -> Flow[None]:
        """Give back a claim that somebody else may have taken over by now, so that it can be asked for anew.

        Raises:
            StoreUnavailable: it was too late too often, or could not be given back.
        """
        self._late += 1
        policy = self.request.policy
        longer = max(policy.lease_for, policy.wait_for).total_seconds()
        try:
            # By the store's clock it may still hold, and then this call would wait for itself; left behind it would be
            # taken for something that may have run. So it is tried for longer than an outcome.
            yield from self._settle(undo_grant(granted, _TOO_LATE), longer)
        except StoreUnavailable as error:
            raise call_errors.not_given_back_error(self.request.key, error) from error
        self.written = None
        if self._late > _MOST_LATE:
            raise call_errors.granted_too_late_error(self.request.key)

    def _granted(self, granted: Granted) -> Flow[Result[Any] | None]:
        """Run it, and record what came of it. None: the lease was over before that, so nothing ran; claim again."""
        self.take(granted)
        self.owns_claim = True
        if self._only_reconcile:
            return (yield from self._ask_only())
        if granted.reconcile and not self._is_over():
            # Asked even when the attempts are used up: what happened has happened.
            settled = yield from self._reconcile()
            if settled is not None:
                return settled
        if self._is_over():
            yield from self._return_late(granted)
            return None
        most = self.request.policy.max_attempts
        # No limit inside a transaction: attempts that were rolled back are not counted.
        if most is not None and granted.record.attempts > most and not self.lease.transaction:
            letter = self._letter(_EXHAUSTED, "final", most)
            yield from self._settle(Fail(self.lease, "final", _EXHAUSTED, self.in_doubt, started=False, letter=letter))
            raise call_errors.failed_before_error(_EXHAUSTED, granted.record)
        try:
            self.started = True
            self.handler_began = self._clock.monotonic()
            value = yield RunHandler(self)
            self.handler_ended = self._clock.monotonic()
            if granted.record.steps:
                self.check_steps()
        except GiveBack:
            # Nothing ran under it, nor under one before it whose lease ran out: there is nothing to be in doubt about.
            yield from self._settle(Fail(self.lease, "retry", _GIVEN_BACK, doubtful=False, started=False))
            return Result(None, replayed=False)
        except Exception as error:
            self.handler_ended = self._clock.monotonic()
            found = yield from self._failed(error)
            if found is not None:
                return found
            raise
        return (yield from self._complete(value, replayed=False))

    def _ask_only(self) -> Flow[Result[Any]]:
        """Ask the hook and run nothing: there are no arguments to run the handler with, whoever asks next has some."""
        settled = yield from self._reconcile()
        if settled is not None:
            return settled
        gone = Failure("semel.DidNotHappen", "the reconcile hook said that it did not happen")
        yield from self._settle(Fail(self.lease, "retry", gone, doubtful=False, started=False))
        return Result(None, replayed=False)

    def _complete(self, value: Any, *, replayed: bool) -> Flow[Result[Any]]:
        policy = self.request.policy
        outcome = codec.encode(value, self.request.shape, policy.max_result, policy.redact)
        # Only inside the caller's transaction does an end write events.
        events = self.events.end() if self.joined else ()
        # A key that is claimed for the first time has no letter.
        drops = self.request.drops_letter if self.lease.fence > 1 else None
        answer = yield from self._settle(Complete(self.lease, outcome, None if drops is None else drops(), events))
        if isinstance(answer, Lost):
            return (yield from self._refused(None))
        return Result(
            value,
            replayed=replayed,
            seconds=self._clock.monotonic() - self._began,
            cache=self.without_hit,
            protected=self.granted.protected,
            _granted=self.granted if self.granted.protected else None,
            _outcome=outcome,
            _at_us=answer.at_us,
        )

    def _reconcile(self) -> Flow[Result[Any] | None]:
        """Ask before running. None means: it did not happen, so it may run, and without doubt."""
        try:
            verdict = yield AskReconcileHook(self)
        except Exception as error:
            yield from self._settle(Fail(self.lease, "doubt", Failure.of(error), doubtful=True, started=False))
            raise
        match verdict:
            case Happened(value):
                return (yield from self._complete(value, replayed=True))
            case DidNotHappen():
                self.in_doubt = False
                return None
            case Unknown():
                # The record keeps its last error through a claim: it knows what earlier processes were told.
                times = times_unknown(self.granted.record.error) + 1
                yield from self._settle(Fail(self.lease, "doubt", unknown_failure(times), doubtful=True, started=False))
                quiet_us = None if self._has_given_up(times) else self.request.terms.reconcile_after_us
                raise call_errors.in_doubt_error(self.granted.record, quiet_us)
            case other:
                problem = call_errors.bad_verdict_error(other)
                yield from self._settle(Fail(self.lease, "doubt", Failure.of(problem), doubtful=True, started=False))
                raise problem

    def _has_given_up(self, times: int) -> bool:
        """Whether the hook was asked in vain so often that a consumer with dead letters is to stop asking."""
        most = self.request.policy.max_attempts
        return self.request.dead_letter is not None and most is not None and times >= most

    def _failed(self, error: Exception) -> Flow[Result[Any] | None]:
        """Record how it ended. Gives the recorded outcome if somebody else has the key by now."""
        if self.joined:
            self.events.end()
        try:
            answer = yield from self._settle(self.failure(error))
        except NotInTransaction:
            self.has_left_transaction = True
            return None  # the handler ended the caller's transaction; its own error says more
        except TransactionAborted:
            return None  # the caller's transaction is past writing to; the handler's own error says more
        if isinstance(answer, Lost):
            return (yield from self._refused(error))
        return None

    def failure(self, error: BaseException) -> Fail:
        """What an error of the handler means for the record, by policy."""
        ending = self._ending(error)
        doubtful = self.in_doubt or ending == "doubt"
        failure = Failure.of(error)
        return Fail(self.lease, ending, failure, doubtful=doubtful, letter=self._letter(failure, ending, self.number))

    def _letter(self, failure: Failure, ending: Literal["final", "retry", "doubt"], number: int) -> Letter | None:
        """The letter that is written with a failure.

        Inside a transaction only what is final is recorded: it may commit, and then nobody writes a letter later.
        """
        rule = self.request.dead_letter
        is_recorded = not self.lease.transaction or ending == "final"
        return rule(failure, ending, number) if rule is not None and is_recorded else None

    def _is_last(self) -> bool:
        """Whether no attempt may follow. There is no limit inside a transaction: those rolled back are not counted."""
        most = self.request.policy.max_attempts
        return most is not None and self.number >= most and not self.lease.transaction

    def _ending(self, error: BaseException) -> Literal["final", "retry", "doubt"]:
        policy = self.request.policy
        last = self._is_last()
        if isinstance(error, policy.final_errors):
            return "final"
        if isinstance(error, policy.retry_errors):
            # Nothing happened now, but an earlier attempt may have had its effect: a doubt is not a settled record.
            return "final" if last else "doubt" if self.in_doubt else "retry"
        # Only a policy that would rerun by itself is bounded here; the others wait for an answer, not for a retry.
        return "final" if last and policy.in_doubt == "rerun" and isinstance(error, Exception) else "doubt"

    def _settle(self, write: Complete | Fail, longer: float = 0.0) -> Flow[Recorded | Lost]:
        """Send a settling write until the store answers, for as long as the lease can last without renewal."""
        self._settling = self.written = write
        until = self._clock.monotonic() + self.request.policy.lease_for.total_seconds() + longer
        sent = 0
        while True:
            try:
                answer = yield from ask(write)
            except StoreUnavailable as error:
                sent += 1
                pause = self._retry_budget.of_outcome(sent)
                if self._clock.monotonic() + pause > until:
                    raise call_errors.not_recorded_error(self.request.key, error) from error
                yield Pause(pause)
            else:
                self._settling = None
                self.owns_claim = False
                return answer

    def _refused(self, error: Exception | None) -> Flow[Result[Any]]:
        """Somebody else has the key: their outcome if there is one, never this attempt's own."""
        try:
            found = yield from ask(Read(self.request.key.digest, operation=self.request.key.operation))
        except StoreUnavailable as silent:
            raise call_errors.lease_lost_error(self.request.key) from (
                error or silent
            )  # it ran, whatever the store has to say
        record = found.record
        if record is not None and record.final and record.is_for(self.fingerprint):
            return self._replayed(record)
        raise call_errors.lease_lost_error(self.request.key) from error

    def _replayed(self, record: StoredRecord, tier: Literal["process", "redis"] | None = None) -> Result[Any]:
        value = call_errors.replay(record, self.request.shape)
        seconds = self._clock.monotonic() - self._began
        self.tier = tier or "store"
        cache = "hit" if tier else self.without_hit
        return Result(value, replayed=True, seconds=seconds, cache=cache, _found=record)

    def is_left_open(self, unheard: Answer | Exception | None) -> bool:
        """Whether a claim was granted, and nobody has begun to write down what came of it."""
        return self.written is None and (self.owns_claim or isinstance(unheard, Granted))

    def abandoned(self, error: BaseException, unheard: Answer | Exception | None = None) -> Flow[None]:
        """Leave nothing half done after the caller was cancelled or interrupted, as far as that can still be done.

        Args:
            error: what cut the call off.
            unheard: the last answer of the store, which may not have come as far as this flow.
        """
        if isinstance(error, Crash):
            return
        if not self.owns_claim and self.written is None and isinstance(unheard, Granted):
            self.take(unheard)
            self.owns_claim = True
        try:
            yield from self._cleaned_up(error)
        except (NotInTransaction, TryLater):
            return  # the lease, or the caller's transaction, ends by itself

    def _cleaned_up(self, error: BaseException) -> Flow[None]:
        if self._settling is not None:
            yield from self._settle(self._settling)
        elif self.owns_claim:
            yield from self._settle(self._abandoning(error))
        elif self._unsure is not None:
            # A claim whose reply was lost may have been granted; asked again it says so, and can be given back.
            undo = give_back((yield from ask(self._unsure)))
            if undo is not None:
                yield from ask(undo)

    def _abandoning(self, error: BaseException) -> Fail:
        if self.started:
            return self.failure(error)
        doubt = self.in_doubt
        return Fail(self.lease, "doubt" if doubt else "retry", Failure.of(error), doubtful=doubt, started=False)


def read_committed(lease: Lease) -> Flow[StoredRecord | None]:
    """What this very attempt has written, as everybody else sees it; None where nothing of it is committed."""
    found = yield from ask(Read(lease.key.digest, operation=lease.key.operation))
    record = found.record
    return record if record is not None and record.nonce == lease.nonce else None


def step(
    attempt: AttemptState, name: str, shape: codec.Shape, policy: Policy, *, joined: bool, retry_budget: RetryBudget
) -> Flow[Any]:
    """One step: its recorded value if it is finished, else run it and record it under the lease."""
    attempt.check()
    index, finished, again = attempt.steps.enter(name, joined=joined)
    if finished is not None:
        return codec.decode(finished.outcome, shape)
    lease = attempt.lease
    if joined:
        entered = yield from ask(JoinTransaction(lease))
        if isinstance(entered, Lost):
            raise call_errors.lease_lost_error(attempt.key)
        lease = call_errors.with_transaction(lease, entered)
        # A commit whose answer was lost may have been one: then the step is finished, whatever its caller thinks.
        committed = (yield from _committed(attempt.key, index)) if again else None
        if committed is not None:
            return codec.decode(committed.outcome, shape)
    try:
        value = yield RunStep()
    except Exception:
        if not joined:
            attempt.steps.leave()
        raise
    attempt.check()
    outcome = codec.encode(value, shape, policy.max_result, policy.redact)
    answer = yield from _save_step(attempt, Checkpoint(lease, Step(index, name, outcome)), retry_budget)
    if isinstance(answer, Lost):
        raise call_errors.lease_lost_error(attempt.key)
    return value


def _committed(key: Key, index: int) -> Flow[Step | None]:
    found = yield from ask(Read(key.digest, with_steps=True, operation=key.operation))
    steps = () if found.record is None else found.record.steps
    return next((step for step in steps if step.index == index), None)


def _save_step(attempt: AttemptState, checkpoint: Checkpoint, retry_budget: RetryBudget) -> Flow[Recorded | Lost]:
    """Record a step whose effect has happened.

    Closes: somebody else's claim holds the record for a moment, in a round of its own, so that this write finds it
    locked. Giving up would have the effect repeated, so it is tried until the lease is over. A store that does not
    answer is asked twice more.
    """
    is_alone = not checkpoint.lease.transaction and attempt.beat is not None
    sent = 0
    while True:
        try:
            answer = yield from ask(checkpoint)
        except StoreUnavailable as error:
            sent += 1
            is_held = error.conflict and is_alone and not attempt.is_lost
            pause = retry_budget.of_outcome(sent) if is_held else retry_budget.of_step(sent)
            if pause is None:
                raise
            yield Pause(pause)
        else:
            return answer
