"""The exchange: what becomes of one request, decided once for every framework. Flows; no I/O.

- The same request gets the same verdict everywhere. Two requests are the same only if key, scope, operation and
  everything that can change what they do are equal.
- Everything that a request can be refused for beforehand is refused before anything is looked up. Nothing is looked up
  before the key was read and somebody stands behind it; nothing runs before the whole body is there.
- What the application answered reaches the client unchanged, whether it is kept or not; but where somebody else's
  outcome was recorded, that one is sent.
- `StreamLimit`: an answer in chunks is never stopped because its client left while it can still be kept and replayed in
  time; one of which nothing will be kept is stopped as soon as nobody listens; none outlives `max_runtime`, after which
  its lease is no longer renewed. What was answered whole is never stopped.
- `Exchange`: whatever is wrong with the settings of a middleware is said before the first request, and the policy
  document tells what the running settings say.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec.structs import replace

from semel.core.fingerprint import Digest
from semel.core.flow import Flow
from semel.core.key import SHARED, Key, KeyRing, Shared, make_key
from semel.core.policy import Policy
from semel.core.record import NOTHING, About, Status
from semel.engine.async_engine import AsyncCall
from semel.engine.call_flow import Result, stored_record_of
from semel.engine.clock import Clock
from semel.engine.engine import CallOptions, EngineBase, SemelBase, engine_of
from semel.engine.sync_engine import SyncCall
from semel.errors import (
    KeyExpired,
    KeyInvalid,
    KeyReused,
    LeaseLost,
    NotInTransaction,
    SemelError,
    TransactionAborted,
    UsageError,
)
from semel.http import problem
from semel.http.body import BadBody, content_type_of, joined, meaning
from semel.http.policy_document import document
from semel.http.problem import Meaning, Problem, Refused
from semel.http.request import BadKey, Request, key_of
from semel.http.response import Answered, NotKept, Response, ResponseBuffer, storable_response
from semel.http.route import Route, RouteOptions, Routes, Scope, has_control_characters

VERSION: Final = "1"
"""Of what a fingerprint is made of. Another way of reading requests needs another number."""
_PLAIN: Final = 200
_HALF: Final = re.compile(r"[\ud800-\udfff]")
_CLOCKS: Final = timedelta(minutes=5)
_LONGEST_DATE: Final = 64


def check_path(request: Request) -> None:
    """Refuse a path of which a framework may overlook a part, and so take it for another than we do."""
    if has_control_characters(request.path):
        raise Refused(problem.path_malformed())


def key_in(request: Request, route: Route) -> str | None:
    """The key that the request carries; None where it carries none."""
    header = route.settings.key_header
    try:
        return key_of(request.headers.all(header), min_length=route.settings.min_key_length)
    except BadKey as bad:
        raise Refused(problem.malformed(header, str(bad))) from bad


def verified_key(ring: KeyRing, key: str, route: Route, who: Any) -> str:
    """What a signed key stands for, if it was issued to whoever sent it; nothing was looked up before."""
    try:
        return ring.verify(key, who, datetime.now(UTC))
    except KeyExpired as bad:
        raise Refused(problem.expired_key(route.settings.key_header)) from bad
    except KeyInvalid as bad:
        raise Refused(problem.not_issued(route.settings.key_header)) from bad


def computed_key(request: Request, route: Route) -> Any:
    """The key that the rule of the route gives for a request without one; None where it is to pass."""
    settings = route.settings
    key = None if settings.key is None else settings.key(request)
    if key is None:
        if settings.required:
            raise Refused(problem.missing(settings.key_header))
        return None
    try:
        Key.of(key, operation="any")
    except UsageError as bad:
        raise Refused(problem.unusable()) from bad
    return key


def scope_of(who: Any) -> Any:
    """The scope that a rule gave; primary keys, which are mostly numbers or UUIDs, as text.

    A number and its text are one scope: one user may come with either, by the way of signing in.

    Raises:
        UsageError: it is something else, which may change while it means the same.
    """
    if isinstance(who, (str, tuple, Shared)):
        return who
    if isinstance(who, (int, UUID)) and not isinstance(who, bool):
        return str(who)
    message = (
        f"scope= gave something of type {type(who).__name__} for a request; nothing ran. Give text, a number, a UUID "
        f"or a tuple, such as the id of the user, or None where nobody is authenticated."
    )
    raise UsageError(message)


def identity_of(request: Request, route: Route, key: Any) -> Any:
    """The key within its operation: where several paths are one operation, the path belongs to it.

    Together they may be longer than a key can be; then their digest stands for them. It is text where the others are
    pairs, so the two never meet.
    """
    below, path = request.path_below, request.path
    if below.startswith("//"):  # which some frameworks route as if there were one slash
        below = "/" + below.lstrip("/")
        path = path.removesuffix(request.path_below) + below
    if route.is_exactly(below):
        return key
    rest = key if isinstance(key, tuple) else (key,)
    shown = "".join(map(str, (path, *rest)))
    if len(shown) <= _PLAIN and shown.isascii() and shown.isprintable():
        return (path, *rest)
    return make_key(path if _is_whole(path) else path.encode("utf-8", "surrogatepass"), *rest)


def _is_whole(path: str) -> bool:
    """Whether a path is text; servers leave bytes that are none as halves of characters."""
    return path.isascii() or _HALF.search(path) is None


def fingerprint_of(request: Request, route: Route) -> Digest:
    """What is compared when the key comes again: a digest of all that can change what the request does."""
    settings = route.settings
    # Of a header that was sent more than once some readers take the first line and others the last.
    content_type = ", ".join(request.headers.all("content-type"))
    coding = ", ".join(request.headers.all("content-encoding")).strip().lower()
    coding = "" if coding == "identity" else coding
    try:
        # What a packed body says cannot be seen, so its bytes count.
        said = meaning(
            request.body,
            content_type,
            ignore_fields=settings.ignore_fields,
            as_bytes=settings.compare == "bytes" or coding != "",
        )
    except BadBody as bad:
        raise Refused(problem.ambiguous(str(bad))) from bad
    kind = content_type_of(content_type).compared
    host = [", ".join(request.headers.all("host")).strip().lower()] if settings.compare_host else []
    head = _joined_texts(VERSION, request.method, request.path, request.query, kind, coding, *host)
    return Digest(sha256(head + joined((said,))).digest())


def _joined_texts(*texts: str) -> bytes:
    """Texts as `joined` puts their bytes together."""
    line = "".join([f"{len(text)}:{text}" for text in texts])
    if line.isascii():
        return line.encode()  # nearly all are: then there are as many bytes as characters
    # Half a character in a path or query, as some servers leave it there, is kept apart from every whole one.
    return joined([text.encode("utf-8", "surrogatepass") for text in texts])


def check_first_sent(request: Request, route: Route) -> None:
    """Refuse a request whose first try is older than what is kept, where the profile asks for the time of it."""
    wording = route.settings.wording
    if wording.first_sent is None:
        return
    given = request.headers.get(wording.first_sent)
    if not given:
        raise Refused(problem.missing(wording.first_sent))
    try:
        sent = None if len(given) > _LONGEST_DATE else parsedate_to_datetime(given)
    except (ValueError, OverflowError, TypeError) as bad:
        raise Refused(problem.malformed(wording.first_sent, "it is no date")) from bad
    if sent is None:
        raise Refused(problem.malformed(wording.first_sent, "it is no date"))
    if sent.tzinfo is None:
        raise Refused(problem.malformed(wording.first_sent, "it is no date in GMT"))
    now = datetime.now(UTC)
    if now - sent > route.declared_policy(request.method).keep_for or sent - now > _CLOCKS:
        raise Refused(problem.outside(wording))


_log: Final = logging.getLogger("semel")
_ENVELOPE: Final = 64 * 1024
_SECOND: Final = 1_000_000


class ReadBody(msgspec.Struct, frozen=True, eq=False):
    """Asks for the whole body; answered with bytes, or None where there are more than `limit`."""

    limit: int


class ResolveScope(msgspec.Struct, frozen=True, eq=False):
    """Asks for the scope of the request; answered with what the rule gave."""

    rule: Scope
    request: Request


class ResolveAbout(ResolveScope, frozen=True, eq=False):
    """Asks for what the record of the request is searched by; answered with what the rule gave."""


OpenCall = SyncCall[Response] | AsyncCall[Response]
"""A call that was started, and is to be finished."""


class Open(msgspec.Struct, frozen=True, eq=False):
    """Asks to open the call; answered with an call, raises what the engine raises."""

    request: Request
    route: Route
    key: Any
    scope: Any
    asked: Any
    about: About = NOTHING

    def settings(self) -> CallOptions:
        """The arguments of the engine's `open`, without the key."""
        options: CallOptions = {
            "operation": self.route.operation(self.request.method),
            "scope": self.scope,
            "fingerprint": self.asked,
            "policy": policy_of(self.route),
            "returns": Response,
        }
        if self.about is not NOTHING:
            options["about"] = self.about
        return options


class Settle(msgspec.Struct, frozen=True, eq=False):
    """Asks to settle the open call with what the application answered; answered with the `Result`."""

    value: Response | NotKept


class Fail(msgspec.Struct, frozen=True, eq=False):
    """Asks to settle the open call with an error; raises it again, or gives the `Result` of whoever has the key now."""

    error: Exception


class ReadStatus(msgspec.Struct, frozen=True, eq=False):
    """Asks for the status of the record that the open call has committed; answered with it, or None."""


class PassThrough(msgspec.Struct, frozen=True, eq=False):
    """The request is none of ours: hand it on untouched."""


class Respond(msgspec.Struct, frozen=True, eq=False):
    """Send this, and nothing of the application's."""

    response: Response


class RunApp:
    """The application is to run, under this open call.

    Attributes:
        call: the open call.
        marks: headers that the profile wants beside every answer of a first run.
        is_settled: whether the engine was told what came of it; until then every failure is the application's.
    """

    __slots__ = ("call", "is_settled", "marks", "request", "route")

    def __init__(self, call: OpenCall, route: Route, request: Request) -> None:
        mark = route.settings.wording.ran
        self.call = call
        self.route = route
        self.request = request
        self.marks = () if mark is None else (mark,)
        self.is_settled = False

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""
        return self.route.operation(self.request.method)

    def perform(self, wanted: Settle | Fail | ReadStatus) -> Any:
        """Do what flows of the exchange ask of the open call; what this gives is awaited where the call is async."""
        if isinstance(wanted, ReadStatus):
            return self.call.read_status()
        self.is_settled = True
        if isinstance(wanted, Settle):
            return self.call.finish(wanted.value)  # type: ignore[arg-type]  # what is not kept leaves a tombstone
        return self.call.fail(wanted.error)


class Forward(msgspec.Struct, frozen=True, eq=False):
    """Send on what the application answered, with the marks of the call beside.

    `undo` says why the transaction of the request, where it has one, is taken back before that.
    """

    marks: tuple[tuple[str, str], ...] = ()
    undo: Exception | None = None


class RetryableResponse(Exception):
    """The application answered that nothing happened. Known to the engine, which lets the key be claimed again."""


class UnknownOutcome(Exception):
    """The application answered with a failure that says nothing. The engine leaves a doubt."""


class NoAnswer(Exception):
    """The application ended without a complete answer; whether it had an effect is not known."""


class Rollback(Exception):
    """Takes back the transaction of a request whose answer is not sent."""


def _value(answer: Answered, route: Route) -> Response | NotKept:
    """What is recorded of an answer: a tombstone where it is not kept."""
    if not route.settings.keep_response or answer.body is None or answer.contradiction is not None:
        return NotKept()
    return storable_response(answer.status, answer.headers, answer.body, route.settings.allowed)


def classify(route: Route, status: int, error: Exception | None) -> Meaning:
    """What an answer says of the work behind it; the policy for the class of `error` comes before the status."""
    if error is not None:
        policy = policy_of(route)
        if isinstance(error, policy.final_errors):
            return "final"
        if isinstance(error, policy.retry_errors):
            return "retry"
    return route.settings.meaning(status)


def _log_error(run_app: RunApp, what: str, error: Exception | None = None) -> None:
    _log.error("%s %s %s.", run_app.request.method, run_app.route.path, what, exc_info=error)


def policy_of(route: Route) -> Policy:
    """The policy of a route, under which an answer that says "nothing happened" lets the key be claimed again."""
    made: Policy | None = route.__dict__.get("_policy")
    if made is None:
        policy = route.settings.policy or Policy()
        made = route.__dict__["_policy"] = policy.replace(
            retry_errors=(*policy.retry_errors, RetryableResponse), max_result=route.settings.max_response + _ENVELOPE
        )
    return made


def replay(result: Result[Response], route: Route, request: Request) -> Response:
    """What a duplicate is sent."""
    stored = stored_record_of(result)
    marks = [route.settings.wording.replayed]
    if stored is not None:
        marks.append(("Idempotency-Expires", _date(stored.expires_us // _SECOND)))
    if "origin" in request.headers:
        marks.append(("Access-Control-Expose-Headers", ", ".join(name for name, _ in marks)))
    return result.value.with_headers(marks)


@lru_cache(maxsize=1024)
def _date(seconds: int) -> str:
    """An instant as HTTP writes it; many records end in the same second."""
    return formatdate(seconds, usegmt=True)


class StreamLimit:
    """The limits of one answer, which begins to leave now.

    Args:
        run_app: the call.
        buffer: what is kept of its answer.
        now: the instant, by the engine's clock.
    """

    def __init__(self, run_app: RunApp, buffer: ResponseBuffer, now: float) -> None:
        settings = run_app.route.settings
        self._buffer = buffer
        self._keeps = settings.keep_response and settings.meaning(buffer.status) == "final"
        self._is_joined = run_app.call.is_joined
        self._after_disconnect = settings.after_disconnect.total_seconds()
        end = run_app.call.claimed_at + run_app.call.request.policy.max_runtime.total_seconds()
        # An answer that only begins after max_runtime gets a moment all the same: most are whole then.
        self._end = end if now < end else now + self._after_disconnect
        self._left: float | None = None

    def client_left(self, now: float) -> None:
        """Nobody listens any more."""
        if self._left is None:
            self._left = now

    def due(self) -> float:
        """When it is stopped, as far as is known now; the past means now."""
        if self._left is None or self._is_joined:
            return self._end  # a transaction ends with its answer, whoever listens
        if self._buffer.is_over_limit or not self._keeps:
            return self._left
        return min(self._end, self._left + self._after_disconnect)

    def reason(self, now: float) -> str | None:
        """Why it is stopped at this instant, if it is."""
        if now < self.due():
            return None
        if now >= self._end:
            return "it went on for longer than max_runtime"
        if self._buffer.is_over_limit or not self._keeps:
            return "its client left, and nothing of it would be kept"
        return "its client left, and it went on for longer than after_disconnect"

    def check(self, now: float) -> None:
        """Refuse to go on with an answer that has to stop.

        Raises:
            NoAnswer: it has to stop; nothing of it was sent.
        """
        reason = self.reason(now)
        if reason is not None:
            raise NoAnswer(f"the answer was stopped: {reason}")


def gather(chunks: Iterable[bytes], limit: StreamLimit, clock: Clock) -> list[bytes]:
    """All chunks of an answer of which nothing is sent before its end.

    Raises:
        NoAnswer: it has to stop before that.
    """
    gathered: list[bytes] = []
    for chunk in chunks:
        gathered.append(chunk)
        limit.check(clock.monotonic())
    return gathered


E = TypeVar("E", bound=EngineBase)

POLICY_PATH: Final = "/.well-known/idempotency-policy"


class Exchange(Generic[E]):
    """The settings of one application, and what becomes of its requests under them.

    Args:
        engine: the engine, of the colour of the application.
        scope: from a request to whom its key belongs, taken from authenticated state; `SHARED` opts out.
        routes: which requests carry keys; None: every POST and PATCH that carries one.
        policy_path: where the policy document is served; None: nowhere.
        settings: what holds for every route that says nothing else.
    """

    def __init__(
        self,
        engine: E,
        scope: Scope | Shared,
        routes: Iterable[Route] | None,
        policy_path: str | None,
        settings: RouteOptions,
    ) -> None:
        if not callable(scope) and not isinstance(scope, Shared):
            raise UsageError("scope= is a function of the request, or SHARED; nothing was set up.")
        if policy_path is not None and not policy_path.startswith("/"):
            raise UsageError("policy_path= is a path that begins with a slash, or None; nothing was set up.")
        self.engine = engine
        self.scope = scope
        self.policy_path = policy_path
        self.routes = Routes.of(routes, settings, engine.policy, policy_path)
        for route in self.routes.every:
            route.declare(engine.policy_for)
        self._document = document(self.routes)
        if isinstance(scope, Shared) and any(route.settings.signed_by is not None for route in self.routes.every):
            raise UsageError("signed_by= compares the caller with the key, so it needs scope=; nothing was set up.")

    def policy_document(self, method: str, path: str) -> Response | None:
        """The policy document, where this request asks for it; the path below the mount."""
        return self._document if path == self.policy_path and method in ("GET", "HEAD") else None

    def find(self, method: str, path: str) -> Route | None:
        """The route of a request, if it is of one that carries keys; the path below the mount."""
        return self.routes.find(method, path) if method in self.routes.methods else None

    def handle(self, request: Request, route: Route) -> Flow[PassThrough | Respond | RunApp]:
        """What becomes of a request, for which `route` was found."""
        settings = route.settings
        try:
            check_path(request)
            key: Any = key_in(request, route)
            if key is None and settings.key is None:
                if settings.required:
                    raise Refused(problem.missing(settings.key_header))
                return PassThrough()
            who = SHARED if isinstance(self.scope, Shared) else (yield ResolveScope(self.scope, request))
            if who is None or (isinstance(who, tuple) and None in who):
                raise Refused(problem.unauthenticated(settings.www_authenticate))
            who = scope_of(who)
            if key is not None and settings.signed_by is not None:
                key = verified_key(settings.signed_by, key, route, who)
            body = yield ReadBody(settings.max_body)
            if body is None:
                raise Refused(problem.too_large(settings.max_body))
            request = replace(request, body=body)
            if key is None:
                key = computed_key(request, route)
                if key is None:
                    return PassThrough()
            check_first_sent(request, route)
            identity, asked = identity_of(request, route, key), fingerprint_of(request, route)
            about = NOTHING if settings.about is None else About.of((yield ResolveAbout(settings.about, request)))
            wanted = Open(request, route, identity, who, asked, about)
        except Refused as refused:
            return self._respond(refused.problem, request)
        try:
            call: OpenCall = yield wanted
        except SemelError as error:
            if isinstance(error, UsageError) and not isinstance(error, KeyReused):
                raise  # the settings of the site, such as what scope= gives: for whoever runs it to see
            return self._refuse(error, route, request)
        if call.result is not None:
            return Respond(replay(call.result, route, request))
        return RunApp(call, route, request)

    def on_response(self, run_app: RunApp, answer: Answered, error: Exception | None = None) -> Flow[Forward | Respond]:
        """Record what the application answered, and say what is sent.

        Args:
            run_app: the call.
            answer: what it answered. Where its length contradicts its Content-Length nobody can tell whether it is
                whole: it is neither kept nor sent.
            error: what the view raised, where a handler of the framework made the answer of it.
        """
        meaning = classify(run_app.route, answer.status, error)
        if meaning == "final":
            return self._record(run_app, Settle(_value(answer, run_app.route)), answer)
        failure = RetryableResponse if meaning == "retry" else UnknownOutcome
        return self._record(run_app, Fail(failure(f"answered {answer.status}")), answer)

    def on_error(self, run_app: RunApp, error: Exception) -> Flow[Forward | Respond]:
        """Record by policy what the application raised; raises it again unless somebody else's outcome is there."""
        return self._record(run_app, Fail(error), None)

    def _record(self, run_app: RunApp, wanted: Settle | Fail, answer: Answered | None) -> Flow[Forward | Respond]:
        verdict: Forward | Respond
        try:
            result: Result[Response] = yield wanted
        except (RetryableResponse, UnknownOutcome) as told:
            verdict = Forward(run_app.marks, told)
        except NotInTransaction as error:
            if isinstance(wanted, Fail):
                raise wanted.error from error
            verdict = yield from self._on_transaction_ended(run_app, error)
        except SemelError as error:
            verdict = self._on_unrecorded(run_app, wanted, error)
        else:
            if result.replayed:
                return Respond(replay(result, run_app.route, run_app.request))
            verdict = Forward(run_app.marks)
        if answer is None or answer.contradiction is None or isinstance(verdict, Respond):
            return verdict
        _log.warning("%s answered with %s, which is not sent", run_app.operation, answer.contradiction)
        is_kept = isinstance(wanted, Settle) and not run_app.call.is_joined
        return self._respond(problem.contradicts_length(runs_again=not is_kept), run_app.request)

    def _on_unrecorded(self, run_app: RunApp, wanted: Settle | Fail, error: SemelError) -> Forward | Respond:
        """What is sent where an outcome could not be recorded."""
        if isinstance(error, UsageError):
            if isinstance(wanted, Fail):
                raise wanted.error from error
            raise error  # for whoever runs the site to see
        if isinstance(wanted, Fail):
            return self._on_unrecorded_failure(run_app, wanted.error, error)
        if isinstance(error, TransactionAborted):
            _log_error(run_app, "could not be recorded, so what its view wrote is rolled back (503)", error)
            return self._respond(problem.rolled_back(), run_app.request)
        return self._refuse(error, run_app.route, run_app.request)

    def _on_unrecorded_failure(self, run_app: RunApp, failure: Exception, error: SemelError) -> Forward | Respond:
        """What is sent where not even a failure could be recorded."""
        match failure:
            case RetryableResponse() | UnknownOutcome():
                return Forward(run_app.marks, failure)  # it could not be recorded, and is true all the same
            case LeaseLost():
                # The handler was stopped where it would have gone on without its key; whoever asks again goes on.
                return self._refuse(failure, run_app.route, run_app.request)
        raise failure from (None if failure is error else error)

    def _on_transaction_ended(self, run_app: RunApp, error: NotInTransaction) -> Flow[Respond]:
        """The view has ended the transaction that its response was to be recorded in."""
        try:
            status: Status | None = yield ReadStatus()
        except SemelError:
            became = "Whether what it wrote before that is committed could not be seen"
        else:
            end = "rolled back" if status is None else "committed, without a response"
            became = f"What it wrote before that is {end}"
        _log_error(
            run_app,
            f"ended its transaction by itself, so its response could not be recorded in it. {became}; the client was "
            f"told so (500). Leave commit and rollback to the transaction that transaction= opens",
            error,
        )
        return self._respond(problem.transaction_ended(), run_app.request)

    def check_commit(self, run_app: RunApp) -> Flow[Respond | None]:
        """The transaction of the request has ended without an error; gives what is sent where it did not commit.

        Whoever asks has no other proof of the commit, so the record is looked for as everybody else sees it.
        """
        try:
            status: Status | None = yield ReadStatus()
        except SemelError as error:
            _log_error(run_app, "was carried out, and whether it is committed could not be seen", error)
            return self._respond(problem.commit_unknown(), run_app.request)
        return None if status is Status.COMPLETED else self.on_no_commit(run_app)

    def on_no_commit(self, run_app: RunApp) -> Respond:
        """What is sent where the transaction of a request is known to have ended without a commit."""
        _log_error(
            run_app,
            "ended without a commit: what its view wrote is gone, nothing is recorded, and the client was told so "
            "(500). Let the transaction that transaction= opens commit at its end, as `with Session.begin()` does",
        )
        return self._respond(problem.not_committed(), run_app.request)

    def limit(self, run_app: RunApp, buffer: ResponseBuffer) -> StreamLimit:
        """When the answer of a call, which begins to leave now, is stopped before its end."""
        return StreamLimit(run_app, buffer, self.engine.clock.monotonic())

    def _refuse(self, error: SemelError, route: Route, request: Request) -> Respond:
        settings = route.settings
        return self._respond(problem.of(error, settings.wording, settings.in_progress_status), request)

    def _respond(self, found: Problem, request: Request) -> Respond:
        """Send a problem, with a link to the policy document."""
        return Respond(found.response(self.policy_link(request.mount)))

    def policy_link(self, mount: str) -> str | None:
        """Where the policy document is; a mount may hold what the client wrote, and goes into a header."""
        return quote(mount) + self.policy_path if mount and self.policy_path else self.policy_path


def demand(semel: object, kind: type[SemelBase[E]], framework: str, name: str) -> E:
    """The engine of a `Semel` or `AsyncSemel`, if it is of the right kind.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(semel, kind):
        raise UsageError(f"{framework} needs semel={name}(…), not {type(semel).__name__}; nothing was set up.")
    return engine_of(semel)
