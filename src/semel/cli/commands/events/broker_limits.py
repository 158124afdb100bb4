"""What `semel doctor` finds where it compares a consumer and a relay with the broker between them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from semel.cli.commands.events.broker import (
    RABBITMQ,
    SQS,
    adapter_of,
    chosen_broker,
    kind_of,
    places_of,
    refuse_options,
    show_address,
)
from semel.cli.commands.events.letters import load_consumer
from semel.cli.commands.events.relays import load_relay
from semel.cli.exit_codes import usage_error
from semel.core.policy import Policy
from semel.events.brokers.limits import BrokerLimits
from semel.events.consumer import KEEP_FOR
from semel.stores.admin import Finding
from semel.texts import span

_USUAL_TIMEOUT: Final = timedelta(minutes=30)
_SHORT_VISIBILITY: Final = timedelta(seconds=10)
_LONG_VISIBILITY: Final = timedelta(minutes=15)
_REPLACED_WITHIN: Final = timedelta(seconds=70)
"""A relay that was killed is replaced after its lease of 10 s; the next may need a pause and a time-out, 30 s each."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What the broker is compared with.

    Attributes:
        name: of the consumer; None: the settings are the usual ones.
        keep_for: how long the consumer's marks are kept.
        max_runtime: how long a handler may run.
        consumer_timeout: what the broker is configured with, as somebody says.
        max_attempts: after how many attempts an event becomes a dead letter; None: nobody says.
    """

    name: str | None
    keep_for: timedelta
    max_runtime: timedelta
    consumer_timeout: timedelta | None = None
    max_attempts: int | None = None

    @property
    def marks(self) -> str:
        """The consumer's marks, in words."""
        whose = "a consumer that sets nothing" if self.name is None else self.name
        return f"marks of {whose} are kept for {span(self.keep_for)}"


def examine_broker(
    broker: str | None,
    places: Mapping[str, str | None],
    *,
    management: str | None,
    consumer: str | None,
    relay: str | None,
    consumer_timeout: timedelta | None,
) -> list[Finding]:
    """What was found about a broker; nothing where no queue and no stream is named.

    Raises:
        Refused: the options do not fit together.
        UsageError: there is no such queue or stream.
    """
    if places["queue"] is None and places["stream"] is None:
        _refuse_without_broker(
            {**places, "management": management, "consumer": consumer, "relay": relay, "timeout": consumer_timeout}
        )
        return []
    compared = compared_with(consumer, consumer_timeout)
    url = chosen_broker(broker)
    kind = kind_of(url)
    try:
        found = _read(url, places, member=compared.name, management=management)
    except ConnectionError as error:
        where = management or show_address(url)
        advice = NO_PLUGIN if kind is RABBITMQ else "see that it runs and may be reached from here"
        return [Finding("broker", f"{where}: {error}", "fix", advice)]
    findings = judge(found, compared, is_rabbitmq=kind is RABBITMQ)
    if relay is not None:
        findings.append(about_outbox(load_relay(relay).keep_for, compared))
    return findings


def compared_with(consumer: str | None, consumer_timeout: timedelta | None = None) -> Compared:
    """What is known of a consumer `package.module:object`; None: of one that sets nothing.

    Raises:
        Refused: there is no such consumer.
    """
    loaded = None if consumer is None else load_consumer(consumer)
    policy = Policy() if loaded is None else loaded.policy
    return Compared(
        None if loaded is None else loaded.name,
        KEEP_FOR if loaded is None else policy.keep_for,
        policy.max_runtime,
        consumer_timeout,
        policy.max_attempts,
    )


NO_PLUGIN: Final = (
    "RabbitMQ tells its settings through its management plugin: rabbitmq-plugins enable rabbitmq_management, or give "
    "--management http://host:port"
)


def refuse_beside(option: str, others: Mapping[str, object]) -> None:
    """Refuse options that say what another one says already.

    Raises:
        Refused: one of them was given.
    """
    for name, value in others.items():
        if value is not None:
            raise usage_error(f"--{name} cannot be given beside {option}, which brings its own; nothing was done.")


def _refuse_without_broker(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            option = "--consumer-timeout" if name == "timeout" else f"--{name}"
            raise usage_error(f"{option} needs a broker; nothing was done. Give --broker with --queue or --stream.")


def _read(url: str, places: Mapping[str, str | None], *, member: str | None, management: str | None) -> BrokerLimits:
    kind = kind_of(url)
    where = places_of(kind, places)
    if kind is RABBITMQ:
        from semel.events.brokers.rabbitmq_management import read_queue

        return read_queue(url, where["queue"], management)
    refuse_options(kind, management=management)
    if kind is SQS:
        queue: BrokerLimits = asyncio.run(adapter_of(kind).read_queue(url, where["queue"]))
        return queue
    member = where.get(kind.member or "", member)
    found: BrokerLimits = asyncio.run(adapter_of(kind).read_stream(url, where["stream"], member))
    return found


def judge(found: BrokerLimits, compared: Compared, *, is_rabbitmq: bool) -> list[Finding]:
    """What the settings of a broker mean for a consumer and a relay."""
    findings = [_about_redelivery(found, compared)]
    if found.drops_expired and found.longest is not None:
        advice = (
            "give the queue an x-dead-letter-exchange, which keeps them"
            if is_rabbitmq
            else "see that consumers are never behind for so long: watch the age of the oldest message"
        )
        text = f"deleted after {span(found.longest)}, processed or not"
        findings.append(Finding("expired messages", text, "note", advice))
    if found.drops_when_full is not None:
        advice = "the oldest messages are deleted, processed or not: have it refuse new ones, so that a relay waits"
        findings.append(Finding("full queue", found.drops_when_full, "note", advice))
    if found.delivery_limit is not None:
        findings.append(_about_deliveries(found.delivery_limit, found.delivery_limited_by, compared))
    if is_rabbitmq:
        findings.append(about_timeout(found.consumer_timeout or compared.consumer_timeout, compared))
    if found.duplicate_window is not None:
        findings.append(_about_window(found.duplicate_window))
    if found.visibility is not None:
        findings.append(_about_visibility(found.visibility, found.longest_visibility, compared))
    return findings


def _about_redelivery(found: BrokerLimits, compared: Compared) -> Finding:
    """Whether a message can come again when its mark is forgotten."""
    if found.longest is None:
        return Finding(
            "redelivery",
            f"{found.place}: no limit ({found.limited_by}); {compared.marks}",
            "note",
            f"a message that was processed, not acknowledged, and lies there for longer than keep_for runs again: set "
            f"{found.limited_by}, or see that nothing lies there so long",
        )
    text = f"{found.place}: up to {span(found.longest)} ({found.limited_by}); {compared.marks}"
    if found.longest <= compared.keep_for:
        return Finding("redelivery", text)
    advice = (
        f"raise keep_for of the consumer above it, or lower {found.limited_by}: a message that comes later runs again"
    )
    return Finding("redelivery", text, "fix", advice, ("kept",))


def about_timeout(timeout: timedelta | None, compared: Compared) -> Finding:
    """Whether a handler may run for longer than RabbitMQ waits."""
    limit = timeout or _USUAL_TIMEOUT
    known = "" if timeout is not None else " unless configured otherwise"
    text = f"{span(limit)}{known}; a handler may run for {span(compared.max_runtime)} (max_runtime)"
    if compared.max_runtime < limit:
        return Finding("consumer_timeout", text)
    advice = "the broker closes the channel and delivers all its messages again: lower max_runtime, or raise it"
    return Finding("consumer_timeout", text, "note" if timeout is None else "fix", advice)


def _about_deliveries(limit: int, limited_by: str, compared: Compared) -> Finding:
    """Whether the broker gives a message up before the consumer does."""
    if compared.max_attempts is None or limit > compared.max_attempts:
        advice = "the broker also counts deliveries that only had to wait: leave it to max_attempts of the consumer"
        return Finding("delivery limit", f"{limited_by} = {limit}", "note", advice)
    text = f"{limited_by} = {limit}; the consumer tries {compared.max_attempts} times (max_attempts)"
    advice = f"the broker takes a message away before it is a dead letter here: raise {limited_by} well above it"
    return Finding("delivery limit", text, "fix", advice)


def _about_visibility(visibility: timedelta, longest: timedelta | None, compared: Compared) -> Finding:
    """Whether a message stays hidden from others while its handler runs."""
    text = f"{span(visibility)}, extended while a handler runs; that may be {span(compared.max_runtime)} (max_runtime)"
    if not visibility:
        return Finding("visibility time-out", text, "fix", "nobody can listen to a queue that hides nothing: raise it")
    if longest is not None and compared.max_runtime >= longest:
        advice = f"after {span(longest)} the message is given to others while its handler runs: lower max_runtime"
        return Finding("visibility time-out", text, "fix", advice)
    if visibility < _SHORT_VISIBILITY:
        advice = (
            f"raise it to {span(_SHORT_VISIBILITY)} or more: one extension that is late is a delivery to somebody else"
        )
        return Finding("visibility time-out", text, "note", advice)
    if visibility > _LONG_VISIBILITY:
        return Finding("visibility time-out", text, "note", "what a process had that was killed comes again only then")
    return Finding("visibility time-out", text)


def _about_window(window: timedelta) -> Finding:
    """Whether what a relay publishes again is left out by the stream."""
    text = f"{span(window)} (duplicate_window); a relay that was killed is replaced within {span(_REPLACED_WITHIN)}"
    if window >= _REPLACED_WITHIN:
        return Finding("repeats of relays", text)
    advice = (
        "raise duplicate_window: until then the stream keeps what a relay publishes again, and consumers leave it out"
    )
    return Finding("repeats of relays", text, "note", advice)


def about_outbox(keep_for: timedelta, compared: Compared) -> Finding:
    """Whether consumers know all that can be published again from the outbox."""
    text = f"published events are kept for {span(keep_for)} (keep_for of the relay); {compared.marks}"
    if keep_for <= compared.keep_for:
        return Finding("kept events", text)
    advice = (
        "what is published again from the outbox may run again: lower keep_for of the relay, or raise the consumer's"
    )
    return Finding("kept events", text, "note", advice)
