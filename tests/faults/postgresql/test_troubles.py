"""F37: what the server says when it gives up. A store call is sent again, a handler never, and nothing in `within`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from semel.core.operations import Complete, Fail, Granted, Recorded
from semel.core.record import About, Failure
from semel.errors import (
    RecordUnreadable,
    SchemaOutdated,
    SemelError,
    StoreUnavailable,
    TransactionAborted,
)
from semel.stores.postgresql import PostgresStore
from semel.stores.sql.joined import SqlJoined
from tests.decorated import CallStyle
from tests.faults.callers import Caller
from tests.faults.postgresql.injected import Faults, FaultyPsycopg, FaultyStore
from tests.faults.postgresql.sessions import Outsider
from tests.faults.users import SECOND, Colour, MakeUser, User, claim

pytestmark = pytest.mark.slow

CLAIM, COMPLETE = 'INSERT INTO "semel_record"', "status = 'completed', outcome"
CONFLICTS = ["40001", "40P01"]
# Code, what the store says of a claim that met it, and what of the message tells whether something was recorded.
TYPED: list[tuple[str, type[SemelError], str]] = [
    ("55P03", StoreUnavailable, "nothing was recorded"),
    ("57014", StoreUnavailable, "nothing was recorded"),
    ("57P01", StoreUnavailable, "is not known"),
    ("57P02", StoreUnavailable, "is not known"),
    ("57P03", StoreUnavailable, "is not known"),
    ("08006", StoreUnavailable, "is not known"),
    ("08003", StoreUnavailable, "is not known"),
    ("40003", StoreUnavailable, "is not known"),
    ("25006", StoreUnavailable, "primary"),
    ("42501", StoreUnavailable, "grants"),
    ("53100", StoreUnavailable, "nothing was recorded"),
    ("53200", StoreUnavailable, "nothing was recorded"),
    ("53300", StoreUnavailable, "nothing was recorded"),
    ("58030", StoreUnavailable, "nothing was recorded"),
    ("42P01", SchemaOutdated, "semel migrate"),
    ("42703", SchemaOutdated, "semel migrate"),
    ("XX001", RecordUnreadable, "nothing ran"),
    ("XX002", RecordUnreadable, "nothing ran"),
]
codes = pytest.mark.parametrize(("code", "kind", "said"), TYPED, ids=[code for code, _, _ in TYPED])


def faulty(url: str, colour: Colour, faults: Faults) -> User:
    return User(FaultyStore(url, faults), colour)


@codes
def test_each_code_has_its_type(url: str, colour: Colour, code: str, kind: type[SemelError], said: str) -> None:
    faults = Faults(CLAIM, code)
    with faulty(url, colour, faults) as user, pytest.raises(kind, match=said):
        user.one(claim("k"), Granted)
    assert faults.sent == 1


@pytest.mark.parametrize("code", CONFLICTS)
def test_a_statement_that_lost_a_conflict_is_sent_again(url: str, colour: Colour, code: str) -> None:
    faults = Faults(CLAIM, code, times=3)
    with faulty(url, colour, faults) as user:
        user.one(claim("k"), Granted)
    assert faults.sent == 4


@pytest.mark.parametrize("code", CONFLICTS)
def test_a_conflict_that_does_not_end_is_typed(url: str, colour: Colour, code: str) -> None:
    faults = Faults(CLAIM, code, times=100)
    with faulty(url, colour, faults) as user, pytest.raises(StoreUnavailable, match="nothing was recorded"):
        user.one(claim("k"), Granted)
    assert faults.sent < 10


@pytest.mark.parametrize("statement", [CLAIM, COMPLETE], ids=["claim", "completion"])
@pytest.mark.parametrize(
    ("code", "after"),
    # Only a lost connection leaves open whether it was done.
    [*((code, False) for code in (*CONFLICTS, "55P03", "57P01", "57014", "08006", "53200")),
     ("57P01", True), ("08006", True)],
)  # fmt: skip
def test_a_handler_is_not_run_again_for_what_befell_a_store_call(
    url: str, colour: Colour, call_style: CallStyle, code: str, *, statement: str, after: bool
) -> None:
    faults = Faults(statement, code, after=after)
    ran: list[int] = []

    def handler(attempt: Any) -> str:
        ran.append(attempt.number)
        return "done"

    with Caller(FaultyStore(url, faults), colour, call_style) as caller:
        result = caller.run("k", handler)
    assert (result.value, result.replayed, ran, faults.sent) == ("done", False, [1], 2)


@pytest.mark.parametrize("code", [*CONFLICTS, "55P03", "57014", "57P01", "08006", "25P02"])
def test_nothing_is_sent_again_in_the_transaction_of_a_caller(url: str, code: str) -> None:
    store, faults = PostgresStore(url), Faults(CLAIM, code)
    with User(store, "threads") as user:
        user.completed("other")
    with psycopg.connect(url) as connection:
        joined = SqlJoined(store._context, FaultyPsycopg(faults), connection, lambda: None)
        (answer,) = _answers(joined, store)
    assert isinstance(answer, TransactionAborted), answer
    assert "run all of it again" in str(answer)
    assert faults.sent == 1


def _answers(joined: SqlJoined, store: PostgresStore) -> list[Any]:
    try:
        return joined.perform(store.plan([claim("k")], joined=True))
    except TransactionAborted as aborted:
        return [aborted]


def test_a_value_that_the_server_refuses_fails_alone(user: User, outsider: Outsider) -> None:
    outsider.look("ALTER TABLE semel_record ADD CONSTRAINT refuse CHECK (outcome IS NULL OR outcome <> 'bad')")
    try:
        leases = [answer.lease for answer in user.all([claim(k) for k in "abc"]) if isinstance(answer, Granted)]
        outcomes = [b"good", b"bad", b"good"]
        answers = user.all([Complete(lease, outcome) for lease, outcome in zip(leases, outcomes, strict=True)])
        assert [isinstance(answer, Recorded) for answer in answers] == [True, False, True]
        assert isinstance(answers[1], Exception)
    finally:
        outsider.look("ALTER TABLE semel_record DROP CONSTRAINT refuse")


def test_a_claim_with_a_number_that_does_not_fit_fails_alone(user: User) -> None:
    broken = claim("b", keep=2**60 / SECOND * 8)  # now and this together do not fit a bigint
    answers = user.all([claim("a"), broken, claim("c")])
    assert [isinstance(answer, Granted) for answer in answers] == [True, False, True]


def test_a_text_that_postgresql_cannot_hold_fails_alone(user: User) -> None:
    broken = replace(claim("b"), about=About(subject="\x00"))  # an engine refuses it before it comes here
    answers = user.all([claim("a"), broken, claim("c")])
    assert [isinstance(answer, Granted) for answer in answers] == [True, False, True]
    assert isinstance(answers[1], Exception)


def test_the_text_of_an_error_that_postgresql_cannot_hold_is_made_to_fit(user: User) -> None:
    leases = [answer.lease for answer in user.all([claim(k) for k in "abc"]) if isinstance(answer, Granted)]
    failure = Failure.of(ValueError("\x00\ud800"))
    ended = user.all([Fail(lease, "final", failure, doubtful=False) for lease in leases])
    assert [type(answer) for answer in ended] == [Recorded] * 3


def test_sessions_that_the_administrator_ends_are_replaced(
    url: str, colour: Colour, call_style: CallStyle, outsider: Outsider
) -> None:
    ran: list[int] = []
    with Caller(PostgresStore(url), colour, call_style) as caller:
        caller.run("warm", lambda attempt: "done")

        def handler(attempt: Any) -> str:
            ran.append(attempt.number)
            outsider.look(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name = 'semel' AND datname = current_database()"
            )
            return "done"

        result = caller.run("k", handler)
        assert (result.value, result.replayed) == ("done", False)
        assert caller.run("k", handler).replayed
    assert ran == [1]


def test_the_victim_of_a_real_deadlock_is_sent_again(make_user: MakeUser, outsider: Outsider) -> None:
    user = make_user(lock_timeout=20)
    low, high = sorted((claim("a"), claim("b")), key=lambda one: one.key.digest)
    for one in (low, high):
        user.completed(one.key.value)
    outsider.look("UPDATE semel_record SET expires_us = 1")
    row = "SELECT 1 FROM semel_record WHERE digest = %s FOR UPDATE"
    outsider.execute("SET LOCAL deadlock_timeout = '1h'")  # so that it is the store that finds out, and gives way
    outsider.execute(row, (high.key.digest,))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(user.all, [low, high])
        outsider.until_stores_wait()
        outsider.execute(row, (low.key.digest,))  # granted once the store has given way
        outsider.rollback()
        answers = asked.result()
    assert [type(answer) for answer in answers] == [Granted, Granted]


def test_a_lock_that_is_held_too_long_is_typed_and_leaves_nothing(make_user: MakeUser, outsider: Outsider) -> None:
    user = make_user(lock_timeout=0.1)
    user.completed("k")
    outsider.look("UPDATE semel_record SET expires_us = 1")
    outsider.execute("SELECT 1 FROM semel_record FOR UPDATE")
    with pytest.raises(StoreUnavailable, match="idle in transaction"):
        user.one(claim("k"), Granted)
    outsider.rollback()
    user.one(claim("k"), Granted)


def test_a_statement_that_takes_too_long_is_typed(make_user: MakeUser, outsider: Outsider) -> None:
    make_user().completed("k")  # what is not to be cut off is given the usual time
    user = make_user(statement_timeout=1.0)
    outsider.look("UPDATE semel_record SET expires_us = 1")
    outsider.execute("SELECT 1 FROM semel_record FOR UPDATE")
    with pytest.raises(StoreUnavailable, match="statement_timeout"):
        user.one(claim("k"), Granted)
    outsider.rollback()
    user.one(claim("k"), Granted)
