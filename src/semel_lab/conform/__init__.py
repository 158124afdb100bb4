"""Black-box judgement of any HTTP service that takes a key: `conform(Target(url=...))` answers a `Report`.

What always holds: nothing of semel has to be in the service, and what could not be looked at is never called passed.
"""

from __future__ import annotations

from semel_lab.conform.app_loader import served
from semel_lab.conform.case import Case, Failed, NotSeen, Passed, Verdict
from semel_lab.conform.cases import CASES
from semel_lab.conform.junit import junit
from semel_lab.conform.report import Report, Result
from semel_lab.conform.run import conform
from semel_lab.conform.target import Target, TargetInvalid, Unreachable, read_settings, target_of

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
