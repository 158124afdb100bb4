"""Looking at a table: its key, its expiry, its replicas, this machine's clock, and what waits there.

What always holds: nothing is changed. No more than a sample of the records is read, because reading is paid for.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any, Final

from semel.core.record import Status
from semel.stores.clock import StoreClock
from semel.stores.doctor import MICROSECOND, Finding, Numbers, about_clock, about_records, demanded
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call, Item, Now
from semel.stores.dynamodb.expressions import Expression
from semel.stores.dynamodb.items import TTL, plain, settled_statuses
from semel.stores.dynamodb.schema import described, expiring, keyed

_PAGES: Final = 20
_WANTED: Final = ("status", "lease_us", "expires_us", "keep_us")
Steps = Generator[Any, Any, Any]


def examining(table: str, horizon: timedelta, clock: StoreClock) -> Steps:
    """What is found there."""
    description = yield from described(table)
    if description is None:
        return [Finding("schema", "there is no such table", "fix", "run `semel migrate`", ("schema",))]
    findings = [
        demanded(
            "schema",
            f"key {_key(description)}",
            "this is a table of something else: name another one",
            "schema",
            fine=keyed(description),
        ),
        state(description["TableStatus"]),
        replicas(description),
        Finding("paid for", description.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")),
        time_to_live((yield from expiring(table))),
    ]
    moment: Moment = yield Now()
    offset = clock() - (moment.low + moment.high) // 2
    findings.append(about_clock(offset * MICROSECOND, (moment.high - moment.low) / 2 * MICROSECOND))
    if keyed(description):
        numbers, partial = yield from _numbers(table, moment)
        findings += about_records(numbers, horizon)
        if partial:
            advice = "a listing reads the whole table: `semel list --status in_doubt`"
            findings.append(Finding("sample", f"the first {_PAGES} MB of records", "note", advice))
    return findings


def state(status: str) -> Finding:
    """Whether the table takes requests."""
    advice = "wait until it is ACTIVE, or look at it in the console of the service"
    return demanded("table", status, advice, "durable", fine=status in ("ACTIVE", "UPDATING"))


def replicas(description: dict[str, Any]) -> Finding:
    """Whether another region could let somebody else win."""
    regions = [one["RegionName"] for one in description.get("Replicas", [])]
    strong = description.get("MultiRegionConsistency") == "STRONG"
    if not regions:
        return Finding("replicas", "one region decides")
    found = f"also in {', '.join(regions)}, {'strongly' if strong else 'eventually'} consistent"
    advice = "two regions can each let a claim win: send all claims to one, or use strong consistency across regions"
    return demanded("replicas", found, advice, "primary", fine=strong)


def time_to_live(attribute: str) -> Finding:
    """Whether the service deletes what has expired."""
    if attribute == TTL:
        return Finding("time to live", "the service deletes expired records by itself, within days")
    if attribute:
        advice = f"the service deletes by {attribute!r}, which is not semel's: switch it off"
        return Finding("time to live", attribute, "fix", advice, ("kept",))
    advice = "expired records stay until `semel sweep`: run `semel migrate` to have the service delete them"
    return Finding("time to live", "off", "note", advice)


def _key(description: dict[str, Any]) -> str:
    kinds = {one["AttributeName"]: one["AttributeType"] for one in description["AttributeDefinitions"]}
    return ", ".join(f"{one['AttributeName']} ({kinds[one['AttributeName']]})" for one in description["KeySchema"])


def _numbers(table: str, moment: Moment) -> Steps:
    expression = Expression()
    projection = ", ".join(expression.name(name) for name in _WANTED)
    parameters = {"TableName": table, "ProjectionExpression": projection, **expression.parameters()}
    expired = in_doubt = lapsed = 0
    shortest: int | None = None
    start: Item | None = {}
    for _ in range(_PAGES):
        reply = yield Call("scan", {**parameters, **({"ExclusiveStartKey": start} if start else {})})
        for item in reply["Items"]:
            status, lease_us, expires_us, keep_us = (plain(item[name]) for name in _WANTED)
            expired += status in settled_statuses() and expires_us <= moment.low
            in_doubt += status == Status.IN_DOUBT
            lapsed += status == Status.RUNNING and lease_us <= moment.low
            shortest = keep_us if shortest is None else min(shortest, keep_us)
        start = reply.get("LastEvaluatedKey")
        if start is None:
            break
    return Numbers(expired, in_doubt, lapsed, shortest), start is not None
