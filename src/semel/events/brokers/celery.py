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
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final, TypedDict, cast

from semel.api import Semel
from semel.core.key import SHARED
from semel.core.policy import Policy, PolicyFields
from semel.engine.decorator import AboutRule, FingerprintRule, KeyRule, ScopeRule, operation_name
from semel.engine.engine import engine_of
from semel.errors import FailedBefore, InDoubt, KeyMissing, LeaseLost, SemelError, TryLater, UsageError
from semel.extras import requires

with requires("semel.events.brokers.celery", "celery"):
    from celery import current_task, signals
    from celery.exceptions import Ignore, Reject, Retry

log = logging.getLogger("semel.events.brokers")

_DEMANDED: Final = ("acks_late", "reject_on_worker_lost")
_POLICY: Final = frozenset(PolicyFields.__annotations__)
_CLOSE: Final = 0.8
_SOON: Final = timedelta(seconds=1)
_IGNORED: Final = f"{Ignore.__module__}.{Ignore.__qualname__}"
_VISIBLE_AGAIN_AFTER: Final[Mapping[str, float]] = {
    "redis": 3600,
    "rediss": 3600,
    "sentinel": 3600,
    "sqs": 1800,
}
"""Seconds after which these transports deliver again what nobody acknowledged, unless they are told others."""
_RABBITMQ: Final = ("amqp", "amqps", "pyamqp")
_CHANNEL_CLOSED_AFTER: Final = timedelta(minutes=30)
"""RabbitMQ's own default of `consumer_timeout`."""


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
    settings = _task_settings(app, options)
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
        def run(task: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return once(*((task, *args) if is_bound else args), **kwargs)
            except SemelError as error:
                told = _answer(task, error)
                if told is error:
                    raise
                raise told from error

        run.__signature__ = _signature(once, is_bound=is_bound)  # type: ignore[attr-defined]  # what Celery checks
        made = app.task(bind=True, **settings)(run)
        settled = engine_of(semel).policy_for(operation_name(function, operation), policy, changes)
        _check_when_a_worker_starts(app, made, settled)
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


def _task_settings(app: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options of `app.task`, with what keeps messages from being lost.

    Raises:
        UsageError: one of those is switched off, or an option looks like a misspelt field of the policy.
    """
    for name in _DEMANDED:
        if options.get(name, True) is not True:
            raise UsageError(
                f"{name}={options[name]!r} would lose the tasks of a worker that is killed; nothing was decorated. "
                f"Leave it out: once_task() sets it."
            )
    base = options.get("base") or app.Task
    for name in options:
        near = () if hasattr(base, name) else get_close_matches(name, _POLICY, n=1, cutoff=_CLOSE)
        if near:
            raise UsageError(f"There is no option {name!r}; nothing was decorated. Did you mean {near[0]!r}?")
    # What semel says is answered here, with a retry of its own where one is of use.
    unasked = (*options.get("dont_autoretry_for", getattr(base, "dont_autoretry_for", ())), SemelError)
    return {**options, **dict.fromkeys(_DEMANDED, True), "dont_autoretry_for": unasked}


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
            return _send_again(task, error, wait)
        case LeaseLost():
            return _send_again(task, error, _SOON)  # its new holder knows the outcome, or will
        case InDoubt(message=message, reference=reference):
            return TaskInDoubt(f"{message} Reference: {reference}.", reference)
        case FailedBefore(error_type=kind) if kind == _IGNORED:
            return cast("Exception", Ignore(error.error_message))
    return error


def _send_again(task: Any, error: SemelError, wait: timedelta) -> Exception:
    """Send the task again, later, without counting it as a retry; gives what tells Celery so.

    In eager mode nothing waits and nothing runs beside it, so trying again would only be the same again.
    """
    request = task.request
    if request.is_eager:
        return error
    seconds = wait.total_seconds()
    visible_again = task.app.conf.broker_transport_options.get("visibility_timeout")
    if visible_again:
        # A message that waits for its time counts as taken. Waiting longer than that would have it delivered again,
        # and each copy would be sent again by itself.
        seconds = min(seconds, visible_again / 2)
    again = task.signature_from_request(request, countdown=seconds, retries=request.retries)
    try:
        again.apply_async()
    except Exception as problem:  # noqa: BLE001 - every transport has errors of its own
        log.warning("%s could not be sent again (%s), so its message is given back.", task.name, problem)
        return cast("Exception", Reject(problem, requeue=True))
    return cast("Exception", Retry(exc=error, when=seconds, sig=again))


def _check_when_a_worker_starts(app: Any, task: Any, policy: Policy) -> None:
    """Have a worker of `app` compare the task with its configuration before it takes anything."""

    def check(sender: Any, **_: Any) -> None:
        if sender.app is app:
            _refuse_annotations(task)
            _warn_of_unconfirmed(app, task)
            _warn_of_deadline(app, task, policy.max_runtime)

    signals.worker_init.connect(check, weak=False)


def _refuse_annotations(task: Any) -> None:
    """Refuse a configuration that switches off what keeps messages from being lost.

    Raises:
        SystemExit: it does; receivers of signals have no other way to end a worker.
    """
    for name in _DEMANDED:
        if not getattr(task, name):
            raise SystemExit(
                f"task_annotations set {name} of {task.name} to {getattr(task, name)!r}, which would lose the tasks of "
                f"a worker that is killed; nothing ran. Leave that task out of them."
            )


def _transport(app: Any) -> str:
    return str(app.connection_for_read().transport_cls).lower()


def _warn_of_unconfirmed(app: Any, task: Any) -> None:
    """Say it where a task that is sent again may be acknowledged before RabbitMQ has the new message."""
    if _transport(app) in _RABBITMQ and not app.conf.broker_transport_options.get("confirm_publish"):
        log.warning(
            "RabbitMQ confirms nothing that this application sends, so a broker that ends at the wrong moment may lose "
            "%s while it is sent again. Set broker_transport_options = {'confirm_publish': True}.",
            task.name,
        )


def _warn_of_deadline(app: Any, task: Any, max_runtime: timedelta) -> None:
    """Say it where the broker delivers a task again while it may still run."""
    transport = _transport(app)
    seconds = max_runtime.total_seconds()
    if transport in _VISIBLE_AGAIN_AFTER:
        given = app.conf.broker_transport_options.get("visibility_timeout")
        visible_again = _VISIBLE_AGAIN_AFTER[transport] if given is None else given
        if seconds >= visible_again:
            log.warning(
                "The broker delivers %s again after %g s (visibility_timeout), and it may run for %g s (max_runtime): "
                "what takes longer is delivered again and again meanwhile. It still runs once. Make visibility_timeout "
                "longer, or max_runtime shorter.",
                task.name,
                visible_again,
                seconds,
            )
    elif transport in _RABBITMQ and max_runtime >= _CHANNEL_CLOSED_AFTER:
        log.warning(
            "%s may run for %g s (max_runtime), and RabbitMQ closes the channel of a consumer that takes longer than "
            "its consumer_timeout (30 min unless it is told another), with all that is on it. Make max_runtime "
            "shorter, or consumer_timeout longer.",
            task.name,
            seconds,
        )
