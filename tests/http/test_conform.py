"""Every site passes semel's own black-box tester: what is asked of any service holds for ours, seen from outside.

What always holds: nothing may fail, neither a must nor a should, and nothing that these targets make visible may go
unseen: a case that quietly stopped looking is told like one that failed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from semel_lab.conform import CASES, Case, Result, Target, conform
from tests.http.asking import ALICE, BOB
from tests.http.gate import Gate
from tests.http.sites import SITES, Running

pytestmark = pytest.mark.slow

BODY = b'{"amount": 10, "currency": "EUR"}'
REQUIRED = ("accepts-key", "missing-key")
"""Looked at once more where keys are required."""
WHILE_RUNNING = ("duplicate-while-running", "other-body-while-running")
"""Looked at where a handler waits."""
WITHOUT_CONFLICT = ("retry-after",)
"""Duplicates wait for the answer on these routes, so there may be no 409 to look at."""


@pytest.mark.parametrize("name", SITES)
def test_a_site_passes_every_case(name: str, sites: Callable[[str, str], Running]) -> None:
    site = sites(name, "sqlite")
    results = [
        *judged(site, "/orders", without(*WHILE_RUNNING), other_path="/required"),
        *judged(site, "/required", only(*REQUIRED), required=True),
    ]
    with opened(site.gate):
        results += judged(site, "/slow", only(*WHILE_RUNNING), slow_body=BODY)
    assert [told(result) for result in results if not holds(result)] == []


def judged(site: Running, path: str, cases: Iterable[Case], **more: Any) -> tuple[Result, ...]:
    """What these cases saw of one path."""
    target = Target(
        url=f"http://127.0.0.1:{site.port}{path}",
        body=BODY,
        caller=(("Authorization", ALICE),),
        other_caller=(("Authorization", BOB),),
        effects="/effects",
        **more,
    )
    return conform(target, cases=cases).results


def only(*names: str) -> list[Case]:
    """The cases of these names."""
    return [case for case in CASES if case.id in names]


def without(*names: str) -> list[Case]:
    """All the others."""
    return [case for case in CASES if case.id not in names]


def holds(result: Result) -> bool:
    """Whether there is nothing to tell about a case."""
    return result.word == "passed" or (result.word == "not seen" and result.case.id in WITHOUT_CONFLICT)


def told(result: Result) -> str:
    """A case that does not hold, in a line."""
    case = result.case
    expected = "" if result.expected is None else f"; expected: {result.expected}"
    return f"{case.id} ({case.severity}) {result.word}: {result.seen}{expected}"


@contextmanager
def opened(gate: Gate) -> Iterator[None]:
    """Every handler that comes to the gate may go on, for as long as this lasts; nobody is left at it afterwards."""
    # Known by its address, so that the keeper stays until it has come: one left at the gate would be taken for the
    # visitor of the next test.
    last = socket.socket()
    last.bind(("127.0.0.1", 0))

    def keep() -> None:
        while (visitor := gate.visitor()).address != last.getsockname():
            visitor.go()
        visitor.connection.close()

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        last.connect(("127.0.0.1", gate.port))
        keeper.join()
        last.close()
