"""The journal: takes a request to one outcome, across retries, crashes and restarts. Flows; no I/O.

- A request is an operation of semel's own engine: claimed, stored, and sent by one caller at a time.
- Key and request are on disk before the first byte is sent.
- A key is given up only after a definite outcome; until then every try, of this process or the next, carries it.
- Inside a handler the key is derived from the running attempt, so nothing is stored here: the attempt's own record
  leads back to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from semel.client.models import (
    INTENT,
    SUBJECT,
    Carry,
    Ended,
    Keep,
    NotExecuted,
    Outgoing,
    Refused,
    Reply,
    Scan,
    Send,
    Sweep,
    only,
)
from semel.client.pending import NUMBER, OPERATION, PLACE, Pending, number_of, taken_up
from semel.client.retention import RetentionCache, is_old
from semel.client.retry import Budget, Sender
from semel.client.settings import Settings
from semel.core.flow import Flow
from semel.core.key import Key, make_key
from semel.core.record import Record, Status
from semel.engine import context
from semel.engine.call_flow import Result
from semel.engine.context import AttemptState
from semel.engine.engine import EngineBase
from semel.errors import FailedBefore, KeyTooOld, UsageError

_SWEEP_EVERY: Final = 256
_LONGEST_INTENT: Final = 200
_LONGEST_SUBJECT: Final = 200
_YOUNG: Final = 60.0
_PASSED_OVER: Final = (Status.FAILED, Status.CANCELLED)


class _Age(NamedTuple):
    """When a request was first sent, under which record, and what its caller can do once it is too old."""

    first_sent: float
    reference: str
    then: str


class Journal:
    """What a client knows of its requests, on the store of its engine."""

    def __init__(self, engine: EngineBase, settings: Settings, now: Callable[[], float]) -> None:
        self.settings = settings
        self._store = engine.store.name
        self._fingerprints = engine.fingerprints
        self._now = now
        self._sender = Sender(
            settings.patience,
            Budget(settings.budget),
            monotonic=engine.clock.monotonic,
            now=now,
            chance=engine.jitter,
            check=_demand_lease,
        )
        self._policies = {
            named: settings.policy(named=named, final=Refused, nothing=NotExecuted) for named in (True, False)
        }
        self._described = RetentionCache(settings.retention.total_seconds(), engine.clock.monotonic)
        self._unused: WeakKeyDictionary[AttemptState, dict[tuple[str, str, str], str]] = WeakKeyDictionary()
        self._carried = 0

    def ask(self, outgoing: Outgoing) -> Flow[Reply]:
        """The answer to a request: of this try, or of one before.

        Raises:
            UsageError: it cannot be sent so; nothing was sent.
            KeyTooOld: it was first sent longer ago than the service remembers.
            Exception: what the library raised, where no answer came; the key is kept.
        """
        self._check(outgoing)
        pending = taken_up.get()
        if pending is not None and self._is(outgoing, pending):
            return (yield from self._carry(outgoing, pending.intent, pending.number, named=True, again=True))
        derived = self._derived(outgoing)
        if derived is not None:
            return (yield from self._inside(outgoing, outgoing.given_key or derived))
        yield from self._swept()
        if outgoing.intent is None and outgoing.given_key is None:
            return (yield from self._carry(outgoing, uuid.uuid4().hex, 0, named=False))
        return (yield from self._named(outgoing, outgoing.intent or outgoing.given_key or ""))

    def _inside(self, outgoing: Outgoing, derived: str) -> Flow[Reply]:
        """Inside a handler: a further attempt sends with the same key."""
        running = context.current_handler.get()
        age = _Age(self._now(), "", "resolve the record of this attempt")
        if running is not None:
            record = running.call.granted.record
            # In doubt, the first try may be as old as the record, and not older.
            first = record.created_us / 1_000_000 if running.call.in_doubt else self._now()
            age = _Age(first, record.reference, age.then)
            if running.call.in_doubt:
                yield from self._demand_young(outgoing, age)
        send = self._send(outgoing, derived, plain=outgoing.given_key is not None)
        try:
            return (yield from self._sender.sending(send, certain=True, still=self._still(outgoing, age)))
        except NotExecuted as ended:
            # Turned away, as by a service that wants a sign-in first: who asks now asks for the same thing. On the
            # next attempt the client may be signed in, and what follows must not move up.
            if running is not None:
                self._unused.setdefault(running.call, {})[_label(outgoing)] = derived
            return ended.told()
        except Ended as ended:
            return ended.told()

    def _derived(self, outgoing: Outgoing) -> str | None:
        """The key of a request inside a handler; None outside. An intent has one, however often it is asked for."""
        running = context.current_handler.get()
        if running is None or not running.call.active:
            return None
        running.call.check()
        if outgoing.intent is not None:
            derived: str = running.call.key.derive(make_key("intent", outgoing.place, outgoing.intent))
            return derived
        unused = self._unused.get(running.call, {}).pop(_label(outgoing), None)
        return unused or context.derived_here(f"{outgoing.method} {outgoing.url}")

    def _named(self, outgoing: Outgoing, intent: str) -> Flow[Reply]:
        """A request by its intent: with the first of its keys that was not refused."""
        least = 0
        while True:
            number = max(least, (yield from self._number(outgoing, intent)))
            try:
                return (yield from self._carry(outgoing, intent, number, named=True))
            except FailedBefore:
                # Refused to somebody else in this moment, or refused before and erased since, so that no search finds
                # it: we ask for ourselves, with the next key.
                least = number + 1

    def _number(self, outgoing: Outgoing, intent: str) -> Flow[int]:
        """Which key of an intent to ask with.

        The last one that there is, or the one behind it: those before it may have expired while it is in doubt, and to
        begin with the first again would send under a new key what may have run under the last.
        """
        found: list[Record] = yield Scan(self.settings.name, intent=intent)
        known = {record.key.digest: record for record in found}
        numbers = [number_of(record) for record in found]
        ours = [number for number in numbers if self._key(outgoing, intent, number).digest in known]
        if not ours:
            return 0
        last = max(ours)
        record = known[self._key(outgoing, intent, last).digest]
        # What did not run may be asked again under its key by the same request; another one takes the next.
        over = record.final or not self._fingerprints.matches(record.fingerprint, outgoing.fingerprint)
        return last + 1 if record.status in _PASSED_OVER and over else last

    def _is(self, outgoing: Outgoing, pending: Pending) -> bool:
        """Whether this is that request again, and not one that is sent on the way to it, as for a sign-in."""
        asked = outgoing.intent == pending.intent
        return asked and self._key(outgoing, pending.intent, pending.number).digest == pending.key.digest

    def _carry(self, outgoing: Outgoing, intent: str, number: int, *, named: bool, again: bool = False) -> Flow[Reply]:
        key = self._key(outgoing, intent, number)
        live: list[Reply] = []
        place, tags = outgoing.place[:_LONGEST_SUBJECT], {NUMBER: str(number)}
        if outgoing.subject is not None:
            tags[PLACE] = place
        about = {"subject": outgoing.subject or place, "business_key": intent, "tags": tags}
        try:
            result: Result[Reply] = yield Carry(
                key,
                {
                    "operation": OPERATION,
                    "fingerprint": outgoing.fingerprint,
                    "policy": self._policies[named],
                    "about": about,
                    "returns": Reply,
                },
                self._kept_and_sent(outgoing, key, live, named=named, again=again),
            )
        except Ended as ended:
            return _told(ended, intent)
        # A reply that somebody else was first to record is theirs, although this one came too.
        return live[0] if live and not result.replayed else _replayed(result.value)

    def _kept_and_sent(
        self, outgoing: Outgoing, key: Key, live: list[Reply], *, named: bool, again: bool
    ) -> Flow[Reply]:
        """What the engine runs: key and request are on disk before anything is sent."""
        settings = self.settings
        mine = outgoing.saved(self._now(), frozenset(settings.keep_headers), body=settings.keep_request)
        first, in_doubt = yield Keep(mine)
        if again and not in_doubt:
            # Closes the race with a process that was sending it when the list was made: its caller has been told.
            raise NotExecuted(None, _ended_elsewhere(outgoing, key), outgoing.place)
        age = _Age(first.first_sent, key.reference, "forget() the intent")
        if in_doubt:
            yield from self._demand_young(outgoing, age)
        # The key of the first try, also where the caller has made another one by now.
        given = only(first.headers, outgoing.key_header)
        send = self._send(outgoing, given or key.derive("send"), plain=given is not None)
        reply = yield from self._sender.sending(send, certain=not in_doubt, still=self._still(outgoing, age))
        live.append(reply)
        return reply.to_keep() if named else Reply(reply.status, (), b"")

    def _send(self, outgoing: Outgoing, key: str, *, plain: bool) -> Send:
        return Send(outgoing, key if plain or not self.settings.quoted else f'"{key}"')

    def _demand_young(self, outgoing: Outgoing, age: _Age) -> Flow[None]:
        """Past its retention a service takes the key for a new one, and would run the request a second time."""
        retention = yield from self._described.of(outgoing.method, outgoing.url)
        seconds = self._now() - age.first_sent
        if is_old(seconds, retention):
            when = f"{seconds:.0f} seconds ago" if seconds >= 0 else "at a time that this clock has not reached yet"
            message = (
                f"{outgoing.place} was first sent {when}, and the service remembers keys for "
                f"{retention:.0f} seconds; nothing was sent now, and the first try may have run. Find out what became "
                f"of it, then {age.then}."
            )
            raise KeyTooOld(message, reference=age.reference)

    def _still(self, outgoing: Outgoing, age: _Age) -> Callable[[], Flow[None]]:
        """The same within one call, which may go on for days; in its first minute nobody is asked for a policy."""

        def still() -> Flow[None]:
            if self._now() - age.first_sent >= _YOUNG:
                yield from self._demand_young(outgoing, age)

        return still

    def _swept(self) -> Flow[None]:
        self._carried += 1
        if self._carried % _SWEEP_EVERY == 1:
            yield Sweep()

    def _key(self, outgoing: Outgoing, intent: str, number: int) -> Key:
        value = make_key(intent, outgoing.place, number)
        return Key.of(value, operation=OPERATION, scope=self.settings.name)

    def _check(self, outgoing: Outgoing) -> None:
        named = ((INTENT, outgoing.intent), (SUBJECT, outgoing.subject), (outgoing.key_header, outgoing.given_key))
        for name, given in named:
            if given is not None and not (0 < len(given) <= _LONGEST_INTENT and given.isprintable()):
                message = f"{name} takes 1 to {_LONGEST_INTENT} printable characters; nothing was sent."
                raise UsageError(message)
        if len(outgoing.body) > self.settings.max_body:
            message = (
                f"The body has {len(outgoing.body)} bytes, more than the {self.settings.max_body} that are kept; "
                f"nothing was sent. Raise max_body=, or send it with a client that keeps no keys."
            )
            raise UsageError(message)
        if context.joined_here(self._store) is not None:
            message = (
                "A request was to be sent inside a transaction on the very database that keeps its key, which would "
                "be there only after the commit; nothing was sent. Send it outside, or keep the keys elsewhere."
            )
            raise UsageError(message)


def _told(ended: Ended, intent: str) -> Reply:
    if ended.reply is None and ended.error is not None and not isinstance(ended, NotExecuted):
        ended.error.add_note(
            f"semel: the request may have run. Its key is kept: ask again with {INTENT}: {intent}, or call resume()."
        )
    return ended.told()


def _ended_elsewhere(outgoing: Outgoing, key: Key) -> FailedBefore:
    message = (
        f"{outgoing.place} is not unfinished any more: another process has ended it, and its caller was told. Nothing "
        f"was sent now. If it is still wanted, ask for it anew."
    )
    return FailedBefore(message, reference=key.reference)


def _replayed(kept: Reply) -> Reply:
    headers = tuple((name, value) for name, value in kept.headers if name.lower() != "idempotency-replayed")
    return Reply(kept.status, (*headers, ("Idempotency-Replayed", "true")), kept.body)


def _demand_lease() -> None:
    running = context.current_handler.get()
    if running is not None and running.call.active:
        running.call.check()


def _label(outgoing: Outgoing) -> tuple[str, str, str]:
    return context.current_step.get(), outgoing.method, outgoing.url
