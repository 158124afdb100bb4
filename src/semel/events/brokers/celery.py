"""Celery: `once_task` makes a task whose body runs once per key, however often its message is delivered.

- A message is acknowledged after its task ended and given back when a worker is lost, so nothing is lost; what is
  delivered twice for that reason is told apart by its record.
- What may succeed later is sent again with a countdown. That is no failure of the task: `max_retries` and the number of
  retries are those of the task's own errors.
- The key is that of `semel.once`, or the task's id, which a retry and a second delivery keep.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypedDict, cast

from semel.api import Semel
from semel.celery_tasks.settings import POLICY
from semel.celery_tasks.tasks import check_when_a_worker_starts, send_again, task_settings
from semel.core.key import SHARED
from semel.core.policy import Policy, PolicyFields
from semel.engine.decorator import AboutRule, FingerprintRule, KeyRule, ScopeRule, operation_name
from semel.engine.engine import engine_of
from semel.errors import FailedBefore, InDoubt, KeyMissing, LeaseLost, SemelError, TryLater, UsageError
from semel.extras import requires

with requires("semel.events.brokers.celery", "celery"):
    from celery import current_task
    from celery.exceptions import Ignore, Reject, Retry

_POLICY: Final = frozenset(PolicyFields.__annotations__)
_SOON: Final = timedelta(seconds=1)
_IGNORED: Final = f"{Ignore.__module__}.{Ignore.__qualname__}"


class TaskInDoubt(InDoubt):
    """The task started before, no outcome is known, and nobody but a person can tell; `reference` names the record.

    Result backends keep an exception as its class and its arguments, so the reference is one of them.
    """

    def __init__(self, message: str, reference: str = "", **facts: Any) -> None:
        super().__init__(message, reference=reference, **facts)
        self.args = (message, reference)

    def __str__(self) -> str:
        return self.message


class _Rules(TypedDict):
    """What `semel.once` is given, but for the key and what is ignored."""

    scope: ScopeRule
    operation: str | None
    fingerprint: FingerprintRule
    about: AboutRule
    upgrade: Callable[[Any], Any] | None
    policy: Policy | None


def once_task(
    app: Any,
    semel: Semel,
    *,
    key: KeyRule | None = None,
    scope: ScopeRule = SHARED,
    operation: str | None = None,
    ignore: tuple[str, ...] = (),
    fingerprint: FingerprintRule = None,
    about: AboutRule = None,
    upgrade: Callable[[Any], Any] | None = None,
    policy: Policy | None = None,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function so that it is a task of `app` and runs once per key.

    Args:
        app: the Celery application.
        semel: the engine.
        key: as for `semel.once`; by default the id of the task.
        scope: as for `semel.once`.
        operation: as for `semel.once`.
        ignore: as for `semel.once`; the `self` of a task with `bind=True` is ignored by itself.
        fingerprint: as for `semel.once`.
        about: as for `semel.once`.
        upgrade: as for `semel.once`.
        policy: how to claim, keep, wait and recover; by default that of the engine.
        options: fields of the policy, and whatever `app.task` takes. Here `when_running` is "reject": who waits would
            take the place of another task.

    Raises:
        UsageError: a message could be lost, or something about the function could not be kept.
    """
    if not isinstance(semel, Semel):
        raise UsageError(
            f"once_task() takes a Semel, not a {type(semel).__name__}: Celery calls plain functions; nothing was "
            f"decorated."
        )
    changes = cast("PolicyFields", {name: options.pop(name) for name in _POLICY & options.keys()})
    if policy is None:
        changes = {"when_running": "reject", **changes}
    changes |= _endings_of_celery(engine_of(semel).policy_of(policy, changes))
    settings = task_settings(app, options, "once_task()", _POLICY)
    is_bound = bool(settings.pop("bind", False))
    rules: _Rules = {
        "scope": scope,
        "operation": operation,
        "fingerprint": fingerprint,
        "about": about,
        "upgrade": upgrade,
        "policy": policy,
    }

    def decorate(function: Callable[..., Any]) -> Any:
        unseen = (*ignore, *_first_parameter(function)) if is_bound else ignore
        if is_bound and fingerprint is not None:
            unseen = ignore  # what is compared is named, so there is nothing to leave out
        once = semel.once(key=key or _id_of_task, ignore=unseen, **rules, **changes)(function)

        @functools.wraps(function)
        def run(task: Any, /, *args: Any, **kwargs: Any) -> Any:
            try:
                return once(*((task, *args) if is_bound else args), **kwargs)
            except SemelError as error:
                told = _answer(task, error)
                if told is error:
                    raise
                raise told from error

        run.__signature__ = _signature(once, is_bound=is_bound)  # type: ignore[attr-defined]  # what Celery checks
        settled = engine_of(semel).policy_for(operation_name(function, operation), policy, changes)
        made = app.task(bind=True, **settings, **{POLICY: settled})(run)
        check_when_a_worker_starts(app, made, settled.max_runtime)
        return made

    return decorate


def _endings_of_celery(policy: Policy) -> PolicyFields:
    """What the exceptions mean by which a body speaks to Celery.

    `Retry` and `Reject` hand the message back: nothing happened, it may run again. `Ignore` is an end like any other.

    Raises:
        UsageError: all errors are final, these too.
    """
    for error in policy.final_errors:
        if issubclass(Retry, error):
            raise UsageError(
                f"final_errors holds {error.__name__}, and so Celery's Retry, by which a task asks to be run again; "
                f"nothing was decorated. Name the errors that are final."
            )
    return {
        "final_errors": (*policy.final_errors, Ignore),
        "retry_errors": (*policy.retry_errors, Retry, Reject),
    }


def _first_parameter(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)[:1]


def _signature(once: Callable[..., Any], *, is_bound: bool) -> inspect.Signature:
    """The parameters that callers give, after that of the task itself."""
    signature = inspect.signature(once)
    if is_bound:
        return signature
    task = inspect.Parameter("_semel_task", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(one.kind is inspect.Parameter.POSITIONAL_ONLY for one in signature.parameters.values()):
        task = task.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
    return signature.replace(parameters=[task, *signature.parameters.values()])


def _id_of_task(*_: Any, **__: Any) -> str:
    """The id of the task that runs here: of this application, or of another one that shares its tasks.

    Raises:
        KeyMissing: the task was called as a function, which gives it no id.
    """
    found = current_task.request.id if current_task else None
    if found is None:
        raise KeyMissing(
            "The task was called as a function, and its key is the id of the task, which only delay(), apply_async() "
            "and apply() give it; nothing ran. Use one of them, or name key=."
        )
    return str(found)


def _answer(task: Any, error: SemelError) -> Exception:
    """What is raised to Celery, or to the caller of a task that was called as a function."""
    if task.request.called_directly:
        return error
    match error:
        case TryLater(retry_after=timedelta() as wait) | InDoubt(retry_after=timedelta() as wait):
            return send_again(task, error, wait)
        case LeaseLost():
            return send_again(task, error, _SOON)  # its new holder knows the outcome, or will
        case InDoubt(message=message, reference=reference):
            return TaskInDoubt(f"{message} Reference: {reference}.", reference)
        case FailedBefore(error_type=kind) if kind == _IGNORED:
            return cast("Exception", Ignore(error.error_message))
    return error
