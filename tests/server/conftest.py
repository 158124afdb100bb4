"""The desk of `tests.server.desk` as a fixture."""

import httpx
import pytest

from semel import AsyncSemel
from semel.server import User
from semel.server.actions import Actions
from semel.server.app import make_app
from semel.server.audit import Audit
from semel.stores.memory import MemoryStore
from semel.testing import VirtualClock
from tests.server.desk import ACME, ADMIN, ERASER, OPERATOR, VIEWER, Desk, Site


@pytest.fixture
def desk() -> Desk:
    clock = VirtualClock()
    semel = AsyncSemel(MemoryStore(clock=clock.store_clock), clock=clock)
    audit = Audit(semel)
    return Desk(clock, semel, audit, Actions(semel, audit))


@pytest.fixture
def people() -> dict[str, User]:
    return {user.name: user for user in (VIEWER, OPERATOR, ERASER, ADMIN, ACME)}


@pytest.fixture
def site(desk: Desk, people: dict[str, User]) -> Site:
    """The server as part of an application that knows its users by a header."""
    app = make_app(desk.semel, user=lambda request: people.get(request.headers.get("x-user", "")))
    return Site(app, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://semel.test"))
