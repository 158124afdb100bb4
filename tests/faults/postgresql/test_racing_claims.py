"""F33, F34, F35, F38: claims that meet a transaction which is still open, a snapshot that is old, or the sweep."""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from semel.core.operations import (
    AddReplays,
    Checkpoint,
    Complete,
    Erase,
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
from semel.core.record import Step
from semel.errors import InProgress, StoreUnavailable, TransactionAborted
from tests.decorated import CallStyle
from tests.faults.postgresql.sessions import Outsider
from tests.faults.transactions import calling
from tests.faults.users import SECOND, Colour, MakeUser, User, claim, key
from tests.servers.databases import Databases
from tests.within.world import REJECT

pytestmark = pytest.mark.slow

# A row as a writer leaves it that takes no advisory lock: an older release, or a repair by hand.
BARE_INSERT = """
INSERT INTO semel_record (digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us,
    in_doubt_policy, reconcile_after_us, doubtful, attempts, created_us, started_us, updated_us, expires_us, keep_us)
SELECT %s, '', 'charge', 'k', 'running', false, %s, 1, %s, now_us + 60000000, 'rerun', 0, false, 1, now_us, now_us,
    now_us, now_us + 3600000000, 3600000000
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us) AS clock
"""
ERASED = "UPDATE semel_record SET status = 'completed', outcome = '\\x00', scope = '', value = ''"
EXPIRE = "UPDATE semel_record SET expires_us = 1"


def test_a_claim_beside_an_uncommitted_rival_is_answered_at_once(user: User, outsider: Outsider) -> None:
    outsider.claim(claim("k"))
    user.one(claim("k"), Running)


def test_a_claim_after_the_rival_rolled_back_is_granted(user: User, outsider: Outsider) -> None:
    outsider.claim(claim("k"))
    user.one(claim("k"), Running)
    outsider.rollback()
    assert user.one(claim("k"), Granted).lease.fence == 1


def test_a_claim_after_the_rival_committed_finds_it_running(user: User, outsider: Outsider) -> None:
    outsider.claim(claim("k"))
    outsider.commit()
    assert user.one(claim("k"), Running).remaining_us > 30_000_000


@pytest.mark.parametrize(("end", "expected"), [("commit", Running), ("rollback", Granted)])
def test_a_claim_that_waits_for_an_unknown_writer_is_answered_by_what_that_left(
    user: User, outsider: Outsider, end: str, expected: type[Running | Granted]
) -> None:
    mine = claim("k")
    outsider.execute(BARE_INSERT, (mine.key.digest, mine.fingerprint, b"n" * 16))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(user.one, mine, expected)
        outsider.until_stores_wait()
        getattr(outsider, end)()
        asked.result()
    assert outsider.look("SELECT count(*) FROM semel_record") == [(1,)]


def test_a_claim_that_loses_to_an_erasure_brings_nothing_back(user: User, outsider: Outsider) -> None:
    mine = claim("k")
    user.one(claim("k", lease=0), Granted)
    outsider.execute(ERASED)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(user.one, mine, Replay)  # it saw a lease that is over, and met a record that is erased
        outsider.until_stores_wait()
        outsider.commit()
        asked.result()
    assert outsider.look("SELECT scope, value FROM semel_record") == [("", "")]


def test_of_racing_claims_one_is_granted_and_all_are_answered(make_user: MakeUser) -> None:
    users = [make_user() for _ in range(6)]
    keys = [f"k-{number}" for number in range(40)]
    start = threading.Barrier(len(users))

    def race(user: User) -> list[str]:
        mine = [claim(value) for value in keys]
        start.wait()
        answers = [answer for at in range(0, len(mine), 8) for answer in user.all(mine[at : at + 8])]
        assert all(isinstance(answer, (Granted, Running)) for answer in answers), answers
        return [value for value, answer in zip(keys, answers, strict=True) if isinstance(answer, Granted)]

    with ThreadPoolExecutor(len(users)) as pool:
        won = [value for values in pool.map(race, users) for value in values]
    assert sorted(won) == sorted(keys)


def test_the_same_key_twice_in_a_list_is_granted_once(user: User) -> None:
    first, second, again = claim("k"), claim("k"), claim("other")
    answers = user.all([first, second, again, first])
    assert [type(answer) for answer in answers] == [Granted, Running, Granted, Granted]


def test_lists_of_every_kind_in_any_order_never_deadlock(make_user: MakeUser, outsider: Outsider) -> None:
    seconds = itertools.count(1_000)  # each statement is a second later than the one before: leases and records end
    users = [make_user(clock=lambda: next(seconds) * SECOND) for _ in range(8)]
    start = threading.Barrier(len(users))

    def work(user: User, seed: int) -> None:
        chance = random.Random(seed)
        start.wait()
        for _ in range(25):
            keys = [key(f"hot-{value}") for value in chance.sample(range(12), 9)]
            answers = user.all([claim(one.value, lease=20, keep=20) for one in keys])
            leases = [answer.lease for answer in answers if isinstance(answer, Granted)]
            chance.shuffle(leases)
            lists: list[list[Operation]] = [
                [Read(one.digest, waits=True) for one in keys],
                [Renew(lease, 20 * SECOND) for lease in leases],
                [Checkpoint(lease, Step(0, "step", b"done")) for lease in leases],
                [Complete(lease, b"done") for lease in leases],
                [AddReplays(one.digest, 1) for one in keys],
                [Erase(one.digest, "note", invalidates=True) for one in keys[:3]],
                [MarkLapsed(5)],
                [Purge(5)],
            ]
            for operations in lists:
                user.all(operations)

    with ThreadPoolExecutor(len(users)) as pool:
        for done in [pool.submit(work, user, seed) for seed, user in enumerate(users)]:
            done.result()
    for user in users:
        user.close()  # a session reports what it met when it ends, if not before
    sessions = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'semel'"
    while outsider.look(f"SELECT count(*) {sessions}") != [(0,)]:
        pass
    assert outsider.look("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_store_reads_what_is_committed_whatever_the_database_prefers(
    make_user: MakeUser, outsider: Outsider, url: str, level: str
) -> None:
    name = url.rpartition("/")[2]
    outsider.look(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    try:
        user = make_user()
        user.completed("before")
        mine = claim("k")
        outsider.execute(BARE_INSERT, (mine.key.digest, mine.fingerprint, b"n" * 16))
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(user.one, mine, Running)
            outsider.until_stores_wait()
            outsider.commit()
            asked.result()  # under the database's own level this is 40001
    finally:
        outsider.look(f"ALTER DATABASE {name} RESET default_transaction_isolation")


def test_a_caller_whose_snapshot_is_older_than_the_rival_is_told_to_start_over(
    postgresql: Databases, url: str, colour: Colour, call_style: CallStyle
) -> None:
    async def meet_the_rival() -> tuple[Any, list[str]]:
        async with calling("postgresql", postgresql, url, colour, call_style) as world:
            caller = await world.begun("REPEATABLE READ")
            again = functools.partial(world.run, "k", world.writes(caller, "again"))
            await caller.sql("SELECT count(*) FROM semel_record")
            await world.run("k", world.nothing)
            with pytest.raises(TransactionAborted):
                await world.inside(caller.thing, again)
            await caller.rollback()
            await caller.begin("REPEATABLE READ")
            return (await world.inside(caller.thing, again)).value, world.runs

    assert asyncio.run(meet_the_rival()) == ("done", [])


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_claim_of_a_row_that_the_sweep_deletes_is_granted_either_way(
    user: User, outsider: Outsider, end: str
) -> None:
    user.completed("k")
    outsider.execute(EXPIRE)
    outsider.commit()
    outsider.execute("SELECT 1 FROM semel_record FOR UPDATE")
    outsider.execute("DELETE FROM semel_record")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(user.one, claim("k"), Granted)
        outsider.until_stores_wait()
        getattr(outsider, end)()
        asked.result()
    assert outsider.look("SELECT status FROM semel_record") == [("running",)]


def test_a_row_locked_by_somebody_is_replayed_without_waiting(user: User, outsider: Outsider) -> None:
    user.completed("k")
    outsider.execute("SELECT 1 FROM semel_record FOR UPDATE")
    user.one(claim("k"), Replay)


def test_the_sweep_leaves_a_record_that_is_being_claimed(user: User, outsider: Outsider) -> None:
    user.completed("k")
    outsider.look(EXPIRE)
    outsider.claim(claim("k"))
    assert user.one(Purge(10), SweepCount).count == 0
    outsider.commit()
    assert user.one(Purge(10), SweepCount).count == 0
    assert outsider.look("SELECT status FROM semel_record") == [("running",)]


def test_neighbours_of_a_held_key_are_answered_at_once(user: User, outsider: Outsider) -> None:
    outsider.claim(claim("held"))
    answers = user.all([claim("a"), claim("held"), claim("b")])
    assert [type(answer) for answer in answers] == [Granted, Running, Granted]


def test_neighbours_of_a_locked_record_are_written(user: User, outsider: Outsider) -> None:
    answers = user.all([claim("a"), claim("held"), claim("b")])
    leases = [answer.lease for answer in answers if isinstance(answer, Granted)]
    outsider.execute("SELECT 1 FROM semel_record WHERE digest = %s FOR UPDATE", (key("held").digest,))
    renewed = user.all([Renew(lease, 60_000_000) for lease in leases])
    assert [isinstance(answer, Renewed) for answer in renewed] == [True, False, True]
    ended = user.all([Complete(lease, b"done") for lease in leases])
    assert [isinstance(answer, Recorded) for answer in ended] == [True, False, True]
    assert isinstance(ended[1], StoreUnavailable)
    outsider.rollback()
    user.one(Complete(leases[1], b"done"), Recorded)


def test_a_duplicate_of_a_key_in_an_open_transaction_is_told_that_it_is_in_progress(
    postgresql: Databases, url: str, colour: Colour, call_style: CallStyle
) -> None:
    async def ask_twice() -> tuple[Any, list[str]]:
        async with calling("postgresql", postgresql, url, colour, call_style) as world:
            caller = await world.begun()
            again = world.writes(caller, "again")
            await world.inside(caller.thing, functools.partial(world.run, "k", world.nothing))
            with pytest.raises(InProgress):
                await world.run("k", again, policy=REJECT)
            await caller.commit()
            return (await world.run("k", again)).value, world.runs

    assert asyncio.run(ask_twice()) == ("done", [])
