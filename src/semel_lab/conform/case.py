"""What a case is, and the three verdicts it can end with.

What always holds: a case that could not look is `NotSeen` with the reason, and never `Passed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from semel_lab.conform.probe import Probe

Severity = Literal["must", "should"]


@dataclass(frozen=True, slots=True)
class Passed:
    """The service does what the case asks for."""

    seen: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The service does something else."""

    expected: str
    seen: str


@dataclass(frozen=True, slots=True)
class NotSeen:
    """It could not be looked at, and this is what was missing."""

    reason: str


Verdict = Passed | Failed | NotSeen


class Unseen(Exception):
    """Raised inside a case that cannot go on; the message becomes the reason of `NotSeen`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to look at.

    Attributes:
        id: its name, in reports and for machines.
        checks: what it checks, in a sentence.
        rule: where that is asked for: a section of the draft, an RFC, or a hard place that semel knows.
        severity: whether a service must or should do so.
        why: what goes wrong for clients where it does not.
        judge: looks at the service and answers the verdict.
        rests_on: cases without which this one says nothing: where one of them failed, this one is not seen.
    """

    id: str
    checks: str
    rule: str
    severity: Severity
    why: str
    judge: Callable[[Probe], Verdict]
    rests_on: tuple[str, ...] = ()
