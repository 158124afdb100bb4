"""The fixtures of the real servers, and their end with the run.

What always holds: the process that was started by hand ends the servers, after all its workers are done. A server that
is missing is a failure where everything is required (CI=true or SEMEL_REQUIRE_ALL=1), and a visible skip elsewhere.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.durations import processor_seconds_of
from tests.proxy.cut_off import CutOff
from tests.servers import mariadb as mariadb_module
from tests.servers import nats as nats_module
from tests.servers import postgresql as postgresql_module
from tests.servers import rabbitmq as rabbitmq_module
from tests.servers import redis as redis_module
from tests.servers.broker import Broker
from tests.servers.databases import Databases
from tests.servers.mariadb import Mariadb, MariadbServer
from tests.servers.ministack import CREDENTIALS, Ministack, Tables
from tests.servers.mysql import Mysql
from tests.servers.nats import Nats, NatsServer
from tests.servers.postgresql import Postgresql, PostgresqlServer
from tests.servers.programs import ServerMissing
from tests.servers.rabbitmq import Rabbitmq, RabbitmqServer
from tests.servers.redis import Keys, Redis, RedisServer
from tests.servers.redis_cluster import ClusterKeys, RedisCluster, RunningCluster
from tests.servers.redis_cluster import running as running_cluster
from tests.servers.redis_newest import NewestRedis
from tests.servers.redis_sentinel import Watched
from tests.servers.redis_sentinel import running as running_sentinel
from tests.servers.room import Room
from tests.servers.service import Service, not_there
from tests.servers.sqs import Queues, Sqs, cut_off

Handle = TypeVar("Handle")
Running = TypeVar("Running")

_ROOM = pytest.StashKey[Room]()
_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def room(pytestconfig: pytest.Config) -> Room:
    """Where the servers of this run live."""
    return pytestconfig.stash[_ROOM]


@pytest.fixture(scope="session")
def postgresql(room: Room) -> Iterator[Databases]:
    """The PostgreSQL of this run: `.url` is a database of this worker, `.new_database()` makes another."""
    yield from _databases(Postgresql(), room)


@pytest.fixture(scope="session")
def mariadb(room: Room) -> Iterator[Databases]:
    """The MariaDB of this run, in the same form."""
    yield from _databases(Mariadb(), room)


@pytest.fixture(scope="session")
def mysql(room: Room) -> Iterator[Databases]:
    """The MySQL that the environment names or asks for."""
    yield from _databases(Mysql(), room)


@pytest.fixture(scope="session")
def redis_keys(room: Room) -> Iterator[Keys]:
    """The Redis of this run: `.url` leads to keys of this worker, `.empty()` removes them."""
    keys = obtain_or_skip(Redis(), room)
    yield keys
    keys.empty()


@pytest.fixture(scope="session")
def newest_redis_keys(room: Room) -> Iterator[Keys]:
    """The newest Redis that the environment names or asks for, in the same form."""
    keys = obtain_or_skip(NewestRedis(), room)
    yield keys
    keys.empty()


@pytest.fixture(scope="session")
def redis_cluster_keys(room: Room) -> Iterator[ClusterKeys]:
    """The Redis Cluster of this run, in the same form."""
    keys = obtain_or_skip(RedisCluster(), room)
    yield keys
    keys.empty()


@pytest.fixture(scope="session")
def dynamodb(room: Room) -> Iterator[Tables]:
    """What answers as DynamoDB in this run: `.url` is a table of this worker, `.new_table()` makes another."""
    tables = obtain_or_skip(Ministack(), room)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items() if tables.endpoint.url else ():
            patch.setenv(name, value)
        yield tables
        tables.drop_all()


@pytest.fixture(scope="session")
def sqs(room: Room) -> Iterator[Queues]:
    """What answers as SQS and EventBridge in this run: `.url`, and `.new_queue()` makes one."""
    queues = obtain_or_skip(Sqs(), room)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items() if queues.endpoint.url else ():
            patch.setenv(name, value)
        yield queues
        queues.drop_all()


@pytest.fixture(scope="session")
def rabbitmq(room: Room) -> Broker:
    """The RabbitMQ of this run: `.url`, and `.new_name()` for what is made there."""
    return obtain_or_skip(Rabbitmq(), room)


@pytest.fixture(scope="session")
def nats(room: Room) -> Broker:
    """The NATS of this run, in the same form."""
    return obtain_or_skip(Nats(), room)


@pytest.fixture(scope="session")
def start_sqs() -> Callable[..., AbstractContextManager[CutOff]]:
    """`sqs.cut_off` for tests that end connections: a server of one's own, or the same skip as the others."""
    return partial(_or_skip, cut_off)


@pytest.fixture(scope="session")
def start_rabbitmq() -> Callable[..., AbstractContextManager[RabbitmqServer]]:
    """`rabbitmq.running` for tests that kill: a server of one's own, or the same skip as the others."""
    return partial(_or_skip, rabbitmq_module.running)


@pytest.fixture(scope="session")
def start_nats() -> Callable[..., AbstractContextManager[NatsServer]]:
    """`nats.running` in the same form."""
    return partial(_or_skip, nats_module.running)


@pytest.fixture(scope="session")
def start_postgresql() -> Callable[..., AbstractContextManager[PostgresqlServer]]:
    """`postgresql.running` for tests that kill: a server of one's own, or the same skip as the others."""
    return partial(_or_skip, postgresql_module.running)


@pytest.fixture(scope="session")
def start_mariadb() -> Callable[..., AbstractContextManager[MariadbServer]]:
    """`mariadb.running` in the same form."""
    return partial(_or_skip, mariadb_module.running)


@pytest.fixture(scope="session")
def start_redis() -> Callable[..., AbstractContextManager[RedisServer]]:
    """`redis.running` in the same form."""
    return partial(_or_skip, redis_module.running)


@pytest.fixture(scope="session")
def start_redis_cluster() -> Callable[..., AbstractContextManager[RunningCluster]]:
    """`redis_cluster.running` in the same form."""
    return partial(_or_skip, running_cluster)


@pytest.fixture(scope="session")
def start_redis_sentinel() -> Callable[..., AbstractContextManager[Watched]]:
    """`redis_sentinel.running` in the same form."""
    return partial(_or_skip, running_sentinel)


def _databases(service: Service[Databases], room: Room) -> Iterator[Databases]:
    databases = obtain_or_skip(service, room)
    yield databases
    databases.close()
    if databases.log is None:  # one of our own is thrown away with all that is in it, which takes no time
        databases.drop_all()


def obtain_or_skip(service: Service[Handle], room: Room) -> Handle:
    """What a test uses a server by; where there is none the test ends here."""
    try:
        return service.obtain(room)
    except ServerMissing as missing:
        raise verdict(str(missing), optional=service.optional) from None


@contextmanager
def _or_skip(running: Callable[..., AbstractContextManager[Running]], **options: Any) -> Iterator[Running]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running(**options))
        except ServerMissing as missing:
            raise verdict(str(missing)) from None
        yield server


def verdict(reason: str, *, optional: bool = False) -> BaseException:
    """How a test ends without its server: as a skip, or as a failure where a green run means that all was tested."""
    required = os.environ.get("CI") == "true" or os.environ.get("SEMEL_REQUIRE_ALL") == "1"
    return pytest.fail.Exception(reason, pytrace=False) if required and not optional else pytest.skip.Exception(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests on a MySQL that nobody asked for leave one in each class: it says for all that they are skipped."""
    if Mysql.is_asked_for():
        return
    on_mysql = [item for item in items if "mysql" in getattr(item, "fixturenames", ())]
    kept = {item.nodeid.rpartition("::")[0]: item for item in reversed(on_mysql)}
    left_out = set(on_mysql) - set(kept.values())
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_configure(config: pytest.Config) -> None:
    """Take the room that the first process chose, or choose one; neither makes anything yet."""
    chosen = getattr(config, "workerinput", {}).get("room")
    config.stash[_ROOM] = Room(Path(chosen[0]), chosen[1]) if chosen else Room.new()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist which room it is."""
    room = node.config.stash[_ROOM]
    node.workerinput["room"] = (str(room.path), room.owner)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Say in plain sight what was not tested, and where the logs are when something failed."""
    room = config.stash[_ROOM]
    if config.getoption("--durations-by-folder"):
        for name, pid in room.daemons():
            terminalreporter.write_line(f"{processor_seconds_of(pid):8.1f} s of the processor for the server {name}")
    for name, why in not_there(room):
        terminalreporter.write_sep("!", f"NOT TESTED: {name}", yellow=True)
        terminalreporter.write_line(why)
    if exitstatus and any(room.path.glob("*/server.log")):
        config.stash[_FAILED] = True
        terminalreporter.write_line(f"The logs of the servers are kept in {room.logs}.")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers; a worker leaves that to the process that started it."""
    if not hasattr(config, "workerinput") and (room := config.stash.get(_ROOM, None)):
        room.close(keep_logs=config.stash.get(_FAILED, False))
