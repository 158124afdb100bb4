"""The way of an operator on database servers: what needs a person, a bulk action, the audit chain, tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest

from semel import AsyncSemel
from semel.batch import Batches
from semel.server import User
from semel.server.actions import make_actions
from semel.server.api.bodies import MOST
from semel.server.api.endpoints import ENDPOINTS
from semel.server.app import make_app
from semel.server.attention import AttentionFinder, needs_of
from semel.server.bulk import BulkActions, BulkRequest
from semel.server.tokens import Tokens
from semel.testing import Crash
from tests.server.desk import ADMIN, OPERATOR, WHY
from tests.server.test_bulk import prepare
from tests.server.test_matrix import BODIES, QUERIES, path_of
from tests.servers.databases import Databases
from tests.servers.records import emptied

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


END_LEASES = "UPDATE semel_record SET lease_us = created_us WHERE status = 'running'"
"""What time does; a lease that is short enough to wait for may be over before it is granted."""


@pytest.fixture(params=["postgresql", "mariadb"])
def databases(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def url(databases: Databases) -> str:
    return emptied(databases, databases.url)


async def test_doubts_are_found_released_together_and_written_down(url: str) -> None:
    fences = await prepare(url, 5)
    async with AsyncSemel(url) as semel:
        actions = make_actions(semel)
        (need,) = [one for one in (await needs_of(actions, OPERATOR)).needs if one.kind == "in_doubt"]
        assert (need.number, need.policy) == (5, "hold")
        assert need.holder is not None
        assert (await needs_of(actions, User("fred", {"viewer"}, scopes={"globex"}))).needs == ()
        bulk = BulkActions(actions)
        started = await bulk.start(
            OPERATOR, BulkRequest(action="release", reason=WHY, records={"status": "in_doubt"}, id="on-a-server")
        )
        await bulk.run(started.scope, started.id)
        assert (await bulk.progress(OPERATOR, "", "on-a-server")).done == 5
        assert await bulk.unfinished() == ()
        (report,) = await actions.verify_audit(ADMIN, scope="acme")
        assert report.is_whole
        assert report.entries >= 2 * len(fences)


async def test_leases_that_are_over_are_counted_before_a_sweep_marks_them(databases: Databases, url: str) -> None:
    async def dies() -> None:
        raise Crash

    async with AsyncSemel(url) as semel:
        with pytest.raises(Crash):
            await semel.run("k", dies, operation="charge", fingerprint=None)
        finder = AttentionFinder(semel)
        assert await finder.count_lapsed() == ()
        databases.admin_each([END_LEASES], url)
        ((operation, number, since),) = await finder.count_lapsed()
        record = await semel.read("k", operation="charge")
        assert record is not None
        assert (operation, number, since) == ("charge", 1, record.lease_until)
        await semel.sweep()
        assert await finder.count_lapsed() == ()


async def test_a_token_finds_its_user(url: str) -> None:
    async with AsyncSemel(url) as semel:
        tokens = Tokens(semel)
        name = f"robot-{url.partition(':')[0]}"
        made = await tokens.create(name, roles=["viewer"], scopes=["acme"], expires_in=timedelta(days=1), by="test")
        user = await tokens.find(made.secret)
        assert user is not None
        assert (user.name, user.scopes) == (name, frozenset({"acme"}))
        assert await tokens.revoke(name, by="test")
        assert await tokens.find(made.secret) is None


LOOKS = [endpoint for endpoint in ENDPOINTS if endpoint.method == "GET"]
TEXTS = ["x" * 5000, "\U0001d54f\u0301", "' OR '1'='1", "%"]


CHANGES = [endpoint for endpoint in ENDPOINTS if endpoint.method == "POST"]


def extremes_of(shape: Any) -> list[dict[str, Any]]:
    """What is asked with each of its numbers as far as it goes, and each of its texts as nobody would write it."""
    found: list[dict[str, Any]] = [{}]
    for field in msgspec.structs.fields(shape):
        if field.type is msgspec.Raw or "Raw" in str(field.type):
            continue
        told = msgspec.json.schema(field.type)
        kinds = [one.get("type") for one in told.get("anyOf", [told])]
        found += [{field.encode_name: far} for far in (MOST, -MOST) if "integer" in kinds]
        found += [{field.encode_name: text} for text in TEXTS if "string" in kinds]
    return found


async def test_whatever_is_asked_is_answered_or_refused(url: str) -> None:
    async with AsyncSemel(url) as semel:
        await Batches(semel).start("payroll", [{"id": "1"}], operation="pay", item_id="id")
        app = make_app(semel, user=lambda _: ADMIN)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://semel.test") as client:
            for endpoint in LOOKS:
                for query in extremes_of(endpoint.query):
                    params = {**QUERIES.get(endpoint.name, {}), **query}
                    answer = await client.get(f"/api/v1{path_of(endpoint)}", params=params)
                    assert answer.status_code in (200, 404, 409, 422), (endpoint.name, query, answer.text)


async def test_whatever_is_to_be_changed_is_changed_or_refused(url: str) -> None:
    async with AsyncSemel(url) as semel:
        tokens = Tokens(semel)
        made = await tokens.create("root", roles=["admin"], scopes=None, expires_in=timedelta(days=1), by="t")
        app = make_app(semel, tokens=tokens)
        headers = {"authorization": f"Bearer {made.secret}"}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://semel.test", headers=headers) as client:
            for endpoint in CHANGES:
                asked = BODIES.get(endpoint.name, {"reason": WHY})
                for body in extremes_of(endpoint.body):
                    answer = await client.post(f"/api/v1{path_of(endpoint)}", json={**asked, **body})
                    assert answer.status_code in (200, 201, 202, 404, 409, 422), (endpoint.name, body, answer.text)
