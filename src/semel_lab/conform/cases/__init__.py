"""The cases, in the order in which they are run.

What always holds: a case stands behind those it rests on.
"""

from __future__ import annotations

from typing import Final

from semel_lab.conform.case import Case
from semel_lab.conform.cases import broken, json_body, key, problem, replay, reuse, running

CASES: Final[tuple[Case, ...]] = (
    *key.CASES[:1],
    *replay.CASES,
    *key.CASES[1:],
    *reuse.CASES,
    *json_body.CASES,
    *running.CASES[:-1],
    *broken.CASES,
    *running.CASES[-1:],
    *problem.CASES,
)
