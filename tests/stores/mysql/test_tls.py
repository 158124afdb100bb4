"""TLS that was asked for: a server that offers none is refused, in either colour, and not spoken to in plain text."""

import asyncio
from collections.abc import Callable

import pytest

from semel import AsyncSemel, Semel
from semel.errors import StoreUnavailable
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow


def _in_threads(url: str) -> None:
    with Semel(url, connect_timeout=5) as semel:
        semel.read("k", operation="charge")


def _in_tasks(url: str) -> None:
    async def read() -> None:
        async with AsyncSemel(url, connect_timeout=5) as semel:
            await semel.read("k", operation="charge")

    asyncio.run(read())


@pytest.mark.parametrize("read", [_in_threads, _in_tasks], ids=["threads", "tasks"])
@pytest.mark.parametrize("tls", ["ssl=true&ssl_verify=false", "ssl_verify=false"])
def test_a_server_without_tls_is_refused_where_tls_was_asked_for(
    mariadb: Databases, read: Callable[[str], None], tls: str
) -> None:
    ((offered,),) = mariadb.admin("SELECT @@have_ssl")
    if offered == "YES":
        pytest.skip("this server offers TLS")
    read(mariadb.url)
    with pytest.raises(StoreUnavailable, match="SSL"):
        read(f"{mariadb.url}?{tls}")
