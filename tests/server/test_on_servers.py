"""The way of an operator on database servers: what needs a person, a bulk action, the audit chain, tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from semel import AsyncSemel
from semel.server import User
from semel.server.actions import make_actions
from semel.server.attention import needs_of
from semel.server.bulk import BulkActions, BulkRequest
from semel.server.tokens import Tokens
from tests.server.desk import ADMIN, OPERATOR, WHY
from tests.server.test_bulk import prepare
from tests.servers.records import emptied

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> Any:
    databases = request.getfixturevalue(request.param)
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
