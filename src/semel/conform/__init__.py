"""Black-box judgement of any HTTP service that takes a key: `conform(Target(url=...))` answers a `Report`.

What always holds: nothing of semel has to be in the service, and what could not be looked at is never called passed.
"""

from __future__ import annotations

from semel.conform.case import Case, Failed, NotSeen, Passed, Verdict
from semel.conform.cases import CASES
from semel.conform.junit import junit
from semel.conform.local_app import served
from semel.conform.report import Report, Result
from semel.conform.run import conform
from semel.conform.target import Target, TargetInvalid, Unreachable, read_settings, target_of

__all__ = [
    "CASES",
    "Case",
    "Failed",
    "NotSeen",
    "Passed",
    "Report",
    "Result",
    "Target",
    "TargetInvalid",
    "Unreachable",
    "Verdict",
    "conform",
    "junit",
    "read_settings",
    "served",
    "target_of",
]
