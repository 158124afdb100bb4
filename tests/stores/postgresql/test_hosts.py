"""A list of hosts in a PostgreSQL URL, through both client libraries and under every release of Python."""

from urllib.parse import urlsplit

import pytest

from semel import AsyncSemel, Semel
from tests.servers.databases import Databases
from tests.strict_urlsplit import make_urlsplit_strict


@pytest.fixture
def listed(postgresql: Databases, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL that names an IPv6 host on which nothing listens, then the real one; its password contains a bracket."""
    parts = urlsplit(postgresql.new_database())
    user = parts.username or "postgres"
    password = parts.password or "p[w"  # not asked for on the loopback interface
    make_urlsplit_strict(monkeypatch)
    return f"postgresql://{user}:{password}@[::1]:1,{parts.hostname}:{parts.port}{parts.path}"


def test_psycopg_takes_the_first_host_that_answers(listed: str) -> None:
    with Semel(listed) as semel:
        assert semel.run("k-1", lambda: 7, operation="o", fingerprint=None).value == 7


@pytest.mark.anyio
@pytest.mark.parametrize("settings", ["", "?pooled=true&listen=false"], ids=["direct", "pooled"])
async def test_asyncpg_takes_the_first_host_that_answers(listed: str, settings: str) -> None:
    async def seven() -> int:
        return 7

    async with AsyncSemel(f"{listed}{settings}") as semel:
        assert (await semel.run("k-1", seven, operation="o", fingerprint=None)).value == 7
