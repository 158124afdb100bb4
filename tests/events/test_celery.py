"""`once_task` without a worker: what is refused, eager mode, calls as a function, and what Celery is told of errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pydantic
import pytest
from celery import Celery, chain, signals
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import OperationalError

from semel import AsyncSemel, Attempt, Policy, Semel
from semel.errors import (
    FailedBefore,
    InDoubt,
    InProgress,
    KeyMissing,
    KeyReused,
    LeaseLost,
    RecordUnreadable,
    ResultNotKept,
    SchemaOutdated,
    SemelError,
    StoreMisconfigured,
    StoreUnavailable,
    TooManyHandlers,
    TransactionAborted,
    UsageError,
)
from semel.events.brokers.celery import TaskInDoubt, once_task
from semel.stores.memory import MemoryStore
from tests.docs.pages import page, table
from tests.events.celery_program import Settings
from tests.processes import run_bounded

_ROOT = Path(__file__).parents[2]
LATER = timedelta(seconds=7)


class Order(pydantic.BaseModel):
    id: str


@dataclass(frozen=True)
class Worker:
    """What a signal of a worker comes from."""

    app: Celery


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def eager(app: Celery) -> Celery:
    app.conf.task_always_eager = True
    return app


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel(MemoryStore()) as semel:
        yield semel


def deliver(task: Any, *args: Any, **request: Any) -> Any:
    """Run a task as a worker does that was given its message."""
    given = {"id": "t-1", "called_directly": False, "delivery_info": {"exchange": "", "routing_key": "tasks"}}
    task.push_request(args=args, kwargs={}, **given, **request)
    try:
        return task.run(*args)
    finally:
        task.pop_request()


def raising(app: Celery, semel: Semel, error: Exception, **options: Any) -> Any:
    """A task that ends like a call of semel that ends so."""

    @once_task(app, semel, shared=False, key="name", operation="raising", name="raising", **options)
    def task(name: str) -> None:
        raise error

    return task


def sent(app: Celery) -> list[dict[str, Any]]:
    """The headers of what is in the queue."""
    with app.connection_for_read() as connection:
        queue = connection.SimpleQueue("tasks")
        found = []
        while queue.qsize():
            message = queue.get_nowait()
            assert json.loads(message.body)[0] == ["n"]
            found.append(message.headers)
            message.ack()
        queue.close()
    return found


class TestDecoration:
    def test_messages_are_acknowledged_late_and_given_back(self, app: Celery, semel: Semel) -> None:
        task = raising(app, semel, ValueError())
        assert (task.acks_late, task.reject_on_worker_lost) == (True, True)

    @pytest.mark.parametrize("option", ["acks_late", "reject_on_worker_lost"])
    @pytest.mark.parametrize("value", [False, None])
    def test_to_switch_that_off_is_refused_by_name(
        self, app: Celery, semel: Semel, option: str, value: bool | None
    ) -> None:
        with pytest.raises(UsageError, match=f"{option}={value} would lose"):
            raising(app, semel, ValueError(), **{option: value})

    def test_other_options_of_a_task_pass_through(self, app: Celery, semel: Semel) -> None:
        task = raising(app, semel, ValueError(), rate_limit="10/m", max_retries=7, expires=30, acks_late=True)
        assert (task.name, task.rate_limit, task.max_retries, task.expires) == ("raising", "10/m", 7, 30)

    def test_a_misspelt_field_of_the_policy_is_refused(self, app: Celery, semel: Semel) -> None:
        with pytest.raises(UsageError, match="Did you mean 'keep_for'"):
            raising(app, semel, ValueError(), keep_fro=60)

    def test_an_unknown_field_of_a_task_is_an_attribute_of_it(self, app: Celery, semel: Semel) -> None:
        assert raising(app, semel, ValueError(), team="billing").team == "billing"

    def test_an_asynchronous_engine_is_refused(self, app: Celery) -> None:
        with pytest.raises(UsageError, match="takes a Semel, not a AsyncSemel"):
            once_task(app, AsyncSemel(MemoryStore()))  # type: ignore[arg-type]  # as somebody without types would

    @pytest.mark.parametrize("policy", [None, Policy(final_errors=(Exception,))])
    def test_final_errors_that_hold_retries_are_refused(self, app: Celery, semel: Semel, policy: Policy | None) -> None:
        given: dict[str, Any] = {"final_errors": (Exception,)} if policy is None else {"policy": policy}
        with pytest.raises(UsageError, match="final_errors holds Exception, and so Celery's Retry"):
            raising(app, semel, ValueError(), **given)

    def test_a_coroutine_function_is_refused(self, app: Celery, semel: Semel) -> None:
        with pytest.raises(UsageError, match="must be written with 'def'"):

            @once_task(app, semel, shared=False)
            async def task() -> None: ...

    def test_arguments_are_checked_where_a_task_is_sent(self, eager: Celery, semel: Semel) -> None:
        @once_task(eager, semel, shared=False, key="name")
        def task(name: str, attempt: Attempt) -> str:
            return name

        with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
            task.delay()
        assert task.delay("n").get() == "n"


class TestEager:
    def test_the_body_runs_once(self, eager: Celery, semel: Semel) -> None:
        ran = []

        @once_task(eager, semel, shared=False, key="order_id", operation="charge")
        def charge(order_id: str, cents: int) -> str:
            ran.append(order_id)
            return f"{order_id}: {cents}"

        assert [charge.delay("o-1", 1250).get(), charge.delay("o-1", 1250).get()] == ["o-1: 1250"] * 2
        assert charge("o-1", 1250) == "o-1: 1250"
        assert chain(charge.si("o-1", 1250), charge.si("o-1", 1250)).apply_async().get() == "o-1: 1250"
        assert ran == ["o-1"]

    def test_the_task_id_is_the_key_and_a_retry_keeps_it(self, eager: Celery, semel: Semel) -> None:
        ran = []

        @once_task(eager, semel, shared=False, bind=True, max_retries=2, operation="task")
        def task(self: Any, number: int) -> int:
            ran.append(self.request.id)
            if self.request.retries < 2:
                raise self.retry(countdown=0)
            return number

        assert [task.apply_async((3,), task_id="t-1").get(), task.apply_async((3,), task_id="t-1").get()] == [3, 3]
        assert ran == ["t-1"] * 3
        record = semel.read("t-1", operation="task")
        assert record is not None
        assert record.attempts == 3

    def test_what_may_succeed_later_is_raised_as_it_is(self, eager: Celery, semel: Semel) -> None:
        @once_task(eager, semel, shared=False, key="name", operation="task")
        def task(name: str) -> None: ...

        semel.open("n", operation="task", fingerprint={})
        with pytest.raises(InProgress):
            task.delay("n").get()

    def test_models_of_pydantic_arrive_as_models(self, eager: Celery, semel: Semel) -> None:
        ran = []

        @once_task(eager, semel, shared=False, key="order.id", operation="task", pydantic=True)
        def task(order: Order) -> Order:
            ran.append(order)
            return order

        assert [task.delay({"id": "o-1"}).get(), task.delay({"id": "o-1"}).get()] == [{"id": "o-1"}] * 2
        assert ran == [Order(id="o-1")]


class TestCalledAsAFunction:
    def test_without_a_key_there_is_no_id(self, app: Celery, semel: Semel) -> None:
        @once_task(app, semel, shared=False)
        def task() -> None: ...

        with pytest.raises(KeyMissing, match="called as a function"):
            task()

    def test_errors_are_those_of_semel(self, app: Celery, semel: Semel) -> None:
        with pytest.raises(InProgress):
            raising(app, semel, InProgress("wait"))("n")


SENT_AGAIN: list[tuple[SemelError, float]] = [
    (InProgress("somebody runs it", retry_after=LATER), 7.0),
    (TooManyHandlers("too many", retry_after=LATER), 7.0),
    (StoreUnavailable("no answer", retry_after=LATER), 7.0),
    (StoreUnavailable("no answer", retry_after=LATER, ran=True), 7.0),
    (StoreMisconfigured("wrong password", retry_after=LATER), 7.0),
    (TransactionAborted("gone", retry_after=LATER), 7.0),
    (InDoubt("the hook may be asked later", reference="ab", retry_after=LATER), 7.0),
    (LeaseLost("taken over"), 1.0),
]
FAILED: list[SemelError] = [
    FailedBefore("before", error_type="shop.Declined"),
    KeyReused("other arguments"),
    ResultNotKept("too large"),
    RecordUnreadable("newer"),
    SchemaOutdated("older"),
]


def _row_of(error: SemelError) -> str:
    return "InDoubt with retry_after" if isinstance(error, InDoubt) else type(error).__name__


class TestWhatCeleryIsTold:
    @pytest.mark.parametrize(("error", "seconds"), SENT_AGAIN, ids=lambda given: type(given).__name__)
    def test_what_may_succeed_later_is_sent_again_uncounted(
        self, app: Celery, semel: Semel, error: SemelError, seconds: float
    ) -> None:
        task = raising(app, semel, error, max_retries=0, autoretry_for=(Exception,))
        with pytest.raises(Retry) as caught:
            deliver(task, "n", retries=2)
        assert caught.value.when == seconds
        (message,) = sent(app)
        assert (message["id"], message["retries"]) == ("t-1", 2)
        assert message["eta"] is not None

    @pytest.mark.parametrize("error", FAILED, ids=lambda error: type(error).__name__)
    def test_what_will_not_succeed_fails_at_once(self, app: Celery, semel: Semel, error: SemelError) -> None:
        task = raising(app, semel, error, autoretry_for=(Exception,))
        with pytest.raises(type(error)):
            deliver(task, "n")
        assert sent(app) == []

    def test_what_is_held_fails_with_its_reference(self, app: Celery, semel: Semel) -> None:
        task = raising(app, semel, InDoubt("held", reference="ab12"), autoretry_for=(Exception,))
        with pytest.raises(TaskInDoubt, match="held Reference: ab12") as caught:
            deliver(task, "n")
        kept = task.backend.prepare_exception(caught.value, "json")
        told = task.backend.exception_to_python(json.loads(json.dumps(kept)))
        assert isinstance(told, TaskInDoubt)
        assert (told.reference, str(told)) == ("ab12", str(caught.value))

    def test_the_reference_has_a_row_for_each_of_them(self) -> None:
        rows = {(row[0], row[2].startswith("FAILURE")) for row in table(page("docs/reference/events.md"), "error")}
        again = {(_row_of(error), False) for error, _ in SENT_AGAIN}
        assert {(error, state) for error, state in rows if not state} == again
        failed = {(type(error).__name__, True) for error in FAILED} | {("InDoubt without", True)}
        assert {(error, state) for error, state in rows if state} == failed

    def test_the_countdown_stays_below_the_visibility_timeout(self, app: Celery, semel: Semel) -> None:
        app.conf.broker_transport_options = {"visibility_timeout": 4}
        with pytest.raises(Retry) as caught:
            deliver(raising(app, semel, InProgress("wait", retry_after=LATER)), "n")
        assert caught.value.when == 2.0

    def test_what_cannot_be_sent_again_is_given_back(
        self, app: Celery, semel: Semel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise OperationalError("nobody listens there")

        task = raising(app, semel, InProgress("wait"))
        monkeypatch.setattr(type(app.amqp), "send_task_message", property(lambda _: refuse))
        with pytest.raises(Reject) as caught:
            deliver(task, "n")
        assert caught.value.requeue
        assert "could not be sent again" in caplog.text

    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (Retry("again"), "failed"),
            (Reject("not here"), "failed"),
            (Reject("not here", requeue=True), "failed"),
            (Ignore("told elsewhere"), "failed"),
            (ConnectionError("no answer"), "in_doubt"),
        ],
        ids=lambda given: type(given).__name__ if isinstance(given, Exception) else given,
    )
    def test_what_a_body_tells_celery_is_passed_on(
        self, app: Celery, semel: Semel, error: Exception, status: str
    ) -> None:
        with pytest.raises(type(error)) as caught:
            deliver(raising(app, semel, error), "n")
        assert caught.value is error
        record = semel.read("n", operation="raising")
        assert record is not None
        assert record.status == status

    def test_what_was_ignored_is_ignored_again(self, app: Celery, semel: Semel) -> None:
        task = raising(app, semel, Ignore("told elsewhere"))
        for _ in range(2):
            with pytest.raises(Ignore, match="told elsewhere"):
                deliver(task, "n")
        record = semel.read("n", operation="raising")
        assert record is not None
        assert record.attempts == 1

    @pytest.mark.parametrize("error", [Retry("again"), Reject("not here")], ids=lambda error: type(error).__name__)
    def test_what_handed_its_message_back_runs_again_without_doubt(
        self, app: Celery, semel: Semel, error: Exception
    ) -> None:
        seen = []

        @once_task(app, semel, shared=False, key="name", in_doubt="hold")
        def task(name: str, attempt: Attempt) -> str:
            seen.append(attempt.in_doubt)
            if len(seen) == 1:
                raise error
            return "done"

        with pytest.raises(type(error)):
            deliver(task, "n")
        assert deliver(task, "n") == "done"
        assert seen == [False, False]


class TestStartOfAWorker:
    @pytest.mark.slow
    def test_annotations_that_lose_messages_end_the_worker(self) -> None:
        annotations = {"charge": {"acks_late": False}}
        nowhere = "redis://127.0.0.1:1/"
        settings = Settings("memory://", "tasks", nowhere, "memory://", annotations=annotations, pool="solo")
        start = "import sys; from tests.events.celery_program import main; main(sys.argv[1])"
        ended = run_bounded([sys.executable, "-c", start, settings.to_text()], 60, cwd=_ROOT)
        assert ended.returncode == 1
        assert "task_annotations set acks_late of charge to False" in ended.stderr

    @pytest.mark.parametrize(
        ("broker", "transport", "max_runtime", "told"),
        [
            ("redis://localhost", {"visibility_timeout": 60}, 61, True),
            ("redis://localhost", {"visibility_timeout": 60}, 59, False),
            ("redis://localhost", {}, 3601, True),
            ("redis://localhost", {}, 900, False),
            ("amqp://localhost", {"confirm_publish": True}, 1800, True),
            ("amqp://localhost", {"confirm_publish": True}, 900, False),
        ],
    )
    def test_it_says_that_a_task_may_outlast_its_message(
        self, broker: str, transport: dict[str, Any], max_runtime: int, told: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        app = Celery("shop", broker=broker, set_as_current=False)
        app.conf.broker_transport_options = transport
        raising(app, Semel(MemoryStore()), ValueError(), max_runtime=max_runtime)
        signals.worker_init.send(sender=Worker(app=app))
        assert ("raising" in caplog.text) is told
        app.close()

    def test_it_says_that_rabbitmq_confirms_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        app = Celery("shop", broker="amqp://localhost", set_as_current=False)
        raising(app, Semel(MemoryStore()), ValueError())
        signals.worker_init.send(sender=Worker(app=app))
        assert "Set broker_transport_options = {'confirm_publish': True}" in caplog.text
        app.close()

    def test_workers_of_other_applications_are_not_concerned(
        self, app: Celery, semel: Semel, caplog: pytest.LogCaptureFixture
    ) -> None:
        raising(app, semel, ValueError(), max_runtime=100_000)
        signals.worker_init.send(sender=Worker(app=Celery("other", set_as_current=False)))
        assert caplog.text == ""
