"""Cases about one key for two different things: bodies, callers and paths.

What always holds: the other body is one that the service accepts by itself, so a refusal is about the key.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urljoin

from semel_lab.conform.assertions import BAD_REQUEST, equal
from semel_lab.conform.case import Case, Failed, NotSeen, Passed, Verdict
from semel_lab.conform.http_client import Answer, Reply, Request
from semel_lab.conform.probe import Probe
from semel_lab.conform.report import described
from semel_lab.conform.target import path_of

_REPLAY: Final = ("accepts-key", "replays")
_SERVER_ERROR: Final = 500


def _other_body(probe: Probe) -> Verdict:
    other = probe.other
    line, _ = probe.first()
    reply = probe.settled(line, body=other)
    wanted = probe.target.reused_status
    if isinstance(reply, Answer) and reply.status == wanted:
        return Passed(str(wanted))
    return Failed(str(wanted), described(reply))


def _other_caller(probe: Probe) -> Verdict:
    if not probe.target.other_caller:
        return NotSeen("there is only one caller; name another with --other-caller")
    own = probe.settled(probe.line_of_fresh(), other_caller=True)
    if not (isinstance(own, Answer) and own.accepted):
        return NotSeen(f"the other caller is not accepted with a key of its own: {described(own)}")
    line, first = probe.first()
    # Another body: a shared record gives itself away by refusing it, even where all answers are alike.
    if probe.tells_bodies:
        reply = probe.settled(line, body=probe.other, other_caller=True)
        if isinstance(reply, Answer) and reply.accepted:
            return Passed(f"{reply.status}: a record of its own")
        return Failed("2xx: a record of its own", described(reply))
    before = probe.count()
    reply = probe.settled(line, other_caller=True)
    return _not_shared(probe, first, reply, before)


def _other_path(probe: Probe) -> Verdict:
    if probe.target.other_path is None:
        return NotSeen("there is only one path; name another with --other-path")
    path = path_of(urljoin(probe.target.url, probe.target.other_path))
    own = probe.settled(probe.line_of_fresh(), path=path)
    if not (isinstance(own, Answer) and own.accepted):
        return NotSeen(f"the other path does not accept the request: {described(own)}")
    line, first = probe.first()
    before = probe.count()
    reply = probe.settled(line, path=path)
    if isinstance(reply, Answer) and BAD_REQUEST <= reply.status < _SERVER_ERROR:
        return Passed(f"{reply.status}: another request")
    return _not_shared(probe, first, reply, before)


def _not_shared(probe: Probe, first: Answer, reply: Reply, before: int | None) -> Verdict:
    """Whether a reply is an answer of its own and not the first one again."""
    if not (isinstance(reply, Answer) and reply.accepted):
        return Failed("2xx: a record of its own", described(reply))
    if before is not None:
        ran = probe.counted() > before
    elif not probe.tells_answers:
        return NotSeen("every answer of the service is the same; say with --effects where effects are counted")
    else:
        ran = not equal(first, reply)
    if ran:
        return Passed(f"{reply.status}: a record of its own")
    return Failed("an answer of its own", f"the answer to the first: {described(reply)}")


def _safe_methods(probe: Probe) -> Verdict:
    target = probe.target
    caller = tuple((name, value.encode()) for name, value in target.caller)
    line, _ = probe.first()
    seen = []
    for method in ("GET", "HEAD", "OPTIONS"):
        without = probe.send(Request(method, target.path, caller))
        for value in (line, b'"not a key'):
            reply = probe.send(Request(method, target.path, (*caller, (target.header, value))))
            if _status(reply) != _status(without):
                return Failed(f"{method} as without the header: {described(without)}", described(reply))
        seen.append(f"{method} {_status(without)}")
    return Passed(", ".join(seen))


def _status(reply: Reply) -> int | None:
    return reply.status if isinstance(reply, Answer) else None


CASES: Final = (
    Case(
        "other-body",
        "Another body under the same key is refused.",
        "draft 2.7",
        "must",
        "The client takes the answer to one request for the answer to another: a payment that was never made.",
        _other_body,
        _REPLAY,
    ),
    Case(
        "other-caller",
        "The key of one caller means nothing for another.",
        "draft 5",
        "must",
        "Whoever guesses or sees a key would read the answer to somebody else, or keep them from asking.",
        _other_caller,
        (*_REPLAY, "one-effect"),
    ),
    Case(
        "other-path",
        "The same key on another path does not get the answer of the first.",
        "semel hard place",
        "must",
        "A client that uses one key for a whole order would take the answer to its booking for that to its payment.",
        _other_path,
        (*_REPLAY, "one-effect"),
    ),
    Case(
        "safe-methods",
        "GET, HEAD and OPTIONS are answered as if there were no key.",
        "draft 1",
        "must",
        "Clients send the header with everything; what only reads must not fail over it, nor replay what is old.",
        _safe_methods,
        ("accepts-key",),
    ),
)
