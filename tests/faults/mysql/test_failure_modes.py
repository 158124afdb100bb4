"""F41 to F47 on MariaDB: gap locks, victims, snapshots, collations, counted rows, truncation, missing rollback."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from semel.core.operations import (
    Checkpoint,
    Complete,
    Erase,
    Erased,
    Granted,
    Purge,
    Recorded,
    Renew,
    Renewed,
    Replay,
    Running,
)
from semel.core.record import Step
from semel.errors import SemelError
from tests.decorated import CallStyle
from tests.faults.mysql.sessions import TellingStore
from tests.faults.transactions import calling
from tests.faults.users import SECOND, Colour, MakeUser, User, claim
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow


def test_new_keys_in_the_order_of_time_never_deadlock(url: str) -> None:
    victims: list[Exception] = []
    start = threading.Barrier(8)

    def insert(number: int) -> int:
        granted = 0
        with User(TellingStore(url, victims), "threads") as user:
            start.wait()
            for turn in range(25):
                keys = [f"{time.time_ns():020}-{number}-{turn}-{one}" for one in range(4)]
                answers = user.all([claim(key) for key in keys])
                leases = [answer.lease for answer in answers if isinstance(answer, Granted)]
                granted += len(leases)
                user.all([Complete(lease, b"done") for lease in leases])
        return granted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(insert, range(8))) == 8 * 25 * 4
    assert victims == []


def test_erasing_beside_claims_steps_and_the_sweep_never_deadlocks(url: str) -> None:
    victims: list[Exception] = []
    start = threading.Barrier(6)

    def work(number: int) -> int:
        erased = 0
        with User(TellingStore(url, victims), "threads") as user:
            start.wait()
            for turn in range(25):
                keys = [f"hot-{(number + turn + one) % 7}" for one in range(4)]
                answers = user.all([claim(key, keep=0.001) for key in keys])  # over at once, so claimed again and again
                leases = [answer.lease for answer in answers if isinstance(answer, Granted)]
                user.all([Checkpoint(lease, Step(0, "step", b"done")) for lease in leases])
                user.all([Complete(lease, b"done") for lease in leases])
                answers = user.all([Erase(lease.key.digest, "note", invalidates=True) for lease in leases])
                erased += sum(isinstance(answer, Erased) for answer in answers)
                user.all([Purge(3)])
        return erased

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(work, range(6))) > 0
    assert victims == []


def test_of_two_that_meet_an_owner_who_rolls_back_one_is_granted(
    make_user: MakeUser, mariadb: Databases, url: str, colour: Colour, call_style: CallStyle
) -> None:
    first, second = make_user(), make_user()

    def ask(user: User) -> Any:
        return type(user.all([claim("k")])[0])

    async def own_and_roll_back() -> list[Any]:
        async with calling("mariadb", mariadb, url, colour, call_style) as world:
            owner = await world.begun()
            await world.inside(owner.thing, functools.partial(world.run, "k", world.nothing))
            met = [await asyncio.to_thread(ask, user) for user in (first, second)]
            await owner.rollback()
            return met

    assert asyncio.run(own_and_roll_back()) == [Running, Running]
    start = threading.Barrier(2)

    def race(user: User) -> Any:
        start.wait()
        return ask(user)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(race, (first, second)))
    assert sorted(answers, key=str) == [Granted, Running]


def test_an_old_snapshot_of_the_caller_does_not_hide_an_outcome(
    mariadb: Databases, url: str, colour: Colour, call_style: CallStyle
) -> None:
    async def look_back() -> tuple[Any, list[str]]:
        async with calling("mariadb", mariadb, url, colour, call_style) as world:
            caller = await world.begun("REPEATABLE READ")
            await caller.sql("SELECT count(*) FROM semel_record")
            await world.run("k", world.nothing)
            again = functools.partial(world.run, "k", world.writes(caller, "again"))
            return (await world.inside(caller.thing, again)).value, world.runs

    assert asyncio.run(look_back()) == ("done", [])


@pytest.mark.parametrize("other", ["KEY-1", "kéy-1", "key-1 "], ids=["case", "accent", "space"])
def test_keys_that_a_collation_takes_for_one_are_two(user: User, other: str) -> None:
    user.completed("key-1")
    try:
        user.one(claim(other), Granted)
    except SemelError as refused:
        assert refused.code == "key_invalid"  # noqa: PT017 - a key may be refused, but never be taken for another
    user.one(claim("key-1"), Replay)


def test_a_renewal_that_changes_nothing_is_a_success(make_user: MakeUser) -> None:
    user = make_user(clock=lambda: 1_900_000_000_000_000)  # the clock stands still, so the row stays as it is
    granted = user.one(claim("k"), Granted)
    for _ in range(3):
        user.one(Renew(granted.lease, 60_000_000), Renewed)
    user.one(Complete(granted.lease, b"done"), Recorded)
    user.one(Complete(granted.lease, b"done"), Recorded)


def test_what_does_not_fit_is_refused_and_not_cut(user: User, mariadb: Databases, url: str) -> None:
    mariadb.admin("SET GLOBAL sql_mode = ''")
    try:
        answers = user.all([claim("a"), claim("b", keep=2**60 / SECOND * 8), claim("c")])
    finally:
        mariadb.admin("SET GLOBAL sql_mode = DEFAULT")
    assert [isinstance(answer, Granted) for answer in answers] == [True, False, True]
    assert mariadb.admin("SELECT count(*) FROM semel_record", url) == [(2,)]


def test_the_tables_roll_back(user: User, mariadb: Databases, url: str) -> None:
    user.completed("k")
    found = mariadb.admin("SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = DATABASE()", url)
    assert found == [("InnoDB",)]
