"""A ground on a Redis that fails over to a replica which has not got the last writes: what Sentinel cannot rule out.

What always holds: when the primary is killed, it has acknowledged writes that its replica never received.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.kill.grounds.ground import ground_of
from tests.kill.grounds.private import Private
from tests.kill.run import Breaking
from tests.servers.redis import RedisServer, said
from tests.servers.redis_cluster import info, wait
from tests.servers.redis_sentinel import SERVICE, Watched

_DOWN_AFTER = 3000
"""Milliseconds. A replica that was cut off for ten times as long is not promoted, so this leaves it time."""
_BEHIND = 30_000
"""So many bytes of writes the replica lacks; a record takes some 1,000."""


@contextmanager
def failing_over(servers: AbstractContextManager[Watched]) -> Iterator[Private]:
    """The ground; breaking its server makes the replica the primary, which can be done once."""
    with servers as watched:
        failover = _Failover(watched)
        yield Private(ground_of(watched.url), Breaking(failover.kill, failover.is_time))


class _Failover:
    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._has = -1

    def is_time(self) -> bool:
        """Whether the replica lacks enough; when first asked it is cut off."""
        if self._has < 0:
            self._cut_off()
        return _offset(self._watched.primary, "master_repl_offset") > self._has + _BEHIND

    def _cut_off(self) -> None:
        watched = self._watched
        for sentinel in watched.sentinels:
            said(sentinel.endpoint.url, "SENTINEL", "SET", SERVICE, "down-after-milliseconds", _DOWN_AFTER)
        said(watched.replica.endpoint.url, "CONFIG", "SET", "masterauth", "not the password")
        said(watched.primary.endpoint.url, "CLIENT", "KILL", "TYPE", "replica")
        wait(lambda: "master_link_status:down" in info(watched.replica, "replication"), "the end of replication")
        self._has = _offset(watched.replica, "slave_repl_offset")

    def kill(self) -> str:
        """End the primary, and wait until every Sentinel names the replica to whoever asks for it."""
        self._watched.primary.kill()
        wait(self._is_promoted, "the Sentinels to promote the replica")
        return "redis"

    def _is_promoted(self) -> bool:
        question = "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE
        named = {int(said(sentinel.endpoint.url, *question)[1]) for sentinel in self._watched.sentinels}
        return named == {self._watched.replica.port}


def _offset(server: RedisServer, name: str) -> int:
    fields = (line.partition(":") for line in info(server, "replication").splitlines())
    return next(int(value) for field, _, value in fields if field == name)
