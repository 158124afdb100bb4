"""What holds for tasks on every broker of Celery: one table of cases, which run on a real worker."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.result import AsyncResult, allow_join_result

from semel import Policy
from semel.core.record import Status
from semel.errors import FailedBefore, InDoubt, KeyReused
from semel.events.brokers.celery import TaskInDoubt
from tests.events.celery_program import LEASE, PATIENCE, Application, Settings
from tests.processes import child

_ROOT = Path(__file__).parents[2]


@contextmanager
def running_worker(settings: Settings, log: Path, *, through: str | None = None) -> Iterator[Application]:
    """The application, with one worker that takes its tasks; `through` is how the worker alone reaches the broker."""
    # Imported, so that its classes have the same names here and there.
    start = "import sys; from tests.events.celery_program import main; main(sys.argv[1])"
    command = [sys.executable, "-c", start, replace(settings, broker=through or settings.broker).to_text()]
    with log.open("w") as output, child(command, cwd=_ROOT, stdout=output, stderr=output):
        program = Application(settings)
        try:
            program.await_note("worker", "ready")
            yield program
        finally:
            program.semel.close()
            program.app.close()
            program.notes.close()


def value_of(result: AsyncResult) -> Any:
    return result.get(timeout=PATIENCE)


def until(condition: Callable[[], bool], what: str) -> None:
    """Look until it is so: a broker tells nobody what it has done."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE} s"
        time.sleep(0.02)


def numbers_of_retries(program: Application, name: str) -> list[str]:
    """What runs of a task found, in order. A broker that delivers one of them twice repeats a number."""
    return list(dict.fromkeys(program.noted("entered", name)))


@pytest.mark.slow
@pytest.mark.timeout(600)
class CeleryCases:
    """The cases; a module gives `program`, an application with its worker."""

    @pytest.fixture
    def name(self) -> str:
        return secrets.token_hex(6)

    def test_a_task_that_is_sent_twice_runs_once_and_gives_the_same(self, program: Application, name: str) -> None:
        values = [value_of(program.charge.delay(name, 1250)) for _ in range(2)]
        assert values[0] == values[1]
        assert len(program.noted("did", name)) == 1

    def test_many_tasks_at_the_same_time_run_once_per_key(self, program: Application, name: str) -> None:
        sent = [program.charge.delay(f"{name}-{number % 50}", 1) for number in range(100)]
        values = {value_of(result) for result in sent}
        assert len(values) == 50
        assert [len(program.noted("did", f"{name}-{number}")) for number in range(50)] == [1] * 50

    def test_other_arguments_under_the_same_key_fail(self, program: Application, name: str) -> None:
        value_of(program.charge.delay(name, 1))
        with pytest.raises(KeyReused):
            value_of(program.charge.delay(name, 2))

    def test_without_a_key_the_task_id_is_the_key(self, program: Application, name: str) -> None:
        first = value_of(program.by_id.apply_async((name,), task_id=f"{name}-1"))
        # Celery keeps the result of an id that has succeeded, so what the second run gives is read from the record.
        program.notes.delete(f"celery-task-meta-{name}-1")
        assert value_of(program.by_id.apply_async((name,), task_id=f"{name}-1")) == first
        assert value_of(program.by_id.apply_async((name,), task_id=f"{name}-2")) != first
        assert len(program.noted("did", name)) == 2

    def test_a_second_copy_waits_for_the_first_and_replays_it_without_counting_retries(
        self, program: Application, name: str
    ) -> None:
        first = program.wait.delay(name)
        program.await_note("entered", name)
        second = program.wait.delay(name)
        # With max_retries=0 it would have failed if this were counted.
        assert [program.await_note("sent_again", second.id) for _ in range(3)] == ["0", "0", "0"]
        program.note("go", name, "")
        assert value_of(first) == value_of(second)
        assert len(program.noted("did", name)) == 1

    def test_a_task_that_asks_to_be_run_again_runs_again_and_its_retries_are_counted(
        self, program: Application, name: str
    ) -> None:
        assert value_of(program.again.delay(name, 2)) == "2 retries"
        assert numbers_of_retries(program, name) == ["0", "1", "2"]

    def test_waiting_for_another_uses_up_no_retry_of_its_own(self, program: Application, name: str) -> None:
        soon = Policy(lease_for=LEASE)  # whoever meets it is told to come back when this is over
        elsewhere = program.semel.open(name, operation="again", fingerprint={"failures": 2}, policy=soon)
        result = program.again.delay(name, 2)
        assert [program.await_note("sent_again", result.id) for _ in range(3)] == ["0", "0", "0"]
        elsewhere.give_back()
        assert value_of(result) == "2 retries"
        assert numbers_of_retries(program, name) == ["0", "1", "2"]

    def test_own_failures_end_at_max_retries(self, program: Application, name: str) -> None:
        result = program.again.delay(name, 9)
        with pytest.raises(program.again.MaxRetriesExceededError):
            value_of(result)
        assert numbers_of_retries(program, name) == ["0", "1", "2"]

    def test_errors_that_celery_retries_by_itself_run_again(self, program: Application, name: str) -> None:
        assert value_of(program.autoretried.delay(name)) == "done"
        assert len(program.noted("entered", name)) == 3

    def test_what_is_held_fails_with_the_reference_of_its_record(self, program: Application, name: str) -> None:
        with pytest.raises(ConnectionError):
            value_of(program.held.delay(name))
        with pytest.raises(InDoubt) as caught:
            value_of(program.held.delay(name))
        record = program.semel.read(name, operation="held")
        assert record is not None
        assert isinstance(caught.value, TaskInDoubt)
        assert caught.value.reference == record.reference
        assert record.reference in str(caught.value)
        assert len(program.noted("did", name)) == 1

    def test_a_final_error_is_replayed_and_not_tried_again(self, program: Application, name: str) -> None:
        with pytest.raises(FailedBefore, match="no money"):
            value_of(program.declined.delay(name))
        assert len(program.noted("did", name)) == 1

    def test_what_is_ignored_is_ignored_again(self, program: Application, name: str) -> None:
        for _ in range(2):
            sent = program.ignored.delay(name)
            assert program.await_note("ended", sent.id) == "IGNORED"
        assert program.noted("did", name) == [""]

    def test_what_is_rejected_runs_again(self, program: Application, name: str) -> None:
        assert value_of(program.rejected.delay(name)) == "done"
        assert len(program.noted("entered", name)) == 2

    def test_a_chain_with_replays_gives_equal_values(self, program: Application, name: str) -> None:
        line = chain(program.charge.s(name, 1), program.follow.s(f"{name}-2"), program.follow.s(f"{name}-3"))
        values = [value_of(line.clone().apply_async()) for _ in range(2)]
        assert values[0] == values[1]
        assert values[0].count(">") == 2
        assert len(program.noted("did", f"{name}-3")) == 1

    def test_a_chord_with_replays_gives_equal_values(self, program: Application, name: str) -> None:
        def send() -> Any:
            head = group(program.charge.s(f"{name}-{number}", number) for number in range(4))
            return chord(head, app=program.app)(program.total.s(f"{name}-total"))

        with allow_join_result():
            values = [value_of(send()) for _ in range(2)]
        assert values[0] == values[1]
        assert len(program.noted("did", f"{name}-total")) == 1

    def test_calling_it_as_a_function_runs_it_once_as_well(self, program: Application, name: str) -> None:
        there = value_of(program.charge.delay(name, 1))
        assert program.charge(name, 1) == there
        assert len(program.noted("did", name)) == 1

    def test_the_record_says_that_it_is_completed(self, program: Application, name: str) -> None:
        value_of(program.charge.delay(name, 1))
        record = program.semel.read(name, operation="charge")
        assert record is not None
        assert record.status is Status.COMPLETED
