"""Wrong services: what they take for the same request, and for another."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from tests.conform.fault import Fault
from tests.conform.service import Asked, Told


class IgnoresTheBody(Fault):
    """There is no fingerprint."""

    told_by = "other-body"

    def fingerprint(self, asked: Asked) -> Hashable:
        return asked.path


class ReusedIsABadRequest(Fault):
    """Another body gets 400, and not what was agreed on."""

    told_by = "other-body"

    def reused(self, asked: Asked) -> Told:
        return self.problem(400, "The key stands for another request.")


class SharesKeysAmongCallers(Fault):
    """Whoever has the key gets the answer."""

    told_by = "other-caller"

    def identity(self, asked: Asked, key: str) -> Hashable:
        return key


class ForgetsThePath(Fault):
    """A booking is answered with a payment."""

    told_by = "other-path"

    def fingerprint(self, asked: Asked) -> Hashable:
        return self.canonical(asked.body)


class MindsTheOrder(Fault):
    """Another order of members is another request."""

    told_by = "member-order"

    def canonical(self, body: bytes) -> str:
        return json.dumps(self.parsed(body))


class MindsWhiteSpace(Fault):
    """More white space is another request."""

    told_by = "white-space"

    def canonical(self, body: bytes) -> str:
        return f"{super().canonical(body)}{body.count(10)}"


class MindsSpelling(Fault):
    """12.5 and 12.50 are two numbers."""

    told_by = "same-number"

    def number(self, spelling: str) -> Any:
        return ["number", spelling]


class CollapsesNumbers(Fault):
    """Numbers are compared as binary floating point."""

    told_by = "near-numbers"

    def number(self, spelling: str) -> Any:
        return float(spelling)


class TakesTheLastMember(Fault):
    """Of a member given twice the last one counts."""

    told_by = "duplicate-members"

    def members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(pairs)
