"""Who wins, what is locked and what is sent: the store's own connections on a real server."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from semel.core.key import Key
from semel.core.operations import (
    AddReplays,
    Answer,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    Granted,
    MarkLapsed,
    Operation,
    Purge,
    Read,
    Recorded,
    Renew,
    Renewed,
    Replay,
    Running,
    SweepCount,
)
from semel.core.record import Failure, Lease, Step
from semel.errors import StoreUnavailable
from semel.stores.mysql import MysqlStore
from semel.stores.sql.errors import RowLocked
from tests.stores.mysql.kit import Asker, connected, told
from tests.unit.stores.operations import KEYS, claim, nonce, terms

pytestmark = pytest.mark.slow

OOPS = Failure("builtins.OSError", "oops")
_UNLOCKED = "SELECT 1 FROM semel_record WHERE digest IN (%s, %s) FOR UPDATE SKIP LOCKED"
_DEADLOCKS = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"


def test_a_late_copy_of_a_completed_claim_changes_nothing(asker: Asker) -> None:
    """Without the look that spares the write: only the arbiter is between the copy and the outcome."""
    granted = asker.one(claim(), Granted)
    asker.one(Complete(granted.lease, b"\x01"), Recorded)
    before = asker.record()
    asker.store._context.dialect._sql["unless"] = ""  # type: ignore[attr-defined]  # the dialect of this store
    asker.clock.advance(60)
    asker.one(claim(), Replay)
    assert asker.record() == before


def test_a_claim_sent_again_while_it_runs_keeps_its_fence_and_lease(asker: Asker) -> None:
    first = asker.one(claim(), Granted)
    asker.clock.advance(1)
    assert asker.one(claim(), Granted).lease == first.lease


def test_a_take_over_raises_the_fence_by_one(asker: Asker) -> None:
    asker.one(claim(number=1), Granted)
    asker.clock.advance(60)
    assert asker.one(claim(number=2), Granted).lease.fence == 2


@pytest.mark.parametrize("locked", [False, True], ids=["replay", "locked-by-hand"])
def test_a_claim_that_does_not_win_locks_no_row(asker: Asker, url: str, locked: bool) -> None:
    for key in KEYS[:2]:
        asker.one(Complete(asker.one(claim(key), Granted).lease, b"\x01"), Recorded)
    own = asker.connection()
    told(own, "BEGIN")
    asker.one(claim(KEYS[0], number=2), Replay)
    if locked:  # shows that a lock would be seen
        told(own, "SELECT 1 FROM semel_record WHERE digest = %s FOR UPDATE", KEYS[0].digest)
    with connected(url) as other:
        unlocked = told(other, _UNLOCKED, KEYS[0].digest, KEYS[1].digest)
    told(own, "ROLLBACK")
    assert len(unlocked) == (1 if locked else 2)


def test_eight_threads_on_hot_keys_have_one_winner_each_and_no_deadlock(url: str, asker: Asker) -> None:
    keys = [Key.of(f"hot-{number}", operation="charge") for number in range(24)]
    barrier = threading.Barrier(8)
    answers: list[Answer | Exception] = []

    def work(worker: int) -> None:
        mine = Asker(MysqlStore(url), asker.clock)
        for at in range(0, len(keys), 8):
            barrier.wait()
            answers.extend(mine.all([claim(key, number=worker + 1) for key in keys[at : at + 8]]))
        mine.driver.close()

    with connected(url) as other:
        before = told(other, _DEADLOCKS)
        threads = [threading.Thread(target=work, args=[worker]) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told(other, _DEADLOCKS) == before
    assert {type(answer) for answer in answers} == {Granted, Running}
    won = [answer.record.key for answer in answers if isinstance(answer, Granted)]
    assert sorted(won, key=keys.index) == keys


def _leases(asker: Asker, count: int = 3) -> list[Lease]:
    answers = asker.all([claim(key, number=number) for number, key in enumerate(KEYS[:count], 1)])
    return [answer.lease for answer in answers if isinstance(answer, Granted)]


@pytest.mark.parametrize(
    "asked",
    [
        lambda leases: [claim(lease.key, number=9) for lease in leases],
        lambda leases: [Renew(lease, 1_000_000) for lease in leases],
        lambda leases: [Complete(lease, b"\x01") for lease in leases],
        lambda leases: [Fail(lease, "retry", OOPS, doubtful=False) for lease in leases],
        lambda leases: [Checkpoint(lease, Step(0, "a", b"\x01")) for lease in leases],
        lambda leases: [Read(lease.key.digest) for lease in leases],
        lambda leases: [AddReplays(lease.key.digest, 1) for lease in leases],
    ],
    ids=["claim", "renew", "complete", "fail", "checkpoint", "read", "tally"],
)
def test_a_list_takes_one_round_trip(asker: Asker, monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    leases = _leases(asker)
    sent = _counted(asker, monkeypatch)
    answers = asker.all(asked(leases))
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert len(sent) == 1


def _counted(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    own, sent = asker.connection(), []
    query = own.query

    def counting(sql: Any, *rest: Any, **settings: Any) -> Any:
        sent.append(sql)
        return query(sql, *rest, **settings)

    monkeypatch.setattr(own, "query", counting)
    return sent


def test_what_is_too_large_for_one_packet_goes_one_by_one(asker: Asker) -> None:
    leases = _leases(asker)
    asker.driver._idle[0].largest = 5000  # type: ignore[attr-defined]  # the driver of this store
    answers = asker.all([Complete(lease, b"\x01" * 1000) for lease in leases])
    assert [type(answer) for answer in answers] == [Recorded] * 3


def test_a_key_that_an_open_transaction_writes_is_no_burden_to_its_neighbours(asker: Asker, url: str) -> None:
    asker.record()
    with connected(url) as caller:
        asker.store.join(caller).perform(asker.store.plan([claim(KEYS[0])], joined=True))
        answers = asker.all([claim(key, number=2) for key in KEYS])
        assert [type(answer) for answer in answers] == [Running, Granted, Granted]


def _fail(lease: Lease) -> Fail:
    return Fail(lease, "doubt", OOPS, doubtful=True)


def _checkpoint(lease: Lease) -> Checkpoint:
    return Checkpoint(lease, Step(0, "a", b"\x01"))


@pytest.mark.parametrize(
    ("write", "done"),
    [
        (lambda lease: Renew(lease, 1_000_000), Renewed),
        (lambda lease: Complete(lease, b"\x01"), Recorded),
        (_fail, Recorded),
        (_checkpoint, Recorded),
    ],
    ids=["renew", "complete", "fail", "checkpoint"],
)
def test_a_locked_record_is_told_and_its_neighbours_are_written(asker: Asker, url: str, write: Any, done: Any) -> None:
    leases = _leases(asker)
    with connected(url) as other:
        told(other, "SELECT 1 FROM semel_record WHERE digest = %s FOR UPDATE", leases[0].key.digest)
        answers = asker.all([write(lease) for lease in leases])
        assert [type(answer) for answer in answers] == [RowLocked, done, done]
    asker.one(write(leases[0]), done)


@pytest.mark.parametrize("write", [_fail, _checkpoint], ids=["fail", "checkpoint"])
def test_a_locked_record_is_told_on_an_event_loop_too(asker: Asker, url: str, write: Any) -> None:
    leases = _leases(asker)

    async def ask(operations: list[Operation]) -> list[type]:
        driver = asker.store.async_driver()
        (reply,) = await driver.perform([asker.store.plan(operations, joined=False)])
        await driver.close()
        assert isinstance(reply, list), reply
        return [type(answer) for answer in reply]

    with connected(url) as other:
        told(other, "SELECT 1 FROM semel_record WHERE digest = %s FOR UPDATE", leases[0].key.digest)
        assert asyncio.run(ask([write(lease) for lease in leases])) == [RowLocked, Recorded, Recorded]
    assert asyncio.run(ask([write(leases[0])])) == [Recorded]


def test_a_connection_that_was_killed_is_told_and_replaced(asker: Asker, url: str) -> None:
    asker.record()
    with connected(url) as other:
        told(other, "KILL %s", asker.connection().thread_id())
    with pytest.raises(StoreUnavailable, match="did not answer"):
        asker.record()
    assert asker.record() is None


def test_a_late_worker_in_the_list_of_its_successor_is_not_told_its_success(asker: Asker) -> None:
    (late,) = _leases(asker, 1)
    asker.clock.advance(60)
    lease = asker.one(claim(number=5), Granted).lease
    answers = asker.all([Checkpoint(it, Step(0, "a", b"\x01")) for it in (late, lease)])
    assert [type(answer).__name__ for answer in answers] == ["Lost", "Recorded"]


@pytest.mark.parametrize("sweep", [Purge(10), MarkLapsed(10)], ids=["purge", "lapse"])
def test_a_sweep_leaves_what_somebody_holds_for_the_next_time(asker: Asker, url: str, sweep: Operation) -> None:
    _swept_soon(asker, KEYS[:2], settled=isinstance(sweep, Purge))
    with connected(url) as other:
        told(other, "SELECT 1 FROM semel_record WHERE digest = %s FOR UPDATE", KEYS[0].digest)
        assert [answer.count for answer in asker.all([sweep])] == [1]  # type: ignore[union-attr]  # sweeps have one
    assert [answer.count for answer in asker.all([sweep])] == [1]  # type: ignore[union-attr]  # as above


def _swept_soon(asker: Asker, keys: Sequence[Key], *, settled: bool) -> None:
    asked = [Claim(key, b"f" * 32, nonce(1), terms(lease=1, keep=1), claim().about) for key in keys]
    for answer in asker.all(asked):
        assert isinstance(answer, Granted)
        if settled:
            asker.one(Complete(answer.lease, b"\x01"), Recorded)
    asker.clock.advance(60)


def test_steps_go_with_their_record(asker: Asker, url: str) -> None:
    (lease,) = _leases(asker, 1)
    asker.one(Checkpoint(lease, Step(0, "a", b"\x01")), Recorded)
    asker.one(Complete(lease, b"\x01"), Recorded)
    asker.clock.advance(86_400)
    asker.one(Purge(10), SweepCount)
    with connected(url) as other:
        assert told(other, "SELECT COUNT(*) FROM semel_step") == [(0,)]


def test_values_that_do_not_fit_are_refused_and_their_neighbours_are_kept(asker: Asker) -> None:
    long = Claim(Key("s", "o", "v" * 300, b"d" * 32), b"f" * 32, nonce(1), terms(), claim().about)
    answers = asker.all([long, claim(number=2)])
    assert isinstance(answers[0], Exception)
    assert isinstance(answers[1], Granted)
