"""Celery on RabbitMQ, with a worker of processes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from secrets import token_hex

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from semel import Policy
from semel.errors import FailedBefore, InDoubt, KeyReused
from tests.docs.pages import page, table
from tests.events.celery_cases import CeleryCases, running_worker, until, value_of
from tests.events.celery_program import FAILED, LEASE, SENT_AGAIN, Application, Settings
from tests.events.taps import parse_celery, tap
from tests.servers.broker import Broker
from tests.servers.databases import Databases
from tests.servers.redis import RedisServer


@pytest.fixture(scope="module")
def program(
    rabbitmq: Broker,
    postgresql: Databases,
    start_redis: Callable[..., AbstractContextManager[RedisServer]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Application]:
    with start_redis() as notes:
        settings = Settings(rabbitmq.url, rabbitmq.new_name(), notes.endpoint.url, postgresql.new_database())
        with running_worker(settings, tmp_path_factory.mktemp("worker") / "log") as program:
            yield program


class TestRabbitmq(CeleryCases):
    """Processes."""

    def test_each_process_has_connections_of_its_own(self, program: Application, name: str) -> None:
        sent = [program.by_id.delay(name) for _ in range(120)]
        assert len({value_of(result) for result in sent}) == 120
        assert len(set(program.noted("did", name))) == 3, "not every process of the pool took part"

    def test_a_process_that_is_killed_is_taken_over(self, program: Application, name: str) -> None:
        assert value_of(program.killed.delay(name)) == "first second"
        assert program.noted("entered", name) == ["1 False", "2 True"]
        assert program.noted("did", name) == ["first", "second"]

    def test_a_soft_time_limit_leaves_a_doubt(self, program: Application, name: str) -> None:
        with pytest.raises(SoftTimeLimitExceeded):
            value_of(program.soft.delay(name))
        record = program.semel.read(name, operation="soft")
        assert record is not None
        assert record.status == "in_doubt"
        assert value_of(program.soft.delay(name)) == "done"

    def test_what_a_hard_time_limit_killed_is_taken_over(self, program: Application, name: str) -> None:
        program.hard.delay(name)
        until(lambda: len(program.noted("entered", name)) == 2, "it runs again")
        # The first has failed by its time limit; what came of it in the end is told to another task of the same key.
        assert value_of(program.hard.delay(name)) == "done"
        assert len(program.noted("entered", name)) == 2


TOLD = {
    "acknowledged": ["acknowledged"],
    "sent again, then acknowledged": ["sent again", "acknowledged"],
}
"""What the worker says, by the words of the reference about the message of a task."""
FAILURES: list[tuple[type[Exception], str, str, tuple[int, ...]]] = [
    (FailedBefore, "FailedBefore", "charge", (1,)),
    (InDoubt, "InDoubt without", "held", ()),
    (KeyReused, "KeyReused", "charge", (2,)),
]
_ASKED: dict[str, dict[str, int]] = {"charge": {"cents": 1}, "held": {}}


@pytest.fixture(scope="module")
def tapped(
    rabbitmq: Broker,
    postgresql: Databases,
    start_redis: Callable[..., AbstractContextManager[RedisServer]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Application, list[str]]]:
    """A worker that takes one task at a time, and what it tells the broker."""
    queue = rabbitmq.new_name()
    log = tmp_path_factory.mktemp("worker") / "log"
    with start_redis() as notes, tap(rabbitmq.url, parse_celery(queue)) as (url, told):
        settings = Settings(
            rabbitmq.url,
            queue,
            notes.endpoint.url,
            postgresql.new_database(),
            transport={"confirm_publish": True},
            pool="solo",
        )
        with running_worker(settings, log, through=url) as program:
            yield program, told


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestWhatTheBrokerIsTold:
    """What the reference says becomes of a message, on the wire."""

    def test_a_task_with_a_value_is_acknowledged(self, tapped: tuple[Application, list[str]]) -> None:
        program, told = tapped
        before = len(told)
        value_of(program.charge.delay(token_hex(6), 1))
        until(lambda: len(told) > before, "it is told")
        assert told[before:] == ["acknowledged"]

    @pytest.mark.parametrize(("error", "row", "operation", "cents"), FAILURES, ids=[row for _, row, *_ in FAILURES])
    def test_a_task_that_fails_is_told_as_the_reference_says(
        self,
        *,
        tapped: tuple[Application, list[str]],
        error: type[Exception],
        row: str,
        operation: str,
        cents: tuple[int, ...],
    ) -> None:
        program, told = tapped
        name, before = token_hex(6), len(told)
        policy = Policy(final_errors=(ValueError,), in_doubt="hold")
        raised = ValueError if row == "FailedBefore" else OSError
        with suppress(raised):
            program.semel.run(name, _raise(raised), operation=operation, fingerprint=_ASKED[operation], policy=policy)
        with pytest.raises(error):
            value_of(program.app.tasks[operation].delay(name, *cents))
        expected = TOLD[_message_of(row)]
        until(lambda: len(told) >= before + len(expected), "it is told")
        assert told[before:] == expected

    def test_a_task_that_may_succeed_later_is_told_as_the_reference_says(
        self, tapped: tuple[Application, list[str]]
    ) -> None:
        program, told = tapped
        name, before = token_hex(6), len(told)
        soon = Policy(lease_for=LEASE)  # whoever meets it is told to come back when this is over
        elsewhere = program.semel.open(name, operation="charge", fingerprint={"cents": 1}, policy=soon)
        result = program.charge.delay(name, 1)
        program.await_note("sent_again", result.id)
        expected = TOLD[_message_of("InProgress")]
        until(lambda: len(told) >= before + len(expected), "it is told")
        assert told[before : before + len(expected)] == expected
        elsewhere.give_back()
        value_of(result)
        until(lambda: told[-2:] == ["acknowledged"] * 2, "it ends")

    @pytest.mark.parametrize("row", SENT_AGAIN)
    def test_what_a_task_meets_for_a_while_is_told_as_the_reference_says(
        self, tapped: tuple[Application, list[str]], row: str
    ) -> None:
        program, told = tapped
        name, before = token_hex(6), len(told)
        expected = TOLD[_message_of(row)]
        assert value_of(program.meets.delay(name, row)) == "done"
        until(lambda: len(told) > before + len(expected), "both messages are told")
        assert told[before:] == [*expected, "acknowledged"]

    @pytest.mark.parametrize("row", FAILED)
    def test_what_a_task_meets_for_good_is_told_as_the_reference_says(
        self, tapped: tuple[Application, list[str]], row: str
    ) -> None:
        program, told = tapped
        before, expected = len(told), TOLD[_message_of(row)]
        with pytest.raises(type(FAILED[row])):
            value_of(program.meets.delay(token_hex(6), row))
        until(lambda: len(told) >= before + len(expected), "it is told")
        assert told[before:] == expected


def test_every_row_of_the_reference_is_seen_on_the_wire() -> None:
    assert {*_messages()} == {"InProgress", *SENT_AGAIN, *FAILED, *(row for _, row, *_ in FAILURES)}


def _raise(error: type[Exception]) -> Callable[[], None]:
    def handler() -> None:
        raise error("no answer")

    return handler


def _message_of(row: str) -> str:
    return _messages()[row]


def _messages() -> dict[str, str]:
    """What the reference says of the message of a task, by how the task ended."""
    found: dict[str, str] = {}
    message = ""
    for error, _, _, told in table(page("docs/reference/events.md"), "error"):
        message = message if told == "the same" else told
        found[error] = message
    return found
