"""The exchange: what becomes of one request, decided once for every framework. Flows; no I/O.

What always holds: the same request gets the same verdict everywhere. Nothing is looked up before the key was read and
somebody stands behind it; nothing runs before the whole body is there. What the application answered reaches the client
unchanged, whether it is kept or not; but where somebody else's outcome was recorded, that one is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from semel.core.flow import Flow
from semel.core.key import SHARED, Shared
from semel.core.policy import Policy
from semel.core.record import Status
from semel.engine.colourless import Asked
from semel.engine.opened import Opened
from semel.engine.request import Result
from semel.errors import KeyReused, LeaseLost, NotInTransaction, SemelError, TransactionAborted, UsageError
from semel.http import problem
from semel.http.identity import (
    check_first_sent,
    check_path,
    computed_key,
    fingerprint_of,
    identity_of,
    key_in,
    scope_of,
)
from semel.http.kept import Answered
from semel.http.problem import Refused
from semel.http.profile import Meaning
from semel.http.request import Request
from semel.http.response import NotKept, Response, kept
from semel.http.route import Route, Scope

_log: Final = logging.getLogger("semel")
_ENVELOPE: Final = 64 * 1024
_SECOND: Final = 1_000_000


class ReadBody(msgspec.Struct, frozen=True, eq=False):
    """Asks for the whole body; answered with bytes, or None where there are more than `limit`."""

    limit: int


class WhoAsks(msgspec.Struct, frozen=True, eq=False):
    """Asks for the scope of the request; answered with what the rule gave."""

    rule: Scope
    request: Request


class Open(msgspec.Struct, frozen=True, eq=False):
    """Asks to open the call; answered with an `Opened`, raises what the engine raises."""

    request: Request
    route: Route
    key: Any
    scope: Any
    asked: Any

    def settings(self) -> Asked:
        """The arguments of the engine's `open`, without the key."""
        return {
            "operation": _operation(self.request, self.route),
            "scope": self.scope,
            "fingerprint": self.asked,
            "policy": policy_of(self.route),
            "returns": Response,
        }


def _operation(request: Request, route: Route) -> str:
    return f"{request.method} {route.path}"


class Settle(msgspec.Struct, frozen=True, eq=False):
    """Asks to settle the open call with what the application answered; answered with the `Result`."""

    value: Response | NotKept


class Fail(msgspec.Struct, frozen=True, eq=False):
    """Asks to settle the open call with an error; raises it again, or gives the `Result` of whoever has the key now."""

    error: Exception


class ReadStatus(msgspec.Struct, frozen=True, eq=False):
    """Asks for the status of the record that the open call has committed; answered with it, or None."""


class Pass(msgspec.Struct, frozen=True, eq=False):
    """The request is none of ours: hand it on untouched."""


class Answer(msgspec.Struct, frozen=True, eq=False):
    """Send this, and nothing of the application's."""

    response: Response


class Go(msgspec.Struct, frozen=True, eq=False):
    """The application is to run, under this open call."""

    opened: Opened[Response]
    route: Route
    request: Request

    @property
    def operation(self) -> str:
        """What is done, as the record names it."""
        return _operation(self.request, self.route)

    @property
    def marks(self) -> tuple[tuple[str, str], ...]:
        """Headers that the profile wants beside every answer of a first run."""
        mark = self.route.settings.wording.ran
        return () if mark is None else (mark,)


class Send(msgspec.Struct, frozen=True, eq=False):
    """Send on what the application answered, with the marks of the call beside.

    `undo` says why the transaction of the request, where it has one, is taken back before that.
    """

    marks: tuple[tuple[str, str], ...] = ()
    undo: Exception | None = None


def settlement(opened: Opened[Response]) -> Callable[[Any], Any]:
    """Does what `answered` and `raised` ask for; what it gives is awaited where the open call is of that colour."""

    def perform(wanted: Settle | Fail | ReadStatus) -> Any:
        match wanted:
            case ReadStatus():
                return opened.read_status()
            case Settle(value):
                return opened.settle(value)  # type: ignore[arg-type]  # what is not kept leaves a tombstone
            case Fail(error):
                return opened.fail(error)

    return perform


class NotStored(Exception):
    """The application answered that nothing happened. Known to the engine, which lets the key be claimed again."""


class NobodyKnows(Exception):
    """The application answered with a failure that says nothing. The engine leaves a doubt."""


class NoAnswer(Exception):
    """The application ended without a complete answer; whether it had an effect is not known."""


class Undone(Exception):
    """Takes back the transaction of a request whose answer is not sent."""


def exchange(
    request: Request, route: Route, scope: Scope | Shared, described_at: str | None
) -> Flow[Pass | Answer | Go]:
    """What becomes of `request`, for which `route` was found."""
    try:
        return (yield from _taken(request, route, scope))
    except Refused as refused:
        return Answer(refused.problem.response(described_at))


def _taken(request: Request, route: Route, scope: Scope | Shared) -> Flow[Pass | Answer | Go]:
    settings = route.settings
    check_path(request)
    key: Any = key_in(request, route)
    if key is None and settings.key is None:
        if settings.required:
            raise Refused(problem.missing(settings.key_header))
        return Pass()
    who = SHARED if isinstance(scope, Shared) else (yield WhoAsks(scope, request))
    if who is None or (isinstance(who, tuple) and None in who):
        raise Refused(problem.unauthenticated(settings.challenge))
    who = scope_of(who)
    body = yield ReadBody(settings.max_body)
    if body is None:
        raise Refused(problem.too_large(settings.max_body))
    request = replace(request, body=body)
    if key is None:
        key = computed_key(request, route)
        if key is None:
            return Pass()
    check_first_sent(request, route)
    wanted = Open(request, route, identity_of(request, route, key), who, fingerprint_of(request, route))
    try:
        opened: Opened[Response] = yield wanted
    except KeyReused as error:
        raise _refusal(error, route) from error
    except UsageError:
        raise  # the settings of the site, such as what scope= gives, and not the request: for whoever runs it to see
    except SemelError as error:
        raise _refusal(error, route) from error
    if opened.result is not None:
        return Answer(replay(opened.result, route, request))
    return Go(opened, route, request)


def answered(
    going: Go, answer: Answered, *, described_at: str | None, error: Exception | None = None
) -> Flow[Send | Answer]:
    """The application has answered: record it, and say what is sent.

    Args:
        going: the call.
        answer: what it answered. Where its length contradicts its Content-Length nobody can tell whether it is whole:
            it is neither kept nor sent.
        described_at: where the policy document is.
        error: what the view raised, where a handler of the framework made the answer of it: the policy for that class
            comes before what the status says.
    """
    route, status = going.route, answer.status
    meaning = _meaning(route, status, error)
    wanted: Settle | Fail
    if meaning == "stored":
        wanted = Settle(_value(answer, route))
    else:
        wanted = Fail((NotStored if meaning == "retried" else NobodyKnows)(f"answered {status}"))
    verdict = yield from _recorded(going, wanted, described_at)
    if answer.contradiction is None or isinstance(verdict, Answer):
        return verdict
    _log.warning("%s answered with %s, which is not sent", going.operation, answer.contradiction)
    is_kept = meaning == "stored" and not going.opened.is_joined
    return Answer(problem.contradicts_length(runs_again=not is_kept).response(described_at))


def _value(answer: Answered, route: Route) -> Response | NotKept:
    """What is recorded of an answer: a tombstone where it is not kept."""
    if route.settings.store == "none" or answer.body is None or answer.contradiction is not None:
        return NotKept()
    return kept(answer.status, answer.headers, answer.body, route.settings.allowed)


def _meaning(route: Route, status: int, error: Exception | None) -> Meaning:
    policy = policy_of(route)
    if error is not None and isinstance(error, policy.final_errors):
        return "stored"
    if error is not None and isinstance(error, policy.retry_errors):
        return "retried"
    return route.settings.meaning(status)


def raised(going: Go, error: Exception, described_at: str | None) -> Flow[Send | Answer]:
    """The application has raised: recorded by policy, and raised again unless somebody else's outcome is there."""
    return (yield from _recorded(going, Fail(error), described_at))


def committed(going: Go, described_at: str | None) -> Flow[Answer | None]:
    """The transaction of the request has ended without an error; gives what is sent where it did not commit.

    Whoever asks has no other proof of the commit, so the record is looked for as everybody else sees it.
    """
    try:
        status: Status | None = yield ReadStatus()
    except SemelError as error:
        _log_error(going, "was carried out, and whether it is committed could not be seen", error)
        return Answer(problem.commit_unknown().response(described_at))
    if status is Status.COMPLETED:
        return None
    return not_committed(going, described_at)


def not_committed(going: Go, described_at: str | None) -> Answer:
    """What is sent where the transaction of a request is known to have ended without a commit."""
    _log_error(
        going,
        "ended without a commit: what its view wrote is gone, nothing is recorded, and the client was told so (500). "
        "Let the transaction that within= opens commit at its end, as `with Session.begin()` does",
    )
    return Answer(problem.not_committed().response(described_at))


def _transaction_ended(going: Go, error: NotInTransaction, described_at: str | None) -> Flow[Answer]:
    """The view has ended the transaction that its response was to be recorded in."""
    try:
        status: Status | None = yield ReadStatus()
    except SemelError:
        became = "Whether what it wrote before that is committed could not be seen"
    else:
        became = f"What it wrote before that is {'rolled back' if status is None else 'committed, without a response'}"
    _log_error(
        going,
        f"ended its transaction by itself, so its response could not be recorded in it. {became}; the client was told "
        f"so (500). Leave commit and rollback to the transaction that within= opens",
        error,
    )
    return Answer(problem.transaction_ended().response(described_at))


def _log_error(going: Go, what: str, error: Exception | None = None) -> None:
    _log.error("%s %s %s.", going.request.method, going.route.path, what, exc_info=error)


def _recorded(going: Go, wanted: Settle | Fail, described_at: str | None) -> Flow[Send | Answer]:
    route = going.route
    try:
        result: Result[Response] = yield wanted
    except (NotStored, NobodyKnows) as told:
        return Send(going.marks, told)
    except UsageError as error:
        if isinstance(wanted, Fail):
            raise wanted.error from error
        if isinstance(error, NotInTransaction):
            return (yield from _transaction_ended(going, error, described_at))
        raise  # for whoever runs the site to see
    except TransactionAborted as error:
        if isinstance(wanted, Fail):
            return _of_failure(wanted, error, going, described_at)
        _log_error(going, "could not be recorded, so what its view wrote is rolled back (503)", error)
        return Answer(problem.rolled_back().response(described_at))
    except SemelError as error:
        if isinstance(wanted, Fail):
            return _of_failure(wanted, error, going, described_at)
        return Answer(_refusal(error, route).problem.response(described_at))
    return Answer(replay(result, route, going.request)) if result.replayed else Send(going.marks)


def _of_failure(failed: Fail, error: SemelError, going: Go, described_at: str | None) -> Send | Answer:
    """What is sent where not even a failure could be recorded."""
    match failed.error:
        case NotStored() | NobodyKnows() as answer:
            return Send(going.marks, answer)  # it could not be recorded, and is true all the same
        case LeaseLost() as lost:
            # The handler was stopped where it would have gone on without its key; whoever asks again goes on.
            return Answer(_refusal(lost, going.route).problem.response(described_at))
    raise failed.error from (None if failed.error is error else error)


def _refusal(error: SemelError, route: Route) -> Refused:
    settings = route.settings
    return Refused(problem.of(error, settings.wording, settings.running))


def policy_of(route: Route) -> Policy:
    """The policy of a route, under which an answer that says "nothing happened" lets the key be claimed again."""
    made: Policy | None = route.__dict__.get("_policy")
    if made is None:
        policy = route.settings.policy or Policy()
        made = route.__dict__["_policy"] = policy.replace(
            retry_errors=(*policy.retry_errors, NotStored), max_result=route.settings.max_response + _ENVELOPE
        )
    return made


def replay(result: Result[Response], route: Route, request: Request) -> Response:
    """What a duplicate is sent."""
    record = result.record
    marks = [route.settings.wording.replayed]
    if record is not None:
        marks.append(("Idempotency-Expires", _date(record.expires_us // _SECOND)))
    if "origin" in request.headers:
        marks.append(("Access-Control-Expose-Headers", ", ".join(name for name, _ in marks)))
    return result.value.marked(marks)


@lru_cache(maxsize=1024)
def _date(seconds: int) -> str:
    """An instant as HTTP writes it; many records end in the same second."""
    return formatdate(seconds, usegmt=True)
