"""The newest Redis, for those who ask: SEMEL_TEST_NEWEST_REDIS_URL names one, SEMEL_TEST_NEWEST_REDIS=1 fetches one.

What always holds: nothing is fetched unasked, because the version moves.
"""

import os

from tests.servers import unstable
from tests.servers.databases import Endpoint
from tests.servers.programs import ServerMissing
from tests.servers.redis import Redis, RedisClient, RedisServer
from tests.servers.room import Room
from tests.servers.server import Options

_PROGRAM = "redis-check-rdb"
"""Redis is one program under several names, of which this one comes without a service."""
_WISH = "SEMEL_TEST_NEWEST_REDIS"


class NewestRedisServer(RedisServer):
    """One private server of the newest release."""

    def program(self) -> list[str]:
        return unstable.command(self.programs, _PROGRAM, called="redis-server")


class NewestRedis(Redis):
    """How tests come by it."""

    name = "newest-redis"
    variable = "SEMEL_TEST_NEWEST_REDIS_URL"
    # Debian's stable suites have an older one, so a run is complete without.
    optional = True

    @classmethod
    def is_asked_for(cls) -> bool:
        """Whether the environment names one, or wants one to be fetched."""
        return bool(os.environ.get(cls.variable)) or os.environ.get(_WISH) == "1"

    def start(self, room: Room) -> Endpoint:
        if not self.is_asked_for():
            raise ServerMissing(
                "The newest Redis was not asked for, so commands that the one of this machine lacks are not tested. "
                f"Fetch one with {_WISH}=1, or name one: {self.variable}=redis://host/"
            )
        found = unstable.obtain("redis", f"usr/bin/{_PROGRAM}")
        server = NewestRedisServer(found, room.folder(self.name), Options(), RedisClient())
        server.launch()
        return server.endpoint
