"""Administration of a DynamoDB table: creating it, and `semel doctor`.

- An existing table is never changed, except that its time to live is switched on, and that it gets the indexes for
  events, and for searching where they are asked for; nothing is deleted.
- In a table of a service these indexes hold only items of semel, and a time to live of the service's stays as it is.
- The doctor changes nothing and reads only a sample of the records, because reads are paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from semel.core.flow import Flow
from semel.core.record import Status
from semel.errors import SchemaOutdated, StoreUnavailable
from semel.stores.admin import MICROSECOND, Admin, Finding, Half, Numbers, about_clock, about_records, required_finding
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call, Item, Now, Pause, Steps
from semel.stores.dynamodb.driver import DynamoDriver
from semel.stores.dynamodb.events.items import INDEX, PLACE, POSITION
from semel.stores.dynamodb.items import KEY, SEARCHED, TTL, is_record, plain, search_attribute, settled_statuses
from semel.stores.dynamodb.layout import PREFIX, SharedLayout
from semel.stores.dynamodb.request_builders import Expression, index_of
from semel.stores.dynamodb.settings import Settings
from semel.stores.settings import StoreClock, machine_clock

_LOOKS: Final = 120
_BETWEEN: Final = 0.5


class DynamoAdmin(Admin):
    """What operators do to a table; each call uses a driver of its own, which is closed when it returns."""

    def __init__(self, settings: Settings, make_driver: Callable[[], DynamoDriver]) -> None:
        super().__init__(settings.name)
        self._table = settings.table
        self._layout = settings.layout
        self._make_driver = make_driver

    def migrate(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> list[str]:
        """Make the table, and have the service delete what has expired; answers what was done.

        Raises:
            SchemaOutdated: there is a table of that name with another key.
            StoreUnavailable: the service did not answer.
        """
        del half, partitions  # there is nothing to choose
        done: list[str] = self._run(migrate_table(self._table, search=search, layout=self._layout))
        return done

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What `semel doctor` finds here."""
        findings: list[Finding] = self._run(examine_table(self._table, horizon, machine_clock, self._layout))
        return findings

    def _run(self, work: Flow[Any]) -> Any:
        driver = self._make_driver()
        try:
            return driver.carry(work)
        finally:
            driver.close()


Layout = SharedLayout | None
"""Where items lie: in a table of a service, or (None) in one of semel's own."""


def _attribute(layout: Layout, name: str) -> str:
    """What an attribute of semel's items is called."""
    return name if layout is None else layout.attribute(name)


def _keys(layout: Layout) -> dict[str, str]:
    """The attributes of the primary key, and their types."""
    if layout is None:
        return {KEY: "B"}
    return {name: "S" for name in (layout.pk, layout.sk) if name}


def _schema(names: Iterable[str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=False)]


def _definitions(layout: Layout, **indexed: str) -> list[dict[str, str]]:
    """The types of the primary key and of the attributes of an index."""
    types = {**_keys(layout), **{_attribute(layout, name): type_ for name, type_ in indexed.items()}}
    return [{"AttributeName": name, "AttributeType": type_} for name, type_ in types.items()]


def _index(layout: Layout, name: str, hash_key: str, range_key: str) -> dict[str, Any]:
    return {
        "IndexName": name,
        "KeySchema": _schema([_attribute(layout, hash_key), _attribute(layout, range_key)]),
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }


def _outbox_index(layout: Layout) -> dict[str, Any]:
    """The index of events that wait; it holds nothing while there are none."""
    return _index(layout, INDEX, PLACE, POSITION)


def _outbox_attributes(layout: Layout) -> list[dict[str, str]]:
    return _definitions(layout, **{PLACE: "S", POSITION: "N"})


def creation(table: str, layout: Layout = None) -> dict[str, Any]:
    """What the table is made with."""
    return {
        "TableName": table,
        "KeySchema": _schema(_keys(layout)),
        "AttributeDefinitions": _outbox_attributes(layout),
        "GlobalSecondaryIndexes": [_outbox_index(layout)],
        "BillingMode": "PAY_PER_REQUEST",
    }


def time_to_live_request(table: str, layout: Layout = None) -> dict[str, Any]:
    """How the service is told to delete what has expired."""
    attribute = _attribute(layout, TTL)
    return {"TableName": table, "TimeToLiveSpecification": {"Enabled": True, "AttributeName": attribute}}


def describe_table(table: str) -> Steps:
    """The description of the table; None where there is none."""
    try:
        reply = yield Call("describe_table", {"TableName": table})
    except SchemaOutdated:
        return None
    return reply["Table"]


def read_time_to_live(table: str) -> Steps:
    """The attribute by which the service deletes; empty where it does not."""
    reply = yield Call("describe_time_to_live", {"TableName": table})
    told = reply["TimeToLiveDescription"]
    return told.get("AttributeName", "") if told["TimeToLiveStatus"] in ("ENABLED", "ENABLING") else ""


def has_our_key(description: dict[str, Any], layout: Layout = None) -> bool:
    """Whether a table has the key that records need."""
    kinds = {one["AttributeName"]: one["AttributeType"] for one in description["AttributeDefinitions"]}
    wanted = _keys(layout)
    return description["KeySchema"] == _schema(wanted) and all(kinds.get(name) == wanted[name] for name in wanted)


def _wrong_key_advice(layout: Layout) -> str:
    if layout is None:
        return "name another one, or the keys of a service's table with ?pk=…&sk=…"
    return "pk and sk have to name its keys, both of them, and these have to be text (S)"


def migrate_table(table: str, *, search: bool = False, layout: Layout = None) -> Steps:
    """Make what is missing, with `search` the indexes for searching, too; answers what was done.

    Raises:
        SchemaOutdated: there is a table of that name with another key.
    """
    done: list[str] = []
    description = yield from describe_table(table)
    if description is None:
        yield Call("create_table", creation(table, layout))
        done.append("table")
        description = yield from _wait_until_active(table)
    if not has_our_key(description, layout):
        message = f"The table {table} has another key than records need; nothing was changed. {{}}."
        advice = _wrong_key_advice(layout)
        raise SchemaOutdated(message.format(advice[0].upper() + advice[1:]))
    there = {index["IndexName"] for index in description.get("GlobalSecondaryIndexes") or []}
    if INDEX not in there:
        create = {
            "AttributeDefinitions": _outbox_attributes(layout),
            "GlobalSecondaryIndexUpdates": [{"Create": _outbox_index(layout)}],
        }
        yield Call("update_table", {"TableName": table, **create})
        description = yield from _wait_until_active(table)
        done.append(f"index {INDEX}")
    attribute = yield from read_time_to_live(table)
    if attribute != _attribute(layout, TTL) and not (layout is not None and attribute):
        yield Call("update_time_to_live", time_to_live_request(table, layout))
        done.append("time to live")
    if search:
        done += yield from _make_indexes(table, description, layout)
    return done


def _make_indexes(table: str, description: dict[str, Any], layout: Layout) -> Steps:
    """Make them one after the other, as the service demands.

    They hold only items that say what they are about, and of these the keys alone: a completion changes none of them.
    """
    there = {index["IndexName"] for index in description.get("GlobalSecondaryIndexes") or []}
    missing = [kind for kind in SEARCHED if index_of(kind) not in there]
    for kind in missing:
        yield Call("update_table", index_creation(table, kind, layout))
        yield from _wait_until_active(table)
    return [f"index {index_of(kind)}" for kind in missing]


def index_creation(table: str, kind: str, layout: Layout = None) -> dict[str, Any]:
    """What an index is made with."""
    hash_key, range_key = search_attribute(kind), "created_us"
    return {
        "TableName": table,
        "AttributeDefinitions": _definitions(layout, **{hash_key: "N", range_key: "N"}),
        "GlobalSecondaryIndexUpdates": [{"Create": _index(layout, index_of(kind), hash_key, range_key)}],
    }


def _wait_until_active(table: str) -> Steps:
    for _ in range(_LOOKS):
        description = yield from describe_table(table)
        if description is not None and _is_active(description):
            return description
        yield Pause(_BETWEEN)
    message = f"The table {table} is still being made; nothing else was done. Run `semel migrate` again in a minute."
    raise StoreUnavailable(message)


def _is_active(description: dict[str, Any]) -> bool:
    indexes = description.get("GlobalSecondaryIndexes") or []
    states = [description["TableStatus"], *(index.get("IndexStatus", "ACTIVE") for index in indexes)]
    return all(state == "ACTIVE" for state in states)


_PAGES: Final = 20
_WANTED: Final = ("status", "lease_us", "expires_us", "keep_us")


def examine_table(table: str, horizon: timedelta, clock: StoreClock, layout: Layout = None) -> Steps:
    """What is found there."""
    description = yield from describe_table(table)
    if description is None:
        return [Finding("schema", "there is no such table", "fix", "run `semel migrate`", ("schema",))]
    findings = [
        required_finding(
            "schema",
            f"key {_key(description)}",
            f"this is a table of something else: {_wrong_key_advice(layout)}",
            "schema",
            fine=has_our_key(description, layout),
        ),
        *([] if layout is None else [Finding("shared", f"beside items of a service, under keys that begin {PREFIX}")]),
        state(description["TableStatus"]),
        replicas(description),
        Finding("paid for", description.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")),
        check_time_to_live((yield from read_time_to_live(table)), layout),
    ]
    moment: Moment = yield Now()
    offset = clock() - (moment.low + moment.high) // 2
    findings.append(about_clock(offset * MICROSECOND, (moment.high - moment.low) / 2 * MICROSECOND))
    if has_our_key(description, layout):
        numbers, partial = yield from _numbers(table, moment)
        findings += about_records(numbers, horizon)
        if partial:
            advice = "a listing reads the whole table: `semel list --status in_doubt`"
            findings.append(Finding("sample", f"the first {_PAGES} MB of records", "note", advice))
    return findings


def state(status: str) -> Finding:
    """Whether the table takes requests."""
    advice = "wait until it is ACTIVE, or look at it in the console of the service"
    return required_finding("table", status, advice, "durable", fine=status in ("ACTIVE", "UPDATING"))


def replicas(description: dict[str, Any]) -> Finding:
    """Whether another region could let somebody else win."""
    regions = [one["RegionName"] for one in description.get("Replicas", [])]
    strong = description.get("MultiRegionConsistency") == "STRONG"
    if not regions:
        return Finding("replicas", "one region decides")
    found = f"also in {', '.join(regions)}, {'strongly' if strong else 'eventually'} consistent"
    advice = "two regions can each let a claim win: send all claims to one, or use strong consistency across regions"
    return required_finding("replicas", found, advice, "primary", fine=strong)


def check_time_to_live(attribute: str, layout: Layout = None) -> Finding:
    """Whether the service deletes what has expired."""
    if attribute == _attribute(layout, TTL):
        return Finding("time to live", "the service deletes expired records by itself, within days")
    if attribute and layout is not None:
        advice = f"expired records stay until `semel sweep`: put ttl={attribute} into the URL to have them deleted, too"
        return Finding("time to live", attribute, "note", advice)
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
    projection = ", ".join(expression.name(name) for name in (KEY, *_WANTED))
    parameters = {"TableName": table, "ProjectionExpression": projection, **expression.parameters()}
    expired = in_doubt = lapsed = 0
    shortest: int | None = None
    start: Item | None = {}
    for _ in range(_PAGES):
        reply = yield Call("scan", {**parameters, **({"ExclusiveStartKey": start} if start else {})})
        for item in filter(is_record, reply["Items"]):
            status, lease_us, expires_us, keep_us = (plain(item[name]) for name in _WANTED)
            expired += status in settled_statuses() and expires_us <= moment.low
            in_doubt += status == Status.IN_DOUBT
            lapsed += status == Status.RUNNING and lease_us <= moment.low
            shortest = keep_us if shortest is None else min(shortest, keep_us)
        start = reply.get("LastEvaluatedKey")
        if start is None:
            break
    return Numbers(expired, in_doubt, lapsed, shortest), start is not None
