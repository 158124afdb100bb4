"""Cases about connections that end too early: an upload that is cut off, and a client that does not wait.

What always holds: whatever became of the broken connection, the judgement is made on an honest request that follows.
"""

from __future__ import annotations

from typing import Final

from semel_lab.conform.case import Case, Failed, NotSeen, Passed, Verdict
from semel_lab.conform.http_client import Answer
from semel_lab.conform.probe import Probe
from semel_lab.conform.report import described

_REPLAY: Final = ("accepts-key", "replays", "one-effect")
_TRIES: Final = 5


def _cut(probe: Probe) -> Verdict:
    body, line, before = probe.target.body, probe.line_of_fresh(), probe.count()
    probe.wire.cut(probe.request(line), body[: len(body) // 2])
    return _carried_out(probe, line, before, body)


def _cut_at_the_end(probe: Probe) -> Verdict:
    # A sound body arrives whole, and more was announced. If it ran, it left a record, and another body is refused.
    tells, line, before = probe.tells_bodies, probe.line_of_fresh(), probe.count()
    if not tells and before is None:
        return NotSeen("neither effects nor other bodies would show it; say with --effects where effects are counted")
    probe.wire.cut(probe.request(line), probe.target.body)
    if before is not None and (more := probe.counted() - before):
        return Failed("no effect of what was cut off", f"effects: {more}")
    return _carried_out(probe, line, before, probe.other if tells else probe.target.body)


def _left(probe: Probe) -> Verdict:
    return _left_often(probe, count=False)


def _left_one_effect(probe: Probe) -> Verdict:
    probe.counted()
    return _left_often(probe, count=True)


def _left_often(probe: Probe, *, count: bool) -> Verdict:
    """Often, because the second request may overtake the one that was left, and then there is nothing to see."""
    verdict: Verdict = NotSeen("nothing was sent")
    for _ in range(_TRIES):
        line, before = probe.line_of_fresh(), probe.counted() if count else None
        probe.wire.leave(probe.request(line))
        verdict = _carried_out(probe, line, before, probe.target.body)
        if not isinstance(verdict, Passed):
            break
    return verdict


def _carried_out(probe: Probe, line: bytes, before: int | None, body: bytes) -> Verdict:
    """Whether the honest request is accepted and, where this can be counted, there was one effect in all."""
    reply = probe.settled(line, body=body)
    if not (isinstance(reply, Answer) and reply.accepted):
        return Failed("2xx for the honest request that follows with the same key", described(reply))
    if before is not None and (effects := probe.counted() - before) != 1:
        return Failed("one effect, that of the honest request", f"effects: {effects}")
    return Passed(f"{reply.status}{', one effect' if before is not None else ''}")


CASES: Final = (
    Case(
        "cut-upload",
        "After an upload that was cut off, the honest request with the same key is carried out.",
        "semel hard place",
        "must",
        "A phone loses its network in the middle. If half a body is remembered, its retry is refused for ever.",
        _cut,
        _REPLAY,
    ),
    Case(
        "cut-upload-not-run",
        "An upload that was cut off is never run, even if what arrived makes sense.",
        "semel hard place",
        "must",
        "What arrived is not what was asked for: the first items of a list, the first digits of an amount.",
        _cut_at_the_end,
        (*_REPLAY, "cut-upload"),
    ),
    Case(
        "disconnect",
        "A client that hangs up without waiting gets the answer when it asks again.",
        "draft 2.6",
        "must",
        "This is the usual way in which an answer gets lost.",
        _left,
        _REPLAY,
    ),
    Case(
        "disconnect-one-effect",
        "A client that hangs up and asks again causes one effect.",
        "draft 2.6",
        "must",
        "A handler that is cancelled with its client may have had its effect and leave no record of it.",
        _left_one_effect,
        (*_REPLAY, "duplicates-agree", "disconnect"),
    ),
)
