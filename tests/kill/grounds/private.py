"""A ground on servers of one's own, which may be killed: they are started for it and are gone with it.

What always holds: every server flushes what it acknowledges, and comes back on its old data at its old address.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import cycle
from typing import Any, Final, NamedTuple

from tests.kill.grounds.ground import Ground, ground_of
from tests.kill.run import Breaking
from tests.servers import mariadb, postgresql, redis
from tests.servers.server import Server

Start = Callable[..., AbstractContextManager[Server]]
STARTS: Final[Mapping[str, Start]] = {
    "postgresql": postgresql.running,
    "mariadb": mariadb.running,
    "redis": redis.running,
}
KINDS: Final = {**{kind: (kind,) for kind in STARTS}, "tiers": ("postgresql", "redis")}
"""Which servers a ground of each kind stands on."""


class Private(NamedTuple):
    """A ground, and the way to kill one of its servers after the other."""

    ground: Ground
    breaking: Breaking


@contextmanager
def private_ground(kind: str, starts: Callable[[str], Start] = STARTS.__getitem__) -> Iterator[Private]:
    """A ground of this kind for the length of the block.

    Raises:
        ServerMissing: there is none on this machine, and none could be installed.
    """
    with ExitStack() as stack:
        servers = {name: stack.enter_context(starts(name)(fsync=True)) for name in KINDS[kind]}
        turns = cycle(servers.items())

        def kill() -> str:
            name, server = next(turns)
            server.kill()
            server.start()
            return name

        yield Private(ground_of(" ".join(_url(server) for server in servers.values())), Breaking(kill))


def _url(server: Any) -> str:
    """Where there are no records yet; a new Redis has nothing in it."""
    return server.endpoint.url if isinstance(server, redis.RedisServer) else server.new_database()
