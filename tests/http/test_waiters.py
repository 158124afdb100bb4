"""How many duplicates may wait in a process, over real sockets: one too many is told at once, the others are served."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait

import httpx
import pytest

from tests.http.asking import Asker, new_key
from tests.http.conftest import Start
from tests.http.gate import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", ["starlette-uvicorn", "flask-gunicorn"])]

RUNNING, CROWDED = "urn:semel:problem:in-progress", "urn:semel:problem:too-many-waiting"


def test_one_too_many_for_a_key_is_409_and_the_other_is_served(start: Start, name: str) -> None:
    site = start(name, limits={"waiters_per_key": 1})
    asker, key = Asker(site), new_key()
    first = asker.later("/patient", key)
    visitor = site.gate.visitor()
    one, other = (asker.later("/patient", key) for _ in range(2))
    turned_away, waits = _first_of(one, other)
    visitor.go()
    assert (turned_away.status_code, turned_away.json()["type"]) == (409, RUNNING)
    assert int(turned_away.headers["retry-after"]) >= 1
    assert first.result().content == waits.result().content
    assert site.effects() == 1


def test_one_too_many_for_the_process_is_503_and_the_other_is_served(start: Start, name: str) -> None:
    site = start(name, limits={"waiters": 1})
    asker, keys = Asker(site), (new_key(), new_key())
    firsts = [asker.later("/patient", key) for key in keys]
    visitors = [site.gate.visitor() for _ in keys]
    one, other = (asker.later("/patient", key) for key in keys)
    turned_away, waits = _first_of(one, other)
    for visitor in visitors:
        visitor.go()
    assert (turned_away.status_code, turned_away.json()["type"]) == (503, CROWDED)
    assert int(turned_away.headers["retry-after"]) >= 1
    assert waits.result().content in [first.result().content for first in firsts]
    assert site.effects() == 2


def _first_of(
    one: Future[httpx.Response], other: Future[httpx.Response]
) -> tuple[httpx.Response, Future[httpx.Response]]:
    """The answer that comes first, and the request that still waits."""
    done, waiting = wait([one, other], timeout=PATIENCE, return_when=FIRST_COMPLETED)
    assert len(done) == 1, f"one of the two was to be answered, not {len(done)}"
    return done.pop().result(), waiting.pop()
