"""What cases look with: fresh keys, requests to the target, the counter of effects, and what was found out on the way.

What always holds: a key is used by one case only; nothing sleeps. Where something still runs, the same request is sent
again until there is a final answer or the time of the target is over.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, Final

from semel_lab.conform import json_variants
from semel_lab.conform.case import Unseen
from semel_lab.conform.http_client import Answer, Reply, Request
from semel_lab.conform.report import described
from semel_lab.conform.target import Target, path_of, wire_to

_BUSY: Final = frozenset({409, 425, 429})
_UNAVAILABLE: Final = 503
_REMEMBERED: Final = 1000


class Probe:
    """One service under test."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.wire = target.wire
        self.busy = _BUSY | {target.running_status}
        # Bounded, because a request that keeps running is answered with the same error many times over.
        self.problems: deque[Answer] = deque(maxlen=_REMEMBERED)

    def line(self, key: str) -> bytes:
        """How the target wants a key to be written."""
        return key.encode() if self.target.bare else f'"{key}"'.encode()

    def line_of_fresh(self) -> bytes:
        """A key that nobody has used, as it is written."""
        return self.line(fresh())

    def request(
        self, *lines: bytes, body: bytes | None = None, path: str | None = None, other_caller: bool = False
    ) -> Request:
        """The request of the target with these header lines for the key."""
        target = self.target
        caller = target.other_caller if other_caller else target.caller
        fields = [(name, value.encode()) for name, value in caller]
        fields.append(("Content-Type", target.content_type.encode()))
        fields += [(target.header, line) for line in lines]
        whole = target.body if body is None else body
        return Request(target.method, path or target.path, tuple(fields), whole)

    def ask(self, *lines: bytes, **changes: Any) -> Reply:
        """Send it, and remember the error if it is one."""
        return self.send(self.request(*lines, **changes))

    def send(self, request: Request, gate: threading.Barrier | None = None) -> Reply:
        """Send any request, and remember the error if it is one."""
        reply = self.wire.exchange(request, gate)
        if isinstance(reply, Answer) and 400 <= reply.status < 500:  # noqa: PLR2004 - the class of client errors
            self.problems.append(reply)
        return reply

    def settled(self, *lines: bytes, **changes: Any) -> Reply:
        """Send it until the answer is final."""
        deadline = time.monotonic() + self.target.timeout
        while True:
            reply = self.ask(*lines, **changes)
            running = isinstance(reply, Answer) and reply.status in (*self.busy, _UNAVAILABLE)
            if not running or time.monotonic() > deadline:
                return reply

    def accepted(self, *lines: bytes, **changes: Any) -> Answer:
        """Send it where it must be accepted for the case to mean anything.

        Raises:
            Unseen: it was not.
        """
        reply = self.settled(*lines, **changes)
        if isinstance(reply, Answer) and reply.accepted:
            return reply
        message = f"the request that should come first was not accepted: {described(reply)}"
        raise Unseen(message)

    def first(self, **changes: Any) -> tuple[bytes, Answer]:
        """A fresh key, as it is written, and the answer to its first request."""
        line = self.line_of_fresh()
        return line, self.accepted(line, **changes)

    def at_once(self, requests: Sequence[Request]) -> list[Reply]:
        """Send all of them at the same moment, each from a thread of its own."""
        gate = threading.Barrier(len(requests))
        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(lambda request: self.send(request, gate), requests))

    def count(self) -> int | None:
        """How many effects there were so far; None where nobody can tell.

        Raises:
            Unseen: the counter gives no number.
        """
        url = self.target.effects_url
        if url is None:
            return None
        fields = tuple((name, value.encode()) for name, value in self.target.caller)
        reply = wire_to(url, self.target.timeout).exchange(Request("GET", path_of(url), fields))
        number = _number(reply, self.target.effects_pointer)
        if number is None:
            message = f"the counter of effects gives no number: {described(reply)}"
            raise Unseen(message)
        return number

    def counted(self) -> int:
        """The same for a case that is about effects.

        Raises:
            Unseen: nobody can tell.
        """
        number = self.count()
        if number is None:
            message = "effects cannot be counted; say where with --effects"
            raise Unseen(message)
        return number

    @cached_property
    def other(self) -> bytes:
        """The other body, after it was seen that the service accepts it by itself.

        Raises:
            Unseen: there is none, or it does not.
        """
        body = self.target.different
        if body is None:
            message = "there is no other body; give one with --other-body"
            raise Unseen(message)
        reply = self.settled(self.line_of_fresh(), body=body)
        if isinstance(reply, Answer) and reply.accepted:
            return body
        message = f"the other body is not accepted by itself, give one with --other-body: {described(reply)}"
        raise Unseen(message)

    @cached_property
    def tells_bodies(self) -> bool:
        """Whether another body under the same key is refused, so that this can be used to recognise a record."""
        try:
            line, _ = self.first()
            reply = self.ask(line, body=self.other)
        except Unseen:
            return False
        return isinstance(reply, Answer) and reply.status == self.target.reused_status

    @cached_property
    def tells_answers(self) -> bool:
        """Whether the answers to two keys differ, so that equal answers mean a replay."""
        return self.first()[1].body != self.first()[1].body

    def needs_json(self) -> bytes:
        """The body of a case that is about JSON.

        Raises:
            Unseen: it is none.
        """
        if json_variants.is_json(self.target.content_type):
            return self.target.body
        message = f"the body is {self.target.content_type}, not JSON"
        raise Unseen(message)


def fresh() -> str:
    """A key that nobody has used."""
    return str(uuid.uuid4())


def _number(reply: Reply, pointer: str | None) -> int | None:
    if not isinstance(reply, Answer) or not reply.accepted:
        return None
    value = json_variants.parsed(reply.body)
    for part in (pointer or "").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict) and pointer is None:
        found = [member for member in value.values() if _counts(member)]
        value = found[0] if len(found) == 1 else None
    return int(value) if _counts(value) else None


def _counts(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
