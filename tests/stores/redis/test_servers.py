"""Servers that cannot keep records are refused, with what to do; none of it runs anything."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from semel.core.operations import Complete, Granted
from semel.errors import StoreUnavailable
from semel.stores.redis import RedisStore, connections
from tests.servers.redis import RedisServer, said
from tests.stores.redis.kit import Asker
from tests.unit.stores.operations import KEYS, Clock, claim

pytestmark = pytest.mark.slow

Start = Callable[..., AbstractContextManager[RedisServer]]


@contextmanager
def asking(colour: type[Asker], url: str) -> Iterator[Asker]:
    asker = colour(RedisStore(url), Clock())
    try:
        yield asker
    finally:
        asker.close()


def refused(asker: Asker) -> str:
    (answer,) = asker.all([claim()])
    assert isinstance(answer, StoreUnavailable), answer
    assert not answer.ran
    return answer.message


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_is_refused(start_redis: Start, colour: type[Asker], policy: str) -> None:
    with (
        start_redis(settings={"maxmemory": "100mb", "maxmemory-policy": policy}) as server,
        asking(colour, server.endpoint.url) as asker,
    ):
        assert "noeviction" in refused(asker)
        with asking(colour, f"{server.endpoint.url}?evicting=allowed") as told:
            assert isinstance(told.all([claim()])[0], Granted)


def test_a_server_that_evicts_from_now_on_is_refused_over_the_connection_that_stands(
    start_redis: Start, colour: type[Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        start_redis(settings={"maxmemory": "100mb", "maxmemory-policy": "noeviction"}) as server,
        asking(colour, server.endpoint.url) as asker,
    ):
        monkeypatch.setattr(connections, "EVERY", 0.0)
        asker.one(claim(KEYS[1], number=2), Granted)
        said(server.endpoint.url, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert "noeviction" in refused(asker)
        said(server.endpoint.url, "CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert isinstance(asker.all([claim()])[0], Granted)


def test_a_server_is_not_looked_at_for_every_round(
    start_redis: Start, colour: type[Asker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "EVERY", 3600.0)
    with start_redis() as server, asking(colour, server.endpoint.url) as asker:
        for number in range(3):
            asker.one(claim(KEYS[number], number=number + 1), Granted)
        told = said(server.endpoint.url, "INFO", "commandstats").decode()
    assert "cmdstat_info:calls=1," in told


def replica_of(primary: RedisServer) -> dict[str, str]:
    """Settings of a replica, without a log: one that writes its first is deaf to the word that it shall end."""
    return {"replicaof": f"127.0.0.1 {primary.port}", "appendonly": "no"}


def test_a_replica_is_refused_before_it_can_answer_absent(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis() as primary, start_redis(settings=replica_of(primary)) as replica:
        with asking(colour, replica.endpoint.url) as asker:
            assert "primary" in refused(asker)
        with asking(colour, primary.endpoint.url) as asker:
            asker.granted()


def test_a_primary_that_became_a_replica_is_looked_at_anew(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis() as server, asking(colour, server.endpoint.url) as asker:
        asker.one(claim(KEYS[1], number=2), Granted)
        said(server.endpoint.url, "REPLICAOF", "127.0.0.1", 1)  # of nobody, so that it keeps what it has
        assert "READONLY" in refused(asker)
        assert "is a replica" in refused(asker)
        said(server.endpoint.url, "REPLICAOF", "NO", "ONE")
        assert isinstance(asker.all([claim()])[0], Granted)


def test_a_full_server_refuses_and_keeps_what_it_has(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis() as server, asking(colour, server.endpoint.url) as asker:
        lease = asker.granted().lease
        said(server.endpoint.url, "CONFIG", "SET", "maxmemory", "1")
        (answer,) = asker.all([Complete(lease, b"x" * 1000)])
        assert isinstance(answer, StoreUnavailable)
        assert "maxmemory" in answer.message
        said(server.endpoint.url, "CONFIG", "SET", "maxmemory", "0")
        record = asker.record()
        assert record is not None
        assert (record.status, record.outcome) == ("running", None)


def test_a_primary_without_the_replicas_it_demands_refuses(start_redis: Start, colour: type[Asker]) -> None:
    with (
        start_redis(settings={"min-replicas-to-write": "1"}) as server,
        asking(colour, server.endpoint.url) as asker,
    ):
        assert "NOREPLICAS" in refused(asker)


def test_a_missing_password_is_told(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis() as server:
        said(server.endpoint.url, "CONFIG", "SET", "requirepass", "word")
        base = server.endpoint.url.removeprefix("redis://")
        with asking(colour, server.endpoint.url) as asker:
            assert "password" in refused(asker)
        with asking(colour, f"redis://:wrong@{base}") as asker:
            assert "password" in refused(asker)
        with asking(colour, f"redis://:word@{base}") as asker:
            asker.granted()


def test_a_missing_permission_is_told(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis() as server:
        said(server.endpoint.url, "ACL", "SETUSER", "ann", "on", ">word", "~other:*", "+@all")
        base = server.endpoint.url.removeprefix("redis://")
        with asking(colour, f"redis://ann:word@{base}") as asker:
            assert "grant" in refused(asker).lower()


def test_the_permissions_that_the_message_names_are_enough(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis() as server:
        said(server.endpoint.url, "ACL", "SETUSER", "ann", "on", ">word", "+ping", "~other:*")
        base = server.endpoint.url.removeprefix("redis://")
        with asking(colour, f"redis://ann:word@{base}") as asker:
            message = refused(asker)
        grants = [word.rstrip(".") for word in message.rpartition("rant ")[2].split() if word[0] in "~&+"]
        grants = ["~semel:*" if word[0] == "~" else "&semel:*" if word[0] == "&" else word for word in grants]
        said(server.endpoint.url, "ACL", "SETUSER", "ann", *grants)
        with asking(colour, f"redis://ann:word@{base}") as asker:
            asker.all([Complete(asker.granted().lease, b"x")])
            assert asker.record() is not None


def test_nobody_there_is_told_and_nothing_was_recorded(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis() as server:
        url = server.endpoint.url
    with asking(colour, url) as asker:
        assert "nothing was recorded" in refused(asker)


def test_what_was_acknowledged_survives_a_kill(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis(fsync=True) as server, asking(colour, server.endpoint.url) as asker:
        lease = asker.granted().lease
        asker.all([Complete(lease, b"x")])
        running = asker.one(claim(KEYS[1], number=2), Granted).lease
        before = asker.record(), asker.record(KEYS[1].digest)
        server.kill()
        server.restart()
        assert (asker.record(), asker.record(KEYS[1].digest)) == before
        (answer,) = asker.all([Complete(running, b"y")])
        assert not isinstance(answer, Exception)


def test_a_server_that_is_gone_and_comes_back_is_used_again(start_redis: Start, colour: type[Asker]) -> None:
    with start_redis(fsync=True) as server, asking(colour, server.endpoint.url) as asker:
        asker.granted()
        server.kill()
        assert isinstance(asker.all([claim(KEYS[1])])[0], StoreUnavailable)
        server.restart()
        assert isinstance(asker.all([claim(KEYS[1])])[0], Granted)
