"""Tasks of a workflow on PostgreSQL, 64 at once: a delegate against calls of `run`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from bench.callers import Numbers, event_loop, in_tasks
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, server
from semel import AsyncSemel
from semel.core.record import About
from semel.workflow import Completed, Delegate

CALLERS = 64
_TASKS = 3840
_INSTANCE, _ACTIVITY = "process-1", "SUB_08"
Work = Callable[[AsyncSemel, str, int], Coroutine[Any, Any, float]]


class PayClaim(Delegate):
    """A task that takes no time."""

    operation = "PAYMENT_PROCESSING"
    key = ("claimId", "paymentId")

    async def execute(self, claimId: str, paymentId: str, amount: Decimal) -> str:  # noqa: N803 - as in a process
        return paymentId

    def outputs(self, value: Any, v: Any) -> dict[str, Any]:
        return {"receipt": value}


def _prepare(name: str, work: Work) -> Callable[[Path, Effort], Any]:
    """Measures one way on a database of its own."""

    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        rounds = Numbers()
        with database(folder, name) as url, event_loop() as loop:
            semel = AsyncSemel(url)
            yield lambda calls: loop.run(work(semel, f"{name}-{rounds.take(1)[0]}", calls))
            loop.run(semel.close())

    return prepare


def _variables(claim: str, number: int) -> dict[str, Any]:
    return {"claimId": claim, "paymentId": f"payment-{number}", "amount": "1500.00", "loopCounter": number}


async def _call(semel: AsyncSemel, name: str, calls: int, about: About | None = None) -> float:
    async def call(number: int) -> Any:
        given = _variables(name, number)
        payment = given["paymentId"]

        async def run() -> str:
            return str(payment)

        return await semel.run(
            ("V1", name, payment),
            run,
            operation="PAYMENT_PROCESSING",
            fingerprint=given["amount"],
            about=about,
        )

    return await in_tasks(CALLERS, list(range(calls)), call)


async def _call_about(semel: AsyncSemel, name: str, calls: int) -> float:
    return await _call(semel, name, calls, About(process_instance=_INSTANCE, tags={"activity": _ACTIVITY}))


async def _delegate(semel: AsyncSemel, name: str, calls: int) -> float:
    return await _run_tasks(semel, name, calls, {})


async def _delegate_about(semel: AsyncSemel, name: str, calls: int) -> float:
    return await _run_tasks(semel, name, calls, {"instance": _INSTANCE, "activity": _ACTIVITY})


async def _run_tasks(semel: AsyncSemel, name: str, calls: int, place: dict[str, str]) -> float:
    pay = PayClaim(semel)

    async def call(number: int) -> Any:
        end = await pay.run(_variables(name, number), **place)
        if not isinstance(end, Completed):
            raise TypeError(end)  # what fails is quick
        return end

    return await in_tasks(CALLERS, list(range(calls)), call)


_RUN, _RUN_ABOUT = "run, 64 callers", "run, 64 callers, with process instance and activity"
_TARGET = Comparison("faster", 0.7)
WORKFLOW = Case(
    "workflow",
    "tasks of a workflow on PostgreSQL, 64 at once: a delegate against calls of run",
    (
        Variant(_RUN, _prepare("workflow_run", _call), _TASKS),
        Variant("delegate, 64 tasks", _prepare("workflow_task", _delegate), _TASKS, _RUN, _TARGET),
        Variant(_RUN_ABOUT, _prepare("workflow_run_about", _call_about), _TASKS),
        Variant(
            "delegate, 64 tasks, with process instance and activity",
            _prepare("workflow_task_about", _delegate_about),
            _TASKS,
            _RUN_ABOUT,
            _TARGET,
        ),
    ),
    notes=(
        "Tasks that take no time. A delegate decodes its variables, compares inputs and gives outputs beside the call.",
        "What is searched by is a row more for each record, with a delegate and without.",
    ),
    site=server,
)
