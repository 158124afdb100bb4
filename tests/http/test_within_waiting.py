"""Duplicates of a slow request on routes with `transaction=`: they wait for its answer, and hold no connection.

Counted, not timed: the pool has one connection for the slow request and one for everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.http.tills import libraries as by
from tests.http.tills.awaited import FastapiTill, StarletteTill
from tests.http.tills.called import FlaskTill, WsgiTill
from tests.http.tills.crowd import PATIENCE, Seen
from tests.http.tills.django_tills import DecoratedTill, DjangoTill, RestTill
from tests.http.tills.till import Till
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow

Make = Callable[[str], Till]
POOLED: dict[str, tuple[str, Make]] = {
    "starlette-session": ("postgresql", partial(StarletteTill, library=by.AsyncSqlalchemy)),
    "starlette-pool": ("postgresql", partial(StarletteTill, library=by.AsyncpgPool)),
    "starlette-sqlite": ("sqlite", partial(StarletteTill, library=by.AsyncSqlalchemy)),
    "fastapi-session": ("postgresql", partial(FastapiTill, library=by.AsyncSqlalchemy)),
    "fastapi-pool": ("postgresql", partial(FastapiTill, library=by.AsyncpgPool)),
    "fastapi-sqlite": ("sqlite", partial(FastapiTill, library=by.AsyncSqlalchemy)),
    "wsgi-session": ("postgresql", partial(WsgiTill, library=by.Sqlalchemy)),
    "wsgi-sqlite": ("sqlite", partial(WsgiTill, library=by.Sqlalchemy)),
    "flask-session": ("postgresql", partial(FlaskTill, library=by.Sqlalchemy)),
}
OF_DJANGO: dict[str, Make] = {"middleware": DjangoTill, "decorator": DecoratedTill, "drf": RestTill}


@pytest.fixture(scope="module")
def server_url(postgresql: Databases) -> str:
    """A database for all of these tests: to make one takes longer than a test."""
    return postgresql.new_database()


@pytest.fixture
def open_till(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str, Make], Till]]:
    opened: list[Till] = []

    def open_one(store: str, make: Make) -> Till:
        url = f"sqlite:///{tmp_path / 'r.db'}" if store == "sqlite" else request.getfixturevalue("server_url")
        opened.append(make(url))
        if len(opened) == 1:
            opened[0].empty()
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def check_all_answered(seen: Seen, till: Till) -> None:
    """One has run, and all others have its answer."""
    assert [answer.status for answer in seen.answers] == [201] * len(seen.answers), seen
    assert till.rows() == 1


@pytest.mark.parametrize("name", POOLED)
def test_duplicates_of_one_process_hold_no_connection_while_they_wait(
    name: str, open_till: Callable[[str, Make], Till]
) -> None:
    till = open_till(*POOLED[name])
    seen = till.crowd(till.gate, with_owner=True)
    assert seen.held == 1, f"{seen.held} connections are out, and one request runs"
    check_all_answered(seen, till)


@pytest.mark.parametrize("name", POOLED)
def test_duplicates_in_another_process_give_their_connections_back_while_they_wait(
    name: str, open_till: Callable[[str, Make], Till]
) -> None:
    till, other = open_till(*POOLED[name]), open_till(*POOLED[name])
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(other.ask, "slow")
        seen = till.crowd(other.gate, with_owner=False)
        assert slow.result(PATIENCE).status == 201
    assert seen.held <= 1, f"{seen.held} connections are out, and at most one request claims at a time"
    assert all(answer.replayed for answer in seen.answers), seen
    check_all_answered(seen, till)


@pytest.mark.parametrize("name", OF_DJANGO)
def test_threads_of_django_give_their_connections_back_while_they_wait(
    name: str, open_till: Callable[[str, Make], Till]
) -> None:
    till = open_till("postgresql", OF_DJANGO[name])
    seen = till.crowd(till.gate, with_owner=True)
    assert seen.held == 1, f"{seen.held} connections are open, and one request runs"
    check_all_answered(seen, till)
