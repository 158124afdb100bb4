"""Who is told in a transaction that a key is in progress, and how long anybody waits for a locked record."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pymysql
import pytest

from semel.core.key import Key
from semel.core.operations import (
    Claim,
    Complete,
    Erase,
    Erased,
    Fail,
    Granted,
    JoinTransaction,
    Operation,
    Recorded,
    Reopen,
    Reopened,
    Replay,
    Resolve,
    Resolved,
    Running,
    TransactionJoined,
)
from semel.core.record import Failure, Status
from semel.errors import StoreUnavailable, TransactionAborted
from semel.stores.mysql import MysqlStore
from semel.stores.mysql.dialect import gates_of
from semel.stores.mysql.settings import address
from semel.stores.sql.errors import RowLocked
from semel.stores.sql.settings import Settings
from tests.servers.databases import Databases
from tests.stores.mysql.kit import Asker, Connection, connected, told
from tests.unit.stores.operations import KEYS, Clock, claim, nonce

pytestmark = pytest.mark.slow

KEY = KEYS[0]
TURNS = 4
LONG = "SET innodb_lock_wait_timeout = 100"
"""Whoever waits for a lock in spite of all runs into the time limit of the test."""


NEIGHBOURS = ("n-7088", "n-60467", "n-222758", "n-12296")
"""Keys that share one gate of the first turn with `KEY`, by its place."""


def neighbour(place: int) -> Key:
    """Another key that shares the gate at this place with `KEY`, and no other."""
    key = Key.of(NEIGHBOURS[place], operation="charge", scope="tenant-0")
    own, other = gates_of(KEY.digest, 0), gates_of(key.digest, 0)
    assert own[place] == other[place], "these two have nothing to do with each other"
    assert len(set(own) & set(other)) == 1
    return key


class Transactions:
    """Callers' transactions on a store."""

    def __init__(self, asker: Asker, url: str, isolation: str) -> None:
        self._asker = asker
        self._url = url
        self._isolation = isolation

    @contextmanager
    def begun(self) -> Iterator["Transaction"]:
        setting = f"SET SESSION TRANSACTION ISOLATION LEVEL {self._isolation}"
        with connected(self._url, init_command=setting) as connection:
            told(connection, LONG)
            yield Transaction(self._asker, connection)


class Transaction:
    """One of them."""

    def __init__(self, asker: Asker, connection: Connection) -> None:
        self._store = asker.store
        self.connection = connection
        self._joined = asker.store.join(connection)

    def ask(self, operation: Operation) -> Any:
        (answer,) = self._joined.perform(self._store.plan([operation], joined=True))
        return answer

    def grant(self, asked: Claim) -> Granted:
        answer = self.ask(asked)
        assert isinstance(answer, Granted), answer
        return answer

    def hold_gates(self, *stripes: int) -> None:
        """Hold gates, as any number of other keys may do."""
        for stripe in stripes:
            told(self.connection, "SELECT 1 FROM semel_gate WHERE stripe = %s FOR UPDATE", stripe)


@pytest.fixture(params=["READ COMMITTED", "REPEATABLE READ"])
def transactions(request: pytest.FixtureRequest, asker: Asker, url: str) -> Transactions:
    return Transactions(asker, url, request.param)


@pytest.mark.parametrize("place", range(4))
def test_another_key_that_shares_a_gate_is_granted(transactions: Transactions, place: int) -> None:
    with transactions.begun() as first, transactions.begun() as second:
        first.grant(claim(neighbour(place)))
        granted = second.grant(claim(number=2))
        assert isinstance(second.ask(Complete(granted.lease, b"\x01")), Recorded)
        second.connection.commit()


@pytest.mark.parametrize("place", range(4))
def test_the_same_key_is_refused_at_once_while_another_one_shares_a_gate(
    transactions: Transactions, place: int
) -> None:
    with transactions.begun() as other, transactions.begun() as first, transactions.begun() as second:
        other.grant(claim(neighbour(place)))
        first.grant(claim(number=2))
        assert isinstance(second.ask(claim(number=3)), Running)


@pytest.mark.parametrize("place", range(4))
def test_the_same_key_is_refused_at_once_after_another_one_has_let_go_of_the_gate(
    transactions: Transactions, place: int
) -> None:
    with transactions.begun() as other, transactions.begun() as first, transactions.begun() as second:
        other.grant(claim(neighbour(place)))
        first.grant(claim(number=2))
        other.connection.rollback()
        assert isinstance(second.ask(claim(number=3)), Running)
        told(second.connection, "INSERT INTO semel_meta VALUES ('mine', 'still usable')")


def test_a_refused_rival_runs_in_the_same_transaction_once_the_first_is_gone(transactions: Transactions) -> None:
    with transactions.begun() as other, transactions.begun() as first, transactions.begun() as second:
        other.grant(claim(neighbour(0)))
        first.grant(claim(number=2))
        other.connection.rollback()
        assert isinstance(second.ask(claim(number=3)), Running)
        first.connection.rollback()
        second.grant(claim(number=4))


def test_a_refused_rival_is_given_the_outcome_once_the_first_has_committed(transactions: Transactions) -> None:
    with transactions.begun() as other, transactions.begun() as first, transactions.begun() as second:
        other.grant(claim(neighbour(0)))
        granted = first.grant(claim(number=2))
        other.connection.rollback()
        assert isinstance(second.ask(claim(number=3)), Running)
        first.ask(Complete(granted.lease, b"\x01"))
        first.connection.commit()
        assert isinstance(second.ask(claim(number=4)), Replay)


@pytest.mark.parametrize("turns", range(1, TURNS + 1))
def test_a_key_is_granted_however_many_of_its_turns_have_a_gate_that_is_held(
    transactions: Transactions, turns: int
) -> None:
    with transactions.begun() as others, transactions.begun() as first:
        others.hold_gates(*(gates_of(KEY.digest, turn)[turn % 4] for turn in range(turns)))
        first.grant(claim())


@pytest.mark.parametrize("turns", range(1, TURNS))
def test_a_rival_is_refused_at_once_whatever_gates_others_have_let_go_of(
    transactions: Transactions, turns: int
) -> None:
    with transactions.begun() as others, transactions.begun() as first, transactions.begun() as second:
        others.hold_gates(*(gates_of(KEY.digest, turn)[turn % 4] for turn in range(turns)))
        first.grant(claim())
        others.connection.rollback()
        assert isinstance(second.ask(claim(number=2)), Running)


@pytest.mark.parametrize("place", range(4))
def test_a_claim_that_met_a_shared_gate_is_in_the_way_of_no_key_beside_it(
    transactions: Transactions, asker: Asker, place: int
) -> None:
    """To look for a record that is not there locks the gap in a transaction at REPEATABLE READ."""
    with transactions.begun() as other, transactions.begun() as first, transactions.begun() as second:
        other.grant(claim(neighbour(place)))
        first.grant(claim(number=2))
        other.connection.rollback()
        assert isinstance(second.ask(claim(number=3)), Running)
        for number, key in enumerate(KEYS[1:], 4):
            asker.one(claim(key, number=number), Granted)


@pytest.mark.parametrize("place", range(4))
def test_a_step_is_let_in_though_another_key_shares_a_gate(
    transactions: Transactions, asker: Asker, place: int
) -> None:
    lease = asker.one(claim(), Granted).lease
    with transactions.begun() as other, transactions.begun() as first, transactions.begun() as second:
        other.grant(claim(neighbour(place), number=2))
        assert isinstance(first.ask(JoinTransaction(lease)), TransactionJoined)
        other.connection.rollback()
        assert isinstance(second.ask(claim(number=3)), Running)


def test_a_step_is_let_in_however_many_gates_are_held(transactions: Transactions, asker: Asker) -> None:
    lease = asker.one(claim(), Granted).lease
    with transactions.begun() as others, transactions.begun() as first:
        others.hold_gates(*(gates_of(KEY.digest, turn)[turn] for turn in range(TURNS)))
        assert isinstance(first.ask(JoinTransaction(lease)), TransactionJoined)


def test_a_step_whose_record_is_locked_for_a_moment_is_told_so_and_has_lost_nothing(
    transactions: Transactions, asker: Asker, url: str
) -> None:
    """A renewal of the lease locks it, too."""
    lease = asker.one(claim(), Granted).lease
    with connected(url) as foreign, transactions.begun() as first:
        told(foreign, "SELECT 1 FROM semel_record FOR UPDATE")
        assert isinstance(first.ask(JoinTransaction(lease)), RowLocked)
        foreign.rollback()
        assert isinstance(first.ask(JoinTransaction(lease)), TransactionJoined)


def test_one_of_many_who_claim_at_the_same_instant_beside_a_held_gate_runs(asker: Asker, url: str) -> None:
    asker.record()
    start = threading.Barrier(8, timeout=60)
    ran: list[int] = []
    with connected(url) as beside:
        Transaction(asker, beside).hold_gates(gates_of(KEY.digest, 0)[1])

        def work(number: int) -> None:
            with connected(url) as connection:
                transaction = Transaction(asker, connection)
                start.wait()
                answer = transaction.ask(claim(number=number))
                while isinstance(answer, (Running, TransactionAborted)):
                    connection.rollback()
                    answer = transaction.ask(claim(number=number))
                if isinstance(answer, Granted):
                    ran.append(number)
                    transaction.ask(Complete(answer.lease, b"\x01"))
                connection.commit()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(ran) == 1, f"{len(ran)} of 8 rivals ran"


class Counting(pymysql.connections.Connection):
    """A caller's connection that notes what is sent through it."""

    sent: list[str]

    def query(self, sql: Any, unbuffered: bool = False) -> Any:
        if "sent" in vars(self):
            self.sent.append(sql.rpartition("FOR */")[2].split()[0])
        return super().query(sql, unbuffered)


def is_mysql_itself(server: Databases) -> bool:
    return "MariaDB" not in server.admin("SELECT VERSION()")[0][0]


def test_a_first_run_adds_four_statements_and_two_of_its_mark(asker: Asker, url: str, server: Databases) -> None:
    asker.record()
    claim_statements = ["INSERT", "SELECT"]
    if is_mysql_itself(server):
        claim_statements = ["SET", *claim_statements, "SET"]  # it cannot limit the wait of a single statement
    connection = Counting(**address(Settings.of(url)))
    try:
        connection.sent = []
        transaction = Transaction(asker, connection)
        transaction.ask(Complete(transaction.grant(claim()).lease, b"\x01"))
        assert connection.sent == [*claim_statements, "SAVEPOINT", "RELEASE", "UPDATE", "SELECT"]
    finally:
        connection.close()


def test_a_claim_waits_for_a_locked_record_no_longer_than_lock_timeout_and_changes_no_setting(
    url: str, clock: Clock
) -> None:
    asker = Asker(MysqlStore(url, clock=clock, lock_timeout=0.2), clock)
    asker.one(claim(), Granted)
    with connected(url) as foreign, connected(url) as connection:
        told(foreign, "SELECT 1 FROM semel_record FOR UPDATE")
        told(connection, LONG)
        began = monotonic()
        with pytest.raises(TransactionAborted, match="run all of it again"):
            Transaction(asker, connection).ask(claim(number=2))
        assert monotonic() - began < 50, "it waited for the time limit of the caller's session"
        assert told(connection, "SELECT @@innodb_lock_wait_timeout") == [(100,)]
    asker.driver.close()


def test_a_claim_that_meets_no_lock_leaves_the_limit_of_the_session_as_it_was(asker: Asker, url: str) -> None:
    asker.record()
    with connected(url) as connection:
        told(connection, LONG)
        Transaction(asker, connection).grant(claim())
        assert told(connection, "SELECT @@innodb_lock_wait_timeout") == [(100,)]


def settle(asker: Asker) -> None:
    asker.one(Complete(asker.one(claim(), Granted).lease, b"\x01"), Recorded)


def doubt(asker: Asker) -> None:
    asker.one(Fail(asker.one(claim(), Granted).lease, "doubt", Failure("E", "e"), True), Recorded)


def end_for_good(asker: Asker) -> None:
    asker.one(Fail(asker.one(claim(), Granted).lease, "final", Failure("E", "e"), False), Recorded)


DECISIONS: dict[str, tuple[Callable[[Asker], None], Operation, type]] = {
    "erase": (settle, Erase(KEY.digest, "note"), Erased),
    "resolve": (doubt, Resolve(KEY.digest, nonce(9), Status.CANCELLED, None, "note"), Resolved),
    "reopen": (end_for_good, Reopen(KEY.digest, nonce(9), nonce(1), "note"), Reopened),
}
decisions = pytest.mark.parametrize("decision", DECISIONS)


def own_lock_timeout(asker: Asker) -> int:
    ((seconds,),) = told(asker.connection(), "SELECT @@innodb_lock_wait_timeout")
    return int(seconds)


@decisions
def test_a_decision_waits_for_a_locked_record_no_longer_than_lock_timeout(
    url: str, clock: Clock, decision: str
) -> None:
    prepare, operation, _ = DECISIONS[decision]
    asker = Asker(MysqlStore(url, clock=clock, lock_timeout=0.2), clock)
    prepare(asker)
    before = asker.record()
    usual = own_lock_timeout(asker)
    with connected(url) as foreign:
        told(foreign, "SELECT 1 FROM semel_record FOR UPDATE")
        (answer,) = asker.perform(asker.store.plan([operation], joined=False))[0]  # type: ignore[misc]
        assert isinstance(answer, StoreUnavailable)
        assert answer.conflict
        assert "nothing was recorded" in answer.message
    assert asker.record() == before
    assert own_lock_timeout(asker) == usual, "other statements of this connection would wait as long"
    asker.driver.close()


@decisions
def test_a_decision_is_carried_out_once_the_lock_is_gone(url: str, clock: Clock, decision: str) -> None:
    prepare, operation, kind = DECISIONS[decision]
    asker = Asker(MysqlStore(url, clock=clock, lock_timeout=10), clock)
    prepare(asker)
    usual = own_lock_timeout(asker)
    answers: list[Any] = []
    decide = threading.Thread(target=lambda: answers.append(asker.one(operation, kind)))
    with connected(url) as foreign, connected(url, autocommit=True) as watching:
        told(foreign, "SELECT 1 FROM semel_record FOR UPDATE")
        decide.start()
        until = monotonic() + 9
        while told(watching, "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")[0][1] == "0":
            assert monotonic() < until, "nobody waits"
        foreign.rollback()
        decide.join(60)
    assert answers, "the decision was given up"
    assert own_lock_timeout(asker) == usual
    asker.driver.close()
