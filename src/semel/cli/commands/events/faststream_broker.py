"""What `semel doctor` finds where it looks at the subscribers of a broker of FastStream, and at that broker."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any, Final

from semel.cli.commands.events.broker_limits import NO_PLUGIN, Compared, about_outbox, judge
from semel.cli.commands.events.relays import load_relay
from semel.cli.store_option import load_object
from semel.stores.admin import Finding

_MODULE: Final = "semel.events.brokers.faststream.limits"
_REFUSED: Final = "; nothing was taken. "


def examine_faststream(
    path: str, *, management: str | None, relay: str | None, consumer_timeout: timedelta | None
) -> list[Finding]:
    """What was found about the subscribers of `package.module:object`, a broker or an application.

    Raises:
        Refused: there is no such object.
        UsageError: it is no broker, or a package is missing.
    """
    # By its name: whoever has no FastStream has no such module either.
    subscribers: list[Any] = importlib.import_module(_MODULE).read_subscribers(load_object(path), management)
    if not subscribers:
        return [Finding("subscribers", "none", "note", "name the object that has them once its module is imported")]
    findings = []
    for subscriber in subscribers:
        findings += _about_subscriber(subscriber, relay, consumer_timeout)
    return findings


def _about_subscriber(subscriber: Any, relay: str | None, consumer_timeout: timedelta | None) -> list[Finding]:
    name, consumer = subscriber.name, subscriber.consumer
    if subscriber.refusal is not None:
        text, _, advice = subscriber.refusal.partition(_REFUSED)
        return [Finding("acknowledgement", text, "fix", advice, ("kept",))]
    if consumer is None:
        advice = "events that are delivered again run again there: put an inbox among the middlewares of its broker"
        return [Finding("acknowledgement", f"{name} has no inbox", "note", advice)]
    text = f"{name}: AckPolicy.MANUAL, the inbox of {consumer.name} acknowledges"
    findings = [Finding("acknowledgement", text)]
    policy = consumer.policy
    compared = Compared(consumer.name, policy.keep_for, policy.max_runtime, consumer_timeout, policy.max_attempts)
    if subscriber.silence is not None:
        findings.append(_about_silence(subscriber.silence, is_rabbitmq=subscriber.is_rabbitmq))
    elif subscriber.limits is not None:
        findings += judge(subscriber.limits, compared, is_rabbitmq=subscriber.is_rabbitmq)
    else:
        findings.append(Finding("broker", "of a kind that is not asked", "note", "compare keep_for with its retention"))
    if relay is not None:
        findings.append(about_outbox(load_relay(relay).keep_for, compared))
    return findings


def _about_silence(silence: Exception, *, is_rabbitmq: bool) -> Finding:
    """Why the broker did not tell its settings."""
    if not isinstance(silence, ConnectionError):
        return Finding(
            "broker", str(silence), "note", "FastStream makes what is missing when it starts: look again then"
        )
    advice = NO_PLUGIN if is_rabbitmq else "see that it runs and may be reached from here"
    return Finding("broker", str(silence), "fix", advice)
