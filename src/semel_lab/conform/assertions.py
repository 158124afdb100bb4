"""Judgements that several cases share.

What always holds: two requests count as one record only if something shows it: another body that is refused, a counter
that stood still, or an answer that only a replay can give. Equal answers alone are no proof.
"""

from __future__ import annotations

from typing import Any, Final

from semel_lab.conform.case import Failed, NotSeen, Passed, Unseen, Verdict
from semel_lab.conform.http_client import Answer, Reply, Silence
from semel_lab.conform.probe import Probe
from semel_lab.conform.report import described

BAD_REQUEST: Final = 400


def equal(first: Answer, again: Reply) -> bool:
    """Whether a reply has the status and, byte for byte, the body of the first answer."""
    return isinstance(again, Answer) and (again.status, again.body) == (first.status, first.body)


def replayed(first: Answer, again: Reply) -> Verdict:
    """Whether a reply gives the first answer again."""
    if equal(first, again):
        return Passed(f"{first.status} and {len(first.body)} bytes of body, twice the same")
    return Failed(f"the first answer again: {described(first)}", described(again))


def refused(probe: Probe, *lines: bytes, or_silence: bool = False) -> Verdict:
    """Whether a request with these header lines is refused as malformed, and has no effect."""
    before = probe.count()
    reply = probe.ask(*lines)
    expected = "400" + (", or a connection that is closed" if or_silence else "")
    match reply:
        case Silence(why) if or_silence and why != "no answer in time":
            seen = "the connection was closed"
        case Answer(status) if status == BAD_REQUEST:
            seen = "400"
        case _:
            return Failed(expected, described(reply))
    if before is not None and (more := probe.counted() - before):
        return Failed("no effect", f"{seen}, and effects: {more}")
    return Passed(seen)


def one_record(probe: Probe, first: bytes, second: bytes, *, or_refused: bool = False) -> Verdict:
    """Whether two spellings of the header lead to one record."""
    before = probe.count()
    answer = probe.accepted(first)
    again = probe.settled(second)
    if or_refused and isinstance(again, Answer) and again.status == BAD_REQUEST:
        return Passed("the second spelling is refused with 400")
    if not equal(answer, again):
        return Failed(f"the first answer again: {described(answer)}", described(again))
    return only_one(probe, before, second) or Passed("the second spelling replays the first answer")


def only_one(probe: Probe, before: int | None, line: bytes, **changes: Any) -> Failed | None:
    """Look whether what was replayed under `line` really is a record; None where it is.

    Raises:
        Unseen: nothing that could be looked at would show it.
    """
    if before is not None and (more := probe.counted() - before) != 1:
        return Failed("one effect", f"effects: {more}")
    if probe.tells_bodies:
        reply = probe.settled(line, body=probe.other, **changes)
        if isinstance(reply, Answer) and reply.accepted:
            return Failed("one record, so that another body is refused", described(reply))
    elif before is None and not probe.tells_answers:
        message = "every answer of the service is the same; say with --effects where effects are counted"
        raise Unseen(message)
    return None


def same_request(probe: Probe, body: bytes, what: str) -> Verdict:
    """Whether a body that says the same in other words is a duplicate."""
    alone = probe.settled(probe.line_of_fresh(), body=body)
    if not (isinstance(alone, Answer) and alone.accepted):
        return NotSeen(f"the service does not accept {what}: {described(alone)}")
    line, answer = probe.first()
    again = probe.settled(line, body=body)
    if equal(answer, again):
        return Passed(f"{what}: replayed")
    return Failed(f"{what} is the same request, so the first answer again", described(again))
