"""What came of a run, as values and as JSON.

What always holds: a report holds the request headers of nobody. What a service answered is cut short and made
printable before it gets here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, assert_never

import msgspec

from semel_lab.conform.case import Case, Failed, NotSeen, Passed, Verdict
from semel_lab.conform.http_client import Answer, Reply, Silence

_EXCERPT: Final = 100


@dataclass(frozen=True, slots=True)
class Result:
    """One case, and its verdict."""

    case: Case
    verdict: Verdict
    seconds: float

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        match self.verdict:
            case Passed():
                return "passed"
            case Failed():
                return "failed"
            case NotSeen():
                return "not seen"
        assert_never(self.verdict)

    @property
    def seen(self) -> str:
        """What was seen, or why nothing was."""
        match self.verdict:
            case Passed(seen) | Failed(_, seen):
                return seen
            case NotSeen(reason):
                return reason
        assert_never(self.verdict)

    @property
    def expected(self) -> str | None:
        """What would have been right, of a failed case."""
        return self.verdict.expected if isinstance(self.verdict, Failed) else None


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one run against one service."""

    url: str
    results: tuple[Result, ...]
    seconds: float

    def failed(self, *, strict: bool = False) -> tuple[Result, ...]:
        """What failed and counts: the musts, and under `strict` the shoulds as well."""
        return tuple(
            result
            for result in self.results
            if isinstance(result.verdict, Failed) and (strict or result.case.severity == "must")
        )

    @property
    def passed(self) -> bool:
        """Whether no must failed."""
        return not self.failed()

    def count(self, word: str) -> int:
        """How many ended with this verdict."""
        return sum(result.word == word for result in self.results)

    def as_json(self) -> bytes:
        """The report for machines."""
        return msgspec.json.format(msgspec.json.encode(self._tree()), indent=2) + b"\n"

    def _tree(self) -> dict[str, Any]:
        words = ("passed", "failed", "not seen")
        return {
            "version": 1,
            "url": self.url,
            "passed": self.passed,
            "passed_strictly": not self.failed(strict=True),
            "counts": {word: self.count(word) for word in words},
            "seconds": round(self.seconds, 3),
            "cases": [_row(result) for result in self.results],
        }


def _row(result: Result) -> dict[str, Any]:
    case = result.case
    return {
        "id": case.id,
        "checks": case.checks,
        "rule": case.rule,
        "severity": case.severity,
        "verdict": result.word,
        "expected": result.expected,
        "seen": result.seen,
        "why": case.why,
        "seconds": round(result.seconds, 3),
    }


def described(reply: Reply) -> str:
    """A reply in a few words: its status and how its body begins."""
    match reply:
        case Silence(why):
            return f"no answer ({printable(why)})"
        case Answer(status, _, b""):
            return f"{status}, no body"
        case Answer(status, _, body):
            begin = printable(body[:_EXCERPT].decode("utf-8", "backslashreplace"))
            return f"{status} {begin}{'…' if len(body) > _EXCERPT else ''}"
    assert_never(reply)


def printable(text: str) -> str:
    """`text` on one line, with everything that is not printable written as an escape."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
