"""Cases about JSON: what is the same request in other words, and what is not.

What always holds: every body is first sent under a key of its own. Where the service does not take it there, nothing is
concluded from what it does under a key that was used.
"""

from __future__ import annotations

from typing import Final

from semel_lab.conform import json_variants
from semel_lab.conform.assertions import same_request
from semel_lab.conform.case import Case, Failed, NotSeen, Passed, Verdict
from semel_lab.conform.http_client import Answer
from semel_lab.conform.probe import Probe
from semel_lab.conform.report import described

# Where bodies are not compared at all, nothing can be learned from two that are, or are not, the same.
_COMPARED: Final = ("accepts-key", "replays", "other-body")
# Equal as binary floating-point numbers, and yet not the same number.
_NEAR: Final = (("0.1", "0.10000000000000001"), ("9007199254740992", "9007199254740993"))


def _order(probe: Probe) -> Verdict:
    body = json_variants.reordered(probe.needs_json())
    if body is None:
        return NotSeen("the body has no two members")
    return same_request(probe, body, "another order of members")


def _space(probe: Probe) -> Verdict:
    return same_request(probe, json_variants.spaced(probe.needs_json()), "more white space")


def _same_number(probe: Probe) -> Verdict:
    seen: Verdict = NotSeen("there is no number in the body")
    for what, body in json_variants.respelled(probe.needs_json()):
        verdict = same_request(probe, body, what)
        if isinstance(verdict, Failed):
            return verdict
        seen = verdict if not isinstance(seen, Passed) else seen
    return seen


def _near_numbers(probe: Probe) -> Verdict:
    body = probe.needs_json()
    for place in json_variants.numbers(body)[:3]:
        for one, other in _NEAR:
            bodies = [json_variants.with_number(body, place, number) for number in (one, other)]
            if all(_taken(probe, each) for each in bodies):
                return _different(probe, bodies[0], bodies[1], f"{one} and {other}")
    return NotSeen("the body has no number for which the service takes 0.1 or 9007199254740993")


def _taken(probe: Probe, body: bytes) -> bool:
    reply = probe.settled(probe.line_of_fresh(), body=body)
    return isinstance(reply, Answer) and reply.accepted


def _different(probe: Probe, first: bytes, second: bytes, what: str) -> Verdict:
    line, _ = probe.first(body=first)
    reply = probe.settled(line, body=second)
    if isinstance(reply, Answer) and not reply.accepted:
        return Passed(f"{what}: {reply.status}")
    return Failed(f"{what} are two requests, so {probe.target.reused_status}", described(reply))


def _doubled(probe: Probe) -> Verdict:
    body = json_variants.doubled(probe.needs_json())
    if body is None:
        return NotSeen("the body has no member")
    return _different(probe, probe.target.body, body, "a member once and twice")


CASES: Final = (
    Case(
        "member-order",
        "Another order of members is the same request.",
        "draft 2.4",
        "should",
        "Many languages do not keep the order; an honest retry from there would be refused.",
        _order,
        _COMPARED,
    ),
    Case(
        "white-space",
        "More white space is the same request.",
        "draft 2.4",
        "should",
        "A retry by another library, or after a proxy that formats, would be refused.",
        _space,
        _COMPARED,
    ),
    Case(
        "same-number",
        "Another spelling of a number is the same request: 1 and 1.0, 100 and 1e2.",
        "draft 2.4",
        "should",
        "Languages with one kind of number write 1.0 as 1; an honest retry from there would be refused.",
        _same_number,
        _COMPARED,
    ),
    Case(
        "near-numbers",
        "Two numbers that only floating point takes for one are two requests.",
        "semel hard place",
        "must",
        "A request for another amount gets the answer to the first one, and is never carried out.",
        _near_numbers,
        _COMPARED,
    ),
    Case(
        "duplicate-members",
        "A body with a member given twice is refused, or is another request.",
        "semel hard place",
        "should",
        "Which of the two counts depends on the parser, so one part of a service compares what another does not run.",
        _doubled,
        _COMPARED,
    ),
)
