"""What the configuration of a Celery application does to tasks that run once.

It is compared when a worker starts, and by `semel doctor`, by the same functions: what ends a worker has to be fixed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from semel.core.policy import Policy
from semel.errors import UsageError
from semel.extras import requires

with requires("Tasks of Celery", "celery"):
    from celery import Celery
    from celery.backends.base import DisabledBackend
    from kombu.exceptions import OperationalError

log = logging.getLogger("semel.events.brokers")

DEMANDED: Final = ("acks_late", "reject_on_worker_lost")
"""Options of a task without which a worker that is killed takes its tasks with it."""
POLICY: Final = "semel_policy"
"""The attribute of a task that has its policy, and by which a task that runs once is known."""
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
_ANSWER_WITHIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class OnceTask:
    """A task that runs once.

    Attributes:
        name: what Celery knows it by.
        policy: how it claims, keeps, waits and recovers.
        switched_off: which of the demanded options the configuration switches off.
    """

    name: str
    policy: Policy
    switched_off: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppSettings:
    """What an application is configured with.

    Attributes:
        address: of the broker, without its password.
        secret_address: the same with it.
        queues: that its workers take from.
        tasks: those that run once.
        visible_again: after how long a message is delivered again that nobody acknowledged; None: it is not.
        is_rabbitmq: whether the broker is RabbitMQ.
        is_confirmed: whether the broker confirms what the application sends.
        is_eager: whether tasks run where they are called, and no broker has them.
        backend: where results are kept, without a password; None: nowhere.
    """

    address: str
    secret_address: str
    queues: tuple[str, ...]
    tasks: tuple[OnceTask, ...]
    visible_again: timedelta | None
    is_rabbitmq: bool
    is_confirmed: bool
    is_eager: bool
    backend: str | None


def read_settings(app: Any) -> AppSettings:
    """What an application is configured with, its tasks imported as a worker does.

    Raises:
        UsageError: it is no application of Celery.
    """
    if not isinstance(app, Celery):
        raise UsageError(f"A {type(app).__qualname__} is no application of Celery; nothing was done.")
    app.loader.import_default_modules()
    app.finalize()
    found = [task for _, task in sorted(app.tasks.items()) if hasattr(task, POLICY)]
    connection = app.connection_for_read()
    transport = _transport(app)
    return AppSettings(
        address=connection.as_uri(),
        secret_address=connection.as_uri(include_password=True),
        queues=tuple(app.amqp.queues),
        tasks=tuple(OnceTask(task.name, getattr(task, POLICY), switched_off(task)) for task in found),
        visible_again=read_visible_again(app),
        is_rabbitmq=transport in _RABBITMQ,
        is_confirmed=_is_confirmed(app),
        is_eager=bool(app.conf.task_always_eager),
        backend=None if isinstance(app.backend, DisabledBackend) else app.backend.as_uri(),
    )


def reach_broker(app: Any) -> None:
    """Connect to the broker of an application, and close the connection.

    Raises:
        ConnectionError: nobody answers, or not to this user.
    """
    try:
        with app.connection_for_read() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=_ANSWER_WITHIN)
    except (OperationalError, OSError) as error:
        raise ConnectionError(f"it did not answer ({type(error.__cause__ or error).__name__})") from error


def switched_off(task: Any) -> tuple[str, ...]:
    """Which options that keep messages from being lost are off."""
    return tuple(name for name in DEMANDED if not getattr(task, name))


def check_settings(app: Any, task: Any, max_runtime: timedelta) -> None:
    """Compare a task with the configuration of a worker that starts.

    Raises:
        SystemExit: messages would be lost; receivers of signals have no other way to end a worker.
    """
    for name in switched_off(task):
        raise SystemExit(
            f"task_annotations set {name} of {task.name} to {getattr(task, name)!r}, which would lose the tasks of "
            f"a worker that is killed; nothing ran. Leave that task out of them."
        )
    _warn_of_unconfirmed(app, task)
    _warn_of_deadline(app, task, max_runtime)


def _transport(app: Any) -> str:
    return str(app.connection_for_read().transport_cls).lower()


def read_visible_again(app: Any) -> timedelta | None:
    """After how long a message is delivered again that nobody acknowledged; None: it is not, or nobody says."""
    transport = _transport(app)
    if transport in _RABBITMQ:
        return None
    seconds = app.conf.broker_transport_options.get("visibility_timeout") or _VISIBLE_AGAIN_AFTER.get(transport)
    return None if seconds is None else timedelta(seconds=seconds)


def read_longest_wait(app: Any) -> timedelta | None:
    """For how long a message may wait for its time; None: nobody says.

    It waits in a worker and counts as taken meanwhile. After too long a transport delivers it again, and each copy
    would be sent again by itself; RabbitMQ closes the channel, and delivers all that is on it again.
    """
    limit = _CHANNEL_CLOSED_AFTER if _transport(app) in _RABBITMQ else read_visible_again(app)
    return None if limit is None else limit / 2


def _is_confirmed(app: Any) -> bool:
    return bool(app.conf.broker_transport_options.get("confirm_publish"))


def _warn_of_unconfirmed(app: Any, task: Any) -> None:
    """Say it where a task that is sent again may be acknowledged before RabbitMQ has the new message."""
    if _transport(app) in _RABBITMQ and not _is_confirmed(app):
        log.warning(
            "RabbitMQ confirms nothing that this application sends, so a broker that ends at the wrong moment may lose "
            "%s while it is sent again. Set broker_transport_options = {'confirm_publish': True}.",
            task.name,
        )


def _warn_of_deadline(app: Any, task: Any, max_runtime: timedelta) -> None:
    """Say it where the broker delivers a task again while it may still run."""
    visible_again = read_visible_again(app)
    if visible_again is not None:
        if max_runtime >= visible_again:
            log.warning(
                "The broker delivers %s again after %g s (visibility_timeout), and it may run for %g s (max_runtime): "
                "what takes longer is delivered again and again meanwhile. It still runs once. Make visibility_timeout "
                "longer, or max_runtime shorter.",
                task.name,
                visible_again.total_seconds(),
                max_runtime.total_seconds(),
            )
    elif _transport(app) in _RABBITMQ and max_runtime >= _CHANNEL_CLOSED_AFTER:
        log.warning(
            "%s may run for %g s (max_runtime), and RabbitMQ closes the channel of a consumer that takes longer than "
            "its consumer_timeout (30 min unless it is told another), with all that is on it. Make max_runtime "
            "shorter, or consumer_timeout longer.",
            task.name,
            max_runtime.total_seconds(),
        )
