"""A Redis primary with a replica, watched by three Sentinels, for tests.

What always holds: nobody but this machine reaches them, and all are gone when the block is left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.redis import RedisClient, RedisServer, said, start
from tests.servers.redis_cluster import info, wait
from tests.servers.room import Room
from tests.servers.server import HOST, Options

SERVICE = "main"
_SENTINELS = 3


class SentinelServer(RedisServer):
    """One Sentinel. It rewrites its own configuration."""

    primary: RedisServer

    def command(self) -> list[str]:
        settings = {
            "port": self.port,
            "bind": HOST,
            "dir": self.data,
            "sentinel monitor": f"{SERVICE} {HOST} {self.primary.port} 2",
            "sentinel down-after-milliseconds": f"{SERVICE} 500",
            "sentinel failover-timeout": f"{SERVICE} 3000",
        }
        note = self.data / "sentinel.conf"
        if not note.exists():
            self.prepare_with(["sh", "-c", 'printf "%s\\n" "$@" > ' + str(note), "-", *map(" ".join, _lines(settings))])
        return [*self.program(), str(note), "--sentinel"]

    def where_its_data_is(self) -> str:
        told = said(self.endpoint.url, "INFO", "server").decode().splitlines()
        return next(str(Path(line.partition(":")[2]).parent) for line in told if line.startswith("config_file:"))


def _lines(settings: dict[str, object]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in settings.items()]


@dataclass
class Watched:
    """The servers and who watches them."""

    primary: RedisServer
    replica: RedisServer
    sentinels: list[SentinelServer]

    @property
    def url(self) -> str:
        """As the store wants it."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"


@contextmanager
def running() -> Iterator[Watched]:
    """Private servers for the length of the block.

    Raises:
        ServerMissing: there is no Redis on this machine, and none could be installed.
    """
    own = Room.new()
    try:
        primary = start(own, Options())
        replica = start(own, Options(settings={"replicaof": f"{HOST} {primary.port}"}))
        wait(lambda: "master_link_status:up" in info(replica, "replication"), "the replica")
        sentinels = [_sentinel(own, primary) for _ in range(_SENTINELS)]
        wait(lambda: all(_sees_all(sentinel) for sentinel in sentinels), "the Sentinels to meet")
        yield Watched(primary, replica, sentinels)
    finally:
        own.close()


def _sentinel(room: Room, primary: RedisServer) -> SentinelServer:
    sentinel = SentinelServer(primary.programs, room.folder("sentinel"), Options(), RedisClient())
    sentinel.primary = primary
    sentinel.launch()
    return sentinel


def _sees_all(sentinel: SentinelServer) -> bool:
    told = said(sentinel.endpoint.url, "SENTINEL", "MASTER", SERVICE)
    fields = dict(zip(told[::2], told[1::2], strict=True))
    return bool(fields[b"num-slaves"] == b"1" and fields[b"num-other-sentinels"] == b"2")
