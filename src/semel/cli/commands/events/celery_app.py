"""What `semel doctor` finds about an application of Celery: its tasks that run once, its settings and its broker."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any, Final

from semel.cli.commands.events.broker_limits import NO_PLUGIN, Compared, about_timeout, judge
from semel.cli.exit_codes import usage_error
from semel.cli.store_option import load_object
from semel.stores.admin import Finding
from semel.texts import span

_MODULE: Final = "semel.celery_tasks.settings"
_NAMED: Final = 5
"""Tasks that are named one by one."""


def examine_celery(path: str, *, management: str | None, consumer_timeout: timedelta | None) -> list[Finding]:
    """What was found about the application `package.module:object`.

    Raises:
        Refused: there is no such object, or an option is of another broker.
        UsageError: it is no application, a package is missing, or RabbitMQ has no such queue.
    """
    # By its name: whoever has no Celery has no such module either.
    adapter = importlib.import_module(_MODULE)
    app = load_object(path)
    settings = adapter.read_settings(app)
    if management is not None and not settings.is_rabbitmq:
        raise usage_error("--management is for RabbitMQ, and the application has another broker; nothing was done.")
    findings = [_about_broker(adapter, app, settings.address), *_about_eager(settings)]
    if not settings.tasks:
        advice = "name the application whose tasks once_task made, in a module that imports them"
        return [*findings, Finding("tasks", "none that runs once", "note", advice)]
    findings += [_about_tasks(settings.tasks), _about_acknowledgement(settings.tasks)]
    if settings.visible_again is not None:
        findings.append(_about_visibility(settings.visible_again, settings.tasks))
    if settings.is_rabbitmq:
        findings.append(_about_confirmations(settings))
        findings += _about_rabbitmq(settings, _compare(settings.tasks, consumer_timeout), management)
    findings.append(_about_backend(settings.backend))
    return findings


def _about_broker(adapter: Any, app: Any, address: str) -> Finding:
    try:
        adapter.reach_broker(app)
    except ConnectionError as error:
        advice = "see that it runs, and may be reached from here by this user"
        return Finding("broker", f"{address}: {error}", "fix", advice)
    return Finding("broker", f"{address} answers")


def _about_eager(settings: Any) -> list[Finding]:
    if not settings.is_eager:
        return []
    text = "task_always_eager: tasks run where they are called"
    return [Finding("eager", text, "fix", "switch it off outside of tests: nobody runs a task again that was cut off")]


def _about_tasks(tasks: Any) -> Finding:
    named = ", ".join(task.name for task in tasks[:_NAMED])
    more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
    return Finding("tasks", f"run once: {named}{more}")


def _about_acknowledgement(tasks: Any) -> Finding:
    """Whether a message outlives a worker that is killed."""
    wrong = [f"{name} of {task.name}" for task in tasks for name in task.switched_off]
    if not wrong:
        return Finding("acknowledgement", "acks_late and reject_on_worker_lost are on")
    advice = "leave these tasks out of task_annotations: no worker starts with this, and it would lose its tasks"
    return Finding("acknowledgement", f"switched off: {', '.join(wrong)}", "fix", advice, ("kept",))


def _about_visibility(visible_again: timedelta, tasks: Any) -> Finding:
    """Whether a task is delivered again while it still runs."""
    longest = max(tasks, key=lambda task: task.policy.max_runtime)
    text = (
        f"{span(visible_again)}; {longest.name} may run for {span(longest.policy.max_runtime)} (max_runtime), and a "
        f"countdown waits for at most {span(visible_again / 2)}"
    )
    if longest.policy.max_runtime < visible_again:
        return Finding("visibility_timeout", text)
    advice = "what takes longer is delivered again meanwhile, and still runs once: raise it, or lower max_runtime"
    return Finding("visibility_timeout", text, "note", advice)


def _about_confirmations(settings: Any) -> Finding:
    """Whether RabbitMQ says that it has what is sent again before the old message is acknowledged."""
    if settings.is_confirmed:
        return Finding("confirm_publish", "on")
    advice = (
        "set broker_transport_options = {'confirm_publish': True}: a broker that ends at the wrong moment may lose a "
        "task while it is sent again"
    )
    return Finding("confirm_publish", "off", "fix", advice, ("kept",))


def _compare(tasks: Any, consumer_timeout: timedelta | None) -> Compared:
    """The task that is forgotten first, with the longest that any may run."""
    first = min(tasks, key=lambda task: task.policy.keep_for)
    return Compared(first.name, first.policy.keep_for, max(task.policy.max_runtime for task in tasks), consumer_timeout)


def _about_rabbitmq(settings: Any, compared: Compared, management: str | None) -> list[Finding]:
    """The settings of its queues, where the management plugin is named; otherwise the usual time limit."""
    if management is None:
        return [about_timeout(compared.consumer_timeout, compared)]
    from semel.events.brokers.rabbitmq_management import read_queue

    findings = []
    for queue in settings.queues:
        try:
            found = read_queue(settings.secret_address, queue, management)
        except ConnectionError as error:
            return [Finding("management", f"{management}: {error}", "fix", NO_PLUGIN)]
        findings += judge(found, compared, is_rabbitmq=True)
    return findings


def _about_backend(backend: str | None) -> Finding:
    """Where results are, which nothing here depends on."""
    if backend is None:
        return Finding("result backend", "none, and none is needed: a second delivery gets the value of the record")
    return Finding("result backend", f"{backend}, for callers alone: a second delivery gets the value of the record")
