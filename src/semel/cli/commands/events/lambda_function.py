"""What `semel doctor` finds about a function of AWS Lambda: whether failures come again, and in time."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from semel.cli.commands.events.broker import SQS, adapter_of
from semel.cli.commands.events.broker_limits import Compared, compared_with, judge
from semel.events.brokers.aws_lambda import STOP_BEFORE
from semel.events.brokers.limits import BrokerLimits
from semel.stores.admin import Finding
from semel.texts import span

_MODULE: Final = "semel.events.brokers.lambda_triggers"
_TIMES: Final = 6
"""How many times as long as an invocation AWS asks a message to be hidden."""
_KNOWN: Final = ("sqs", "kinesis")


def examine_lambda(function: str, *, consumer: str | None) -> list[Finding]:
    """What was found about a function, by its name or its ARN.

    Raises:
        Refused: there is no such consumer.
        UsageError: there is no such function, or it may not be looked at.
    """
    compared = compared_with(consumer)
    try:
        # By its name: without boto3 there is no such module to import.
        found = importlib.import_module(_MODULE).read_function(function)
    except ConnectionError as error:
        return [Finding("function", f"{function}: {error}", "fix", "see that Lambda may be reached from here")]
    findings = [_about_time(found)]
    findings.append(_about_table(found.table))
    if not found.triggers:
        advice = "EventBridge is not listed here; for a queue or a stream, add an event source mapping"
        findings.append(Finding("triggers", "no queue and no stream", "note", advice))
    for trigger in found.triggers:
        findings += _about_trigger(trigger, found.longest, compared)
    return findings


def _about_time(found: Any) -> Finding:
    """Whether an invocation has time for more than one record."""
    text = f"{found.name}: an invocation takes up to {span(found.longest)}"
    if found.longest > STOP_BEFORE:
        return Finding("function", text)
    advice = (
        f"raise Timeout above {span(STOP_BEFORE)}, or give handler(…, stop_before=) less: of each batch only one "
        f"record is begun, and the others count as received"
    )
    return Finding("function", text, "fix", advice)


def _about_table(table: str | None) -> Finding:
    if table:
        return Finding("TABLE_NAME", table)
    return Finding("TABLE_NAME", "not set", "note", "aws_lambda.table_url() needs it; a URL of your own does not")


def _about_trigger(trigger: Any, longest: timedelta, compared: Compared) -> list[Finding]:
    name = f"{trigger.service} {trigger.source}"
    if trigger.service not in _KNOWN:
        return [Finding("triggers", name, "fix", "the handler takes records of SQS and Kinesis: remove this trigger")]
    findings = [_about_failures(name, trigger.reports_failures)]
    if not trigger.is_enabled:
        findings.append(Finding("triggers", f"{name}: disabled", "note", "nothing is taken from there"))
    if trigger.service == "kinesis":
        findings.append(_about_retries(name, trigger.most_retries, compared))
        if trigger.oldest is not None:
            findings.append(_about_age(name, trigger.oldest))
    else:
        findings += _about_queue(trigger, longest, compared)
    return findings


def _about_failures(name: str, is_on: bool) -> Finding:
    """Whether what failed comes again."""
    if is_on:
        return Finding("partial batch responses", f"{name}: ReportBatchItemFailures")
    advice = (
        "set FunctionResponseTypes = [ReportBatchItemFailures] of this trigger: without it Lambda deletes the whole "
        "batch, what failed included"
    )
    return Finding("partial batch responses", f"{name}: off", "fix", advice, ("kept",))


def _about_retries(name: str, most: int | None, compared: Compared) -> Finding:
    """Whether Lambda gives records of a stream up before the consumer does."""
    if most is None:
        return Finding("retries", f"{name}: for as long as the stream keeps records")
    text = f"{name}: MaximumRetryAttempts = {most}"
    advice = "set it to -1: Lambda drops a batch after so many, and the consumer ends what fails by max_attempts"
    is_short = compared.max_attempts is not None and most < compared.max_attempts
    return Finding("retries", text, "fix" if is_short else "note", advice)


def _about_age(name: str, oldest: timedelta) -> Finding:
    """That Lambda drops records of a stream which nobody was given."""
    text = f"{name}: dropped after {span(oldest)} (MaximumRecordAgeInSeconds), processed or not"
    advice = "set it to -1: while the function cannot work, or is behind, no dead letter is made of what is dropped"
    return Finding("expired messages", text, "note", advice)


def _about_queue(trigger: Any, longest: timedelta, compared: Compared) -> list[Finding]:
    try:
        limits: BrokerLimits = asyncio.run(adapter_of(SQS).read_queue(f"sqs://{trigger.region}", trigger.source))
    except ConnectionError as error:
        return [Finding("queue", f"{trigger.source}: {error}", "fix", "see that SQS may be reached from here")]
    assert limits.visibility is not None  # noqa: S101 - every queue has one
    text = f"{span(limits.visibility)}; an invocation takes up to {span(longest)}"
    finding = Finding("visibility time-out", text)
    if limits.visibility < _TIMES * longest:
        advice = f"raise it to {span(_TIMES * longest)}, as AWS asks: a message comes back while it still runs"
        finding = Finding("visibility time-out", text, "note", advice)
    return [finding, *judge(replace(limits, visibility=None), compared, is_rabbitmq=False)]
