"""Tasks of Celery: what keeps their messages from being lost, and how they are sent again.

A message is acknowledged after its task ended and given back when a worker is lost, so nothing is lost; what may be
delivered twice for that reason is told apart by records.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final, cast

from semel.celery_tasks.settings import DEMANDED, check_settings, read_longest_wait
from semel.errors import SemelError, UsageError
from semel.extras import requires

with requires("Tasks of Celery", "celery"):
    from celery import signals
    from celery.exceptions import Reject, Retry
    from celery.local import Proxy

log = logging.getLogger("semel.events.brokers")

_CLOSE: Final = 0.8


def task_settings(app: Any, options: dict[str, Any], decorator: str, fields: Collection[str]) -> dict[str, Any]:
    """The options of `app.task`, with what keeps messages from being lost.

    Args:
        app: the Celery application.
        options: what was given.
        decorator: who was given it, for messages.
        fields: the names of settings of its own, which are not among the options.

    Raises:
        UsageError: one of those is switched off, or an option looks like a misspelt field of the policy.
    """
    for name in DEMANDED:
        if options.get(name, True) is not True:
            raise UsageError(
                f"{name}={options[name]!r} would lose the tasks of a worker that is killed; nothing was decorated. "
                f"Leave it out: {decorator} sets it."
            )
    base = options.get("base") or app.Task
    for name in options:
        near = () if hasattr(base, name) else get_close_matches(name, fields, n=1, cutoff=_CLOSE)
        if near:
            raise UsageError(f"There is no option {name!r}; nothing was decorated. Did you mean {near[0]!r}?")
    # What semel says is answered here, with a retry of its own where one is of use.
    unasked = (*options.get("dont_autoretry_for", getattr(base, "dont_autoretry_for", ())), SemelError)
    return {**options, **dict.fromkeys(DEMANDED, True), "dont_autoretry_for": unasked}


def send_again(task: Any, error: Exception, wait: timedelta, args: tuple[Any, ...] | None = None) -> Exception:
    """Send the task again, later, without counting it as a retry; gives what tells Celery so.

    With `args` it is sent with those instead of its own.

    In eager mode nothing waits and nothing runs beside it, so trying again would only be the same again.
    """
    request = task.request
    if request.is_eager:
        return error
    seconds = min(wait, read_longest_wait(task.app) or wait).total_seconds()
    kwargs: dict[str, Any] | None = None if args is None else {}
    again = task.signature_from_request(request, args, kwargs, countdown=seconds, retries=request.retries)
    try:
        again.apply_async()
    except Exception as problem:  # noqa: BLE001 - every transport has errors of its own
        log.warning("%s could not be sent again (%s), so its message is given back.", task.name, problem)
        return cast("Exception", Reject(problem, requeue=True))
    return cast("Exception", Retry(exc=error, when=seconds, sig=again))


def check_when_a_worker_starts(app: Any, task: Any, max_runtime: timedelta) -> None:
    """Have a worker of `app` compare the task with its configuration before it takes anything."""
    # Celery's `current_app` stands for an application, which is another one later.
    own = app._get_current_object() if isinstance(app, Proxy) else app  # noqa: SLF001 - how Celery itself asks

    def check(sender: Any, **_: Any) -> None:
        if sender.app is own:
            check_settings(own, task, max_runtime)

    signals.worker_init.connect(check, weak=False)
