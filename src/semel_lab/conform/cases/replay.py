"""Cases about giving the answer again: what has to be the same, what must not come twice, and how it is marked.

What always holds: the second request of a case is the first one, byte for byte.
"""

from __future__ import annotations

from typing import Final

from semel_lab.conform.assertions import replayed
from semel_lab.conform.case import Case, Failed, NotSeen, Passed, Verdict
from semel_lab.conform.http_client import Answer
from semel_lab.conform.probe import Probe

_SAME: Final = ("content-type", "location", "etag")
_MARKS: Final = ("replay", "repeat", "idempoten", "duplicate")
_REPLAY: Final = ("accepts-key", "replays")


def _replays(probe: Probe) -> Verdict:
    line, first = probe.first()
    return replayed(first, probe.settled(line))


def _headers(probe: Probe) -> Verdict:
    first, again = _twice(probe)
    for name in _SAME:
        if first.values(name) != again.values(name):
            return Failed(f"{name}: {first.value(name)}", f"{name}: {again.value(name)}")
    return Passed(", ".join(name for name in _SAME if first.values(name)) or "none of them in either answer")


def _one_effect(probe: Probe) -> Verdict:
    before = probe.counted()
    _twice(probe)
    effects = probe.counted() - before
    if effects == 1:
        return Passed("one effect of two requests")
    return Failed("one effect of two requests", f"effects: {effects}")


def _no_cookie(probe: Probe) -> Verdict:
    first, again = _twice(probe)
    cookies = first.values("set-cookie")
    if not cookies:
        return NotSeen("the first answer sets no cookie")
    if set(cookies) & set(again.values("set-cookie")):
        return Failed("no cookie of the first answer", "the replay sets it again")
    return Passed("the replay does not set it")


def _marked(probe: Probe) -> Verdict:
    first, again = _twice(probe)
    new = set(again.fields) - set(first.fields)
    for name, value in sorted(new):
        if any(mark in name for mark in _MARKS):
            return Passed(f"{name}: {value}")
    return Failed("a header such as Idempotency-Replayed: true", "no header tells a replay from a first answer")


def _twice(probe: Probe) -> tuple[Answer, Answer]:
    line, first = probe.first()
    return first, probe.accepted(line)


CASES: Final = (
    Case(
        "replays",
        "The same request again gets the same status and the same body, byte for byte.",
        "draft 2.6",
        "must",
        "A client whose first answer got lost has only the second one to learn from.",
        _replays,
        ("accepts-key",),
    ),
    Case(
        "one-effect",
        "The same request again has no effect.",
        "draft 2.6",
        "must",
        "This is what keys are for: the customer is charged twice.",
        _one_effect,
        _REPLAY,
    ),
    Case(
        "replays-headers",
        "Content-Type, Location and ETag are the same on replay.",
        "semel hard place",
        "must",
        "Without Location nobody finds what was made; with another Content-Type the same bytes mean something else.",
        _headers,
        _REPLAY,
    ),
    Case(
        "no-cookie-replayed",
        "A cookie of the first answer is not set again by a replay.",
        "semel hard place",
        "should",
        "Whoever gets hold of a key would get the session of the first caller with it.",
        _no_cookie,
        _REPLAY,
    ),
    Case(
        "replay-marked",
        "A header tells a replay from a first answer.",
        "semel hard place",
        "should",
        "Without it nobody can see in a log how often a retry was needed, or whether it was one.",
        _marked,
        _REPLAY,
    ),
)
