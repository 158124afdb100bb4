"""A Redis Cluster of private nodes, and servers watched by Sentinels, for tests.

What always holds: nobody but this machine reaches a node, and all of them are gone when the block is left.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.servers import process
from tests.servers.databases import Endpoint
from tests.servers.redis import Keys, RedisServer, said, start
from tests.servers.room import Room
from tests.servers.server import HOST, Options, ServerBroken
from tests.servers.service import Service

MASTERS = 3
_SLOTS = 16_384
_POLL = 0.02


class ClusterKeys(Keys):
    """Keys of one's own in a cluster."""

    @property
    def nodes(self) -> list[str]:
        """The URLs of the nodes that were there at first."""
        return [f"redis://{node}/" for node in self.endpoint.url.partition("://")[2].split(",")]

    @property
    def url(self) -> str:
        return f"{self.endpoint.url}?{urlencode({'pattern': self.prefix + ':{operation}:{digest}'})}"

    def names(self) -> list[bytes]:
        import redis

        found: list[bytes] = []
        for node in self.nodes:
            with redis.Redis.from_url(node, protocol=2) as client:
                found += client.scan_iter(match=f"{self.prefix}:*", count=1000)
        return found

    def empty(self) -> None:
        import redis

        for node in self.nodes:
            with redis.Redis.from_url(node, protocol=2) as client:
                for key in client.scan_iter(match=f"{self.prefix}:*", count=1000):
                    client.unlink(key)


@dataclass
class RunningCluster:
    """Its nodes, masters first."""

    nodes: list[RedisServer]

    @property
    def url(self) -> str:
        """As the store wants it."""
        return "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def keys(self) -> ClusterKeys:
        """Keys of one's own."""
        return ClusterKeys(Endpoint(self.url))


class RedisCluster(Service[ClusterKeys]):
    """How tests come by a cluster."""

    name = "redis-cluster"
    variable = "SEMEL_TEST_REDIS_CLUSTER_URL"

    def start(self, room: Room) -> Endpoint:
        return Endpoint(formed(room).url, "ours")

    def connect(self, endpoint: Endpoint) -> ClusterKeys:
        return ClusterKeys(endpoint)


def formed(room: Room, replicas: int = 0, settings: Mapping[str, str] | None = None) -> RunningCluster:
    """A cluster of three masters, the first of them with so many replicas; it ends with the room."""
    own = {"cluster-enabled": "yes", "cluster-node-timeout": "1000", **(settings or {})}
    nodes = [start(room, Options(settings=own)) for _ in range(MASTERS + replicas)]
    first = nodes[0]
    for place, node in enumerate(nodes[:MASTERS]):
        begin, end = place * _SLOTS // MASTERS, (place + 1) * _SLOTS // MASTERS - 1
        said(node.endpoint.url, "CLUSTER", "ADDSLOTSRANGE", begin, end)
        said(node.endpoint.url, "CLUSTER", "SET-CONFIG-EPOCH", place + 1)
    for node in nodes[1:]:
        said(node.endpoint.url, "CLUSTER", "MEET", HOST, first.port, first.bus)
    wait(lambda: all(_knows(node, len(nodes)) for node in nodes), "the nodes to meet")
    master = said(first.endpoint.url, "CLUSTER", "MYID").decode()
    for node in nodes[MASTERS:]:
        said(node.endpoint.url, "CLUSTER", "REPLICATE", master)
    wait(lambda: all("master_link_status:up" in info(node, "replication") for node in nodes[MASTERS:]), "replicas")
    return RunningCluster(nodes)


@contextmanager
def running(replicas: int = 0) -> Iterator[RunningCluster]:
    """A private cluster for the length of the block.

    Raises:
        ServerMissing: there is no Redis on this machine, and none could be installed.
    """
    own = Room.new()
    try:
        yield formed(own, replicas)
    finally:
        own.close()


def info(node: RedisServer, section: str) -> str:
    """What a node says of itself."""
    return str(said(node.endpoint.url, "INFO", section).decode())


def is_primary(node: RedisServer) -> bool:
    """Whether a node decides by itself. One that changes its role hangs up on whoever asks meanwhile."""
    import redis

    try:
        return "role:master" in info(node, "replication")
    except redis.ConnectionError:
        return False


def await_copy(primary: RedisServer, replica: RedisServer) -> None:
    """Wait until a replica has all that its primary has. WAIT would look at the writes of its own connection alone."""
    wanted = _offset(primary, "master_repl_offset")
    wait(lambda: _offset(replica, "slave_repl_offset") >= wanted, "the replica to have all writes")


def _offset(node: RedisServer, name: str) -> int:
    [line] = [line for line in info(node, "replication").splitlines() if line.startswith(f"{name}:")]
    return int(line.partition(":")[2])


def _knows(node: RedisServer, count: int) -> bool:
    told = _cluster_info(node)
    return told.get("cluster_state") == "ok" and told.get("cluster_known_nodes") == str(count)


def _cluster_info(node: RedisServer) -> dict[str, str]:
    lines = said(node.endpoint.url, "CLUSTER", "INFO").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def wait(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds of servers that find each other by themselves."""
    deadline = time.monotonic() + process.LONG
    while not holds():
        if time.monotonic() > deadline:
            raise ServerBroken(f"Waited {process.LONG:.0f} s in vain for {what}.")
        time.sleep(_POLL)
