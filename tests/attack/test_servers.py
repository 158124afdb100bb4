"""The same attacks on real servers."""

from __future__ import annotations

import pytest

from tests.attack.test_attacks import attack_search
from tests.servers.records import emptied

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("server", ["postgresql", "mariadb", "redis_keys", "dynamodb"])
def test_hostile_text_is_found_as_itself_and_finds_nothing_else_on_servers(
    request: pytest.FixtureRequest, server: str
) -> None:
    found = request.getfixturevalue(server)
    match server:
        case "redis_keys":
            found.empty()
        case "dynamodb":
            found.empty(found.url)
        case _:
            emptied(found, found.url)
    attack_search(found.url)
