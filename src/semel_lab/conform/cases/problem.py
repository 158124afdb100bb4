"""Cases about what errors say. They come last, and judge every refusal that the cases before them met.

What always holds: an answer of the server's own parser, which never reached the service, is not held against it.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urljoin

from semel_lab.conform import json_variants
from semel_lab.conform.case import Case, Failed, Passed, Unseen, Verdict
from semel_lab.conform.http_client import Answer, Request
from semel_lab.conform.probe import Probe
from semel_lab.conform.report import described
from semel_lab.conform.target import path_of, wire_to

_MEMBERS: Final = ("type", "title", "detail")
_CONFLICTS: Final = (409, 425)
_DESCRIBED: Final = re.compile(r'<([^>]*)>[^<]*?;\s*rel="?[^",;]*\bdescribedby\b')


def _details(probe: Probe) -> Verdict:
    problems = _problems(probe)
    for answer in problems:
        media = (answer.value("content-type") or "").partition(";")[0]
        body = json_variants.parsed(answer.body)
        if media != "application/problem+json":
            return Failed("application/problem+json", f"{media or 'no content type'}: {described(answer)}")
        if not isinstance(body, dict) or any(not isinstance(body.get(name), str) for name in _MEMBERS):
            return Failed("the members type, title and detail", described(answer))
    return Passed(f"all of {len(problems)}")


def _readable(probe: Probe) -> Verdict:
    for answer in _problems(probe):
        if answer.value("content-language") is None and not _links(answer):
            return Failed("Content-Language, or a Link with rel=describedby", f"neither: {described(answer)}")
    return Passed("on all of them")


def _policy(probe: Probe) -> Verdict:
    links = [link for answer in probe.problems for link in _links(answer)]
    if not links:
        return Failed("a Link with rel=describedby on an error", "no error has one")
    url = urljoin(probe.target.url, links[0])
    if not url.startswith(("http://", "https://")):
        return Failed("a Link to http or https", url)
    reply = wire_to(url, probe.target.timeout).exchange(Request("GET", path_of(url)))
    if isinstance(reply, Answer) and reply.accepted:
        return Passed(f"{links[0]}: {reply.status}")
    return Failed(f"2xx for {links[0]}", described(reply))


def _problems(probe: Probe) -> list[Answer]:
    """The refusals that are about keys: 409 and the like, a reused key, a key that cannot be read.

    Raises:
        Unseen: there was none, or the first request was not accepted.
    """
    told = (*_CONFLICTS, probe.target.running_status)
    ours = [answer for answer in probe.problems if answer.status in told]
    line, _ = probe.first()
    # Asked for again: among the errors that were met, some may be about the body, which are not ours to judge.
    replies = [probe.ask(line, body=probe.other), probe.ask(b'"a", "b"')]
    ours += [reply for reply in replies if isinstance(reply, Answer) and not reply.accepted]
    if not ours:
        message = "no request was refused"
        raise Unseen(message)
    return ours


def _links(answer: Answer) -> list[str]:
    return [target for value in answer.values("link") for target in _DESCRIBED.findall(value)]


CASES: Final = (
    Case(
        "problem-details",
        "Refusals are application/problem+json with type, title and detail.",
        "draft 2.7",
        "should",
        "A client has to tell a reused key from a failed validation, and both are 422.",
        _details,
        ("accepts-key",),
    ),
    Case(
        "problem-language",
        "Refusals say their language, or where they are described.",
        "draft 2.7",
        "should",
        "Somebody has to read them.",
        _readable,
        ("accepts-key",),
    ),
    Case(
        "policy-published",
        "The description that refusals link to can be fetched.",
        "draft 2.5",
        "should",
        "A client that does not know how long keys are kept cannot know how long it may retry.",
        _policy,
        ("accepts-key",),
    ),
)
