"""Cases about duplicates that meet: sent at the same moment, or while the first still runs.

What always holds: all copies leave at one barrier. Which of them wins is chance; what is judged holds for any of them.
"""

from __future__ import annotations

from typing import Final

from semel_lab.conform.assertions import equal
from semel_lab.conform.case import Case, Failed, NotSeen, Passed, Verdict
from semel_lab.conform.http_client import Answer, Reply
from semel_lab.conform.probe import Probe
from semel_lab.conform.report import described

_REPLAY: Final = ("accepts-key", "replays", "one-effect")
_CONFLICT: Final = 409
_TRIES: Final = 8


def _agree(probe: Probe) -> Verdict:
    return _judged(probe, _burst(probe, probe.line_of_fresh()))


def _judged(probe: Probe, replies: list[Reply]) -> Verdict:
    winners = [reply for reply in replies if isinstance(reply, Answer) and reply.accepted]
    if not winners:
        return Failed("at least one 2xx", described(replies[0]))
    for reply in replies:
        busy = isinstance(reply, Answer) and reply.status in probe.busy
        if not busy and not equal(winners[0], reply):
            return Failed(f"the same answer ({described(winners[0])}) or {_told(probe)}", described(reply))
    rest = "; the others were told to wait" if len(winners) < len(replies) else ""
    return Passed(f"{len(winners)} of {len(replies)} got {winners[0].status}, all the same{rest}")


def _one_effect(probe: Probe) -> Verdict:
    before = probe.counted()
    line = probe.line_of_fresh()
    replies = _burst(probe, line)
    probe.settled(line)
    effects = probe.counted() - before
    if effects == 1:
        return Passed(f"one effect of {len(replies)} requests")
    return Failed(f"one effect of {len(replies)} requests", f"effects: {effects}")


def _while_running(probe: Probe) -> Verdict:
    slow = probe.target.slow_body
    if slow is None:
        return NotSeen("nothing runs long enough; say with --slow-body what does")
    before, line = probe.count(), probe.line_of_fresh()
    verdict = _judged(probe, probe.at_once([probe.request(line, body=slow)] * 2))
    if isinstance(verdict, Passed) and before is not None and (more := probe.counted() - before) != 1:
        return Failed("one effect", f"effects: {more}")
    return verdict


def _other_body_while_running(probe: Probe) -> Verdict:
    slow = probe.target.slow_body
    if slow is None:
        return NotSeen("nothing runs long enough; say with --slow-body what does")
    other = probe.other
    for _ in range(_TRIES):
        line, before = probe.line_of_fresh(), probe.count()
        first, second = probe.wire.in_turn(probe.request(line, body=slow), probe.request(line, body=other))
        overtaken = _accepted(second) and not _accepted(first)
        if not overtaken:
            return _one_of_two(probe, before, first, second)
    return NotSeen("the slow request was always overtaken by the one behind it")


def _one_of_two(probe: Probe, before: int | None, first: Reply, second: Reply) -> Verdict:
    told = probe.busy | {probe.target.reused_status}
    if not (_accepted(first) and isinstance(second, Answer) and second.status in told):
        expected = f"2xx for the first, and {probe.target.reused_status} or 409 for the other body"
        return Failed(expected, f"{described(first)} and {described(second)}")
    if before is not None and (more := probe.counted() - before) != 1:
        return Failed("one effect", f"effects: {more}")
    return Passed(f"{second.status} for the other body")


def _told(probe: Probe) -> str:
    """The statuses that say that one runs already."""
    *most, last = sorted(probe.busy)
    return f"{', '.join(map(str, most))} or {last}"


def _accepted(reply: Reply) -> bool:
    return isinstance(reply, Answer) and reply.accepted


def _retry_after(probe: Probe) -> Verdict:
    wanted = probe.target.running_status
    conflicts = [answer for answer in probe.problems if answer.status in (_CONFLICT, wanted)]
    if not conflicts:
        return NotSeen(f"no duplicate was answered with {wanted}")
    silent = [answer for answer in conflicts if answer.value("retry-after") is None]
    if silent:
        return Failed(
            f"Retry-After on every {silent[0].status}",
            f"{len(silent)} of {len(conflicts)} without it: {described(silent[0])}",
        )
    return Passed(f"Retry-After: {conflicts[0].value('retry-after')}")


def _burst(probe: Probe, line: bytes) -> list[Reply]:
    body = probe.target.body
    return probe.at_once([probe.request(line, body=body)] * probe.target.copies)


CASES: Final = (
    Case(
        "duplicates-agree",
        "Of duplicates sent at the same moment each gets the same answer, or is told that one runs already.",
        "draft 2.6",
        "must",
        "A double click is two requests at once. Two different answers mean that both ran.",
        _agree,
        _REPLAY,
    ),
    Case(
        "duplicates-one-effect",
        "Duplicates sent at the same moment have one effect.",
        "draft 2.6",
        "must",
        "Looking first and writing later lets all of them through; only an atomic claim does not.",
        _one_effect,
        (*_REPLAY, "duplicates-agree"),
    ),
    Case(
        "duplicate-while-running",
        "A duplicate of a request that still runs waits for its answer, or is told that it runs.",
        "draft 2.7",
        "must",
        "Clients retry when their patience ends, which is when the first request is still at work.",
        _while_running,
        (*_REPLAY, "duplicates-agree", "duplicates-one-effect"),
    ),
    Case(
        "other-body-while-running",
        "Another body under the key of a request that still runs does not run.",
        "draft 2.7",
        "must",
        "A service that compares only with what is finished runs both.",
        _other_body_while_running,
        (*_REPLAY, "other-body", "duplicates-agree"),
    ),
    Case(
        "retry-after",
        "An answer of 409 says when to ask again.",
        "semel hard place",
        "should",
        "Without it clients ask again at once, all of them, or never.",
        _retry_after,
        ("accepts-key",),
    ),
)
