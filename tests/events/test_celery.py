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
from celery import Celery, chain, current_app, signals
from celery._state import _task_stack
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

    def test_an_attribute_of_the_base_may_resemble_a_field_of_the_policy(self, app: Celery, semel: Semel) -> None:
        class Base(app.Task):  # type: ignore[misc]  # made by the application
            keep_fro = 0

        assert raising(app, semel, ValueError(), base=Base, keep_fro=60).keep_fro == 60

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


class Declined(Exception):
    """Settled: this is the answer."""


class TestWhatOnceIsGiven:
    """Rules and policy are those that `semel.once` takes, and reach it."""

    def test_a_copy_does_not_wait_where_it_would_take_the_place_of_another(self, app: Celery, semel: Semel) -> None:
        assert raising(app, semel, ValueError()).semel_policy.when_running == "reject"

    @pytest.mark.parametrize(
        "given", [{"when_running": "wait"}, {"policy": Policy(when_running="wait")}], ids=["field", "policy"]
    )
    def test_a_copy_waits_where_somebody_says_so(self, app: Celery, semel: Semel, given: dict[str, Any]) -> None:
        assert raising(app, semel, ValueError(), **given).semel_policy.when_running == "wait"

    def test_what_a_task_carries_is_the_policy_of_its_operation(self, app: Celery, tmp_path: Path) -> None:
        file = tmp_path / "semel.toml"
        file.write_text('store = "memory://"\n\n[operations.raising]\nmax_runtime = "PT7M"\n')
        with Semel.from_settings(file) as semel:
            assert raising(app, semel, ValueError()).semel_policy.max_runtime == timedelta(minutes=7)

    @pytest.mark.parametrize("given", [{"final_errors": (Declined,)}, {"policy": Policy(final_errors=(Declined,))}])
    def test_final_errors_of_ones_own_are_final(self, app: Celery, semel: Semel, given: dict[str, Any]) -> None:
        task = raising(app, semel, Declined("no money"), **given)
        with pytest.raises(Declined):
            deliver(task, "n")
        with pytest.raises(FailedBefore, match="no money"):
            deliver(task, "n")

    @pytest.mark.parametrize("given", [{"retry_errors": (Declined,)}, {"policy": Policy(retry_errors=(Declined,))}])
    def test_retry_errors_of_ones_own_leave_no_doubt(self, app: Celery, semel: Semel, given: dict[str, Any]) -> None:
        with pytest.raises(Declined):
            deliver(raising(app, semel, Declined("not yet"), **given), "n")
        record = semel.read("n", operation="raising")
        assert record is not None
        assert record.status == "failed"

    def test_what_celery_is_not_to_try_again_is_added_to(self, app: Celery, semel: Semel) -> None:
        task = raising(app, semel, ValueError(), dont_autoretry_for=(TypeError,))
        assert task.dont_autoretry_for == (TypeError, SemelError)

    def test_what_a_base_is_not_to_try_again_is_added_to(self, app: Celery, semel: Semel) -> None:
        class Base(app.Task):  # type: ignore[misc]  # made by the application
            dont_autoretry_for = (KeyError,)

        assert raising(app, semel, ValueError(), base=Base).dont_autoretry_for == (KeyError, SemelError)

    def test_scopes_are_apart(self, eager: Celery, semel: Semel) -> None:
        ran = []

        @once_task(eager, semel, shared=False, key="name", scope="tenant", operation="task", ignore=("tenant",))
        def task(name: str, tenant: str) -> None:
            ran.append(tenant)

        for tenant in ("a", "b", "a"):
            task.delay("n", tenant).get()
        assert ran == ["a", "b"]

    def test_what_is_named_is_compared_and_nothing_else(self, eager: Celery, semel: Semel) -> None:
        @once_task(eager, semel, shared=False, key="name", fingerprint=("cents",))
        def task(name: str, cents: int, note: str) -> int:
            return cents

        assert [task.delay("n", 1, "first").get(), task.delay("n", 1, "second").get()] == [1, 1]
        with pytest.raises(KeyReused):
            task.delay("n", 2, "first").get()

    def test_a_bound_task_compares_what_is_named(self, eager: Celery, semel: Semel) -> None:
        @once_task(eager, semel, shared=False, bind=True, key="name", fingerprint=("cents",))
        def task(self: Any, name: str, cents: int) -> str:
            return f"{self.name} {cents}"

        assert task.delay("n", 1).get().endswith(" 1")
        with pytest.raises(KeyReused):
            task.delay("n", 2).get()

    @pytest.mark.parametrize("bind", [False, True])
    def test_what_is_ignored_is_not_compared(self, eager: Celery, semel: Semel, bind: bool) -> None:
        def plain(name: str, note: str) -> str:
            return note

        def bound(self: Any, name: str, note: str) -> str:
            return note

        make = once_task(eager, semel, shared=False, bind=bind, key="name", operation="task", ignore=("note",))
        task = make(bound if bind else plain)
        assert [task.delay("n", "first").get(), task.delay("n", note="second").get()] == ["first", "first"]

    def test_the_record_says_what_it_is_about(self, eager: Celery, semel: Semel) -> None:
        def about(name: str) -> dict[str, Any]:
            return {"business_key": f"order {name}"}

        @once_task(eager, semel, shared=False, key="name", operation="task", about=about)
        def task(name: str) -> None: ...

        task.delay("n").get()
        record = semel.read("n", operation="task")
        assert record is not None
        assert record.about is not None
        assert record.about.business_key == "order n"

    def test_a_value_of_an_older_release_is_upgraded(self, eager: Celery, semel: Semel) -> None:
        semel.run("n", lambda: "7", operation="task", fingerprint={})

        @once_task(eager, semel, shared=False, key="name", operation="task", upgrade=int)
        def task(name: str) -> int:
            return 8

        assert task.delay("n").get() == 7

    @pytest.mark.parametrize("given", [{"keep_for": 60}, {"policy": Policy(keep_for=60)}], ids=["field", "policy"])
    def test_the_policy_is_that_of_the_record(self, eager: Celery, semel: Semel, given: dict[str, Any]) -> None:
        @once_task(eager, semel, shared=False, key="name", operation="task", **given)
        def task(name: str) -> None: ...

        task.delay("n").get()
        record = semel.read("n", operation="task")
        assert record is not None
        assert record.keep_for == timedelta(minutes=1)

    def test_keyword_arguments_reach_the_body(self, eager: Celery, semel: Semel) -> None:
        @once_task(eager, semel, shared=False, key="name")
        def task(name: str, *, cents: int) -> str:
            return f"{name} {cents}"

        assert task.delay(name="n", cents=3).get() == "n 3"

    @pytest.mark.parametrize("name", ["task", "args", "kwargs", "request", "app"])
    @pytest.mark.parametrize("bind", [True, False])
    def test_a_parameter_may_have_any_name(self, eager: Celery, semel: Semel, *, bind: bool, name: str) -> None:
        made: dict[str, Any] = {}
        parameters = f"self, order_id, {name}" if bind else f"order_id, {name}"
        exec(f"def charge({parameters}): return [order_id, {name}]", made)  # noqa: S102 - a name for each row
        task = once_task(eager, semel, shared=False, key="order_id", name="charge", bind=bind)(made["charge"])
        assert task.delay(order_id="o-1", **{name: "x"}).get() == ["o-1", "x"]
        assert task("o-2", **{name: "x"}) == ["o-2", "x"]


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

    def test_tasks_of_one_chain_have_keys_of_their_own(self, app: Celery, semel: Semel) -> None:
        @once_task(app, semel, shared=False, operation="task")
        def task(name: str) -> str:
            return name

        _task_stack.push(task)
        try:
            deliver(task, "n", root_id="t-0")
        finally:
            _task_stack.pop()
        assert semel.read("t-1", operation="task") is not None

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


def rows_of_errors() -> dict[str, tuple[str, str]]:
    """The state of a task and what becomes of its message, by the rows of the reference."""
    found: dict[str, tuple[str, str]] = {}
    state = message = ""
    for error, _, told_state, told_message in table(page("docs/reference/events.md"), "error"):
        state = state if told_state == "the same" else told_state
        message = message if told_message == "the same" else told_message
        found[error] = state, message
    return found


class TestWhatCeleryIsTold:
    @pytest.mark.parametrize(("error", "seconds"), SENT_AGAIN, ids=lambda given: type(given).__name__)
    def test_what_may_succeed_later_is_sent_again_uncounted(
        self, app: Celery, semel: Semel, error: SemelError, seconds: float
    ) -> None:
        task = raising(app, semel, error, max_retries=0, autoretry_for=(Exception,))
        with pytest.raises(Retry) as caught:
            deliver(task, "n", retries=2)
        assert caught.value.when == seconds
        assert caught.value.sig.options["countdown"] == seconds
        assert caught.value.exc is error
        assert caught.value.__cause__ is error
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
        after = {7.0: "retry_after", 1.0: "1 s"}
        again = {
            _row_of(error): (f"RETRY, not counted, after {after[seconds]}", "sent again, then acknowledged")
            for error, seconds in SENT_AGAIN
        }
        failed = {type(error).__name__: ("FAILURE", "acknowledged") for error in FAILED}
        held = {"InDoubt without": ("FAILURE with TaskInDoubt, which has the reference", "acknowledged")}
        assert rows_of_errors() == {**again, **failed, **held}

    def test_the_countdown_stays_below_the_visibility_timeout(self, app: Celery, semel: Semel) -> None:
        app.conf.broker_transport_options = {"visibility_timeout": 4}
        with pytest.raises(Retry) as caught:
            deliver(raising(app, semel, InProgress("wait", retry_after=LATER)), "n")
        assert (caught.value.when, caught.value.sig.options["countdown"]) == (2.0, 2.0)

    @pytest.mark.parametrize(
        ("broker", "countdown"),
        [
            ("redis://localhost", 1800.0),
            ("sqs://", 900.0),
            ("amqp://localhost", 900.0),
            ("memory://", 7200.0),
        ],
    )
    def test_the_countdown_stays_below_what_a_transport_has_by_default(
        self, broker: str, countdown: float, semel: Semel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app = Celery("shop", broker=broker, set_as_current=False)
        monkeypatch.setattr(type(app.amqp), "send_task_message", property(lambda _: lambda *_, **__: None))
        with pytest.raises(Retry) as caught:
            deliver(raising(app, semel, InProgress("wait", retry_after=timedelta(hours=2))), "n")
        assert caught.value.sig.options["countdown"] == countdown
        app.close()

    def test_a_countdown_that_is_short_enough_stays(self, app: Celery, semel: Semel) -> None:
        app.conf.broker_transport_options = {"visibility_timeout": 60}
        with pytest.raises(Retry) as caught:
            deliver(raising(app, semel, InProgress("wait", retry_after=LATER)), "n")
        assert caught.value.when == 7.0

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
            ("redis://localhost", {"visibility_timeout": 60}, 60, True),
            ("redis://localhost", {"visibility_timeout": 60}, 59, False),
            ("sqs://", {}, 1800, True),
            ("sqs://", {}, 1799, False),
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

    @pytest.mark.parametrize("option", ["acks_late", "reject_on_worker_lost"])
    def test_each_option_that_annotations_switch_off_is_named(self, app: Celery, semel: Semel, option: str) -> None:
        app.conf.task_annotations = {"raising": {option: False}}
        raising(app, semel, ValueError())
        with pytest.raises(SystemExit, match=f"task_annotations set {option} of raising to False"):
            signals.worker_init.send(sender=Worker(app=app))

    def test_a_task_of_the_current_application_is_looked_at_when_a_worker_of_that_starts(
        self, app: Celery, semel: Semel
    ) -> None:
        app.conf.task_annotations = {"raising": {"acks_late": False}}
        before = current_app._get_current_object()
        app.set_current()
        try:
            raising(current_app, semel, ValueError())
        finally:
            before.set_current()
        with pytest.raises(SystemExit, match="task_annotations set acks_late of raising to False"):
            signals.worker_init.send(sender=Worker(app=app))

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
