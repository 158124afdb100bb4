"""A ground on a Redis that fails over to a replica which has not got the last writes: what Sentinel cannot rule out.

What always holds: when the primary is killed, it has acknowledged writes that its replica never received.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from tests.kill.grounds.ground import ground_of
from tests.kill.grounds.private import Private
from tests.kill.run import Breaking
from tests.servers.redis import RedisServer, said
from tests.servers.redis_cluster import info, wait
from tests.servers.redis_sentinel import SERVICE, Watched

_DOWN_AFTER = 3000
"""Milliseconds. A replica that was cut off for ten times as long is not promoted, so this leaves it time."""
_BEHIND = 20_000
"""So many bytes of writes the replica lacks; a record is some 600."""


@contextmanager
def failing_over(servers: AbstractContextManager[Watched]) -> Iterator[Private]:
    """The ground; breaking its server makes the replica the primary, which can be done once."""
    with servers as watched:

        def fail_over() -> str:
            watched.primary.kill()
            wait(lambda: _is_promoted(watched), "the Sentinels to promote the replica")
            return "redis"

        yield Private(ground_of(watched.url), Breaking(fail_over, partial(_cut_off, watched)))


def _cut_off(watched: Watched) -> None:
    """End replication, and wait until much more was written."""
    for sentinel in watched.sentinels:
        said(sentinel.endpoint.url, "SENTINEL", "SET", SERVICE, "down-after-milliseconds", _DOWN_AFTER)
    said(watched.replica.endpoint.url, "CONFIG", "SET", "masterauth", "not the password")
    said(watched.primary.endpoint.url, "CLIENT", "KILL", "TYPE", "replica")
    got = _offset(watched.replica, "slave_repl_offset")
    wait(lambda: _offset(watched.primary, "master_repl_offset") > got + _BEHIND, "writes that the replica lacks")


def _is_promoted(watched: Watched) -> bool:
    """Whether every Sentinel names the replica to whoever asks for the primary."""
    question = "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE
    named = {int(said(sentinel.endpoint.url, *question)[1]) for sentinel in watched.sentinels}
    return named == {watched.replica.port}


def _offset(server: RedisServer, name: str) -> int:
    fields = (line.partition(":") for line in info(server, "replication").splitlines())
    return next(int(value) for field, _, value in fields if field == name)
