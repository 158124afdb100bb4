"""`conform`: every case against one service, one after the other.

What always holds: a case that fails or cannot look never stops the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from semel_lab.conform.case import Case, Failed, NotSeen, Unseen, Verdict
from semel_lab.conform.cases import CASES
from semel_lab.conform.probe import Probe
from semel_lab.conform.report import Report, Result
from semel_lab.conform.target import Target, TargetInvalid, Unreachable

Progress = Callable[[int, int, str], None]


def conform(target: Target, *, progress: Progress | None = None, cases: Iterable[Case] = CASES) -> Report:
    """Judge a service from outside.

    Args:
        progress: is told how many cases are done, of how many, and which one is next.

    Raises:
        Unreachable: nobody answers there.
        TargetInvalid: the counter of effects gives no number.
    """
    probe = Probe(target)
    _check(probe)
    chosen = tuple(cases)
    results: dict[str, Result] = {}
    began = time.monotonic()
    for number, case in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen), case.id)
        started = time.monotonic()
        verdict = _verdict(probe, case, results)
        results[case.id] = Result(case, verdict, time.monotonic() - started)
    # Without the query, which may hold what nobody else should read.
    return Report(target.url.partition("?")[0], tuple(results.values()), time.monotonic() - began)


def _verdict(probe: Probe, case: Case, results: dict[str, Result]) -> Verdict:
    for name in case.rests_on:
        if name in results and isinstance(results[name].verdict, Failed):
            return NotSeen(f"it rests on {name}, which failed")
    try:
        return case.judge(probe)
    except Unseen as reason:
        return NotSeen(str(reason))


def _check(probe: Probe) -> None:
    try:
        probe.wire.connect().close()
    except OSError as error:
        message = f"Nobody answers at {probe.target.url}: {error}; nothing was sent. Start the service and try again."
        raise Unreachable(message) from error
    try:
        probe.count()
    except Unseen as reason:
        message = f"Effects cannot be counted: {reason}. Nothing was run. Correct --effects or --effects-pointer."
        raise TargetInvalid(message) from None
