"""The same writes for items of DynamoDB: one conditional update, whose refusal returns the item in its way.

- The condition of the request that writes decides; nothing is read before it or after it.
- Every name and value is a placeholder.
- A write for a transaction is the same request, so what `Writes` sends with a record is decided by the same condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel.core import flow
from semel.core.flow import Flow
from semel.errors import UsageError
from semel.extras import requires
from semel.versions.execute import Reply, why_not
from semel.versions.write import Unchanged, Write, Written

Parameters = dict[str, Any]


def transact_item(write: Write) -> dict[str, Parameters]:
    """`write` in the form of TransactWriteItems, for `Writes.add` or a transaction of your own.

    Raises:
        UsageError: the write is not one that DynamoDB can keep.
    """
    return {"Update": _update(write)}


def is_client(connection: Any, *, awaited: bool) -> bool:
    """Whether it is a client of DynamoDB.

    Raises:
        UsageError: it is one of the other colour, or of another service.
    """
    kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__]
    if "botocore.client.BaseClient" not in kinds:
        return False
    service = connection.meta.service_model.service_name
    if service != "dynamodb":
        raise UsageError(f"A client of {service} keeps no items; nothing was written. Give one of dynamodb.")
    if any(kind.startswith("aiobotocore.") for kind in kinds) is not awaited:
        right = "run(…)" if awaited else "await arun(…)"
        raise UsageError(f"This client of DynamoDB has the other colour; nothing was written. Use {right}.")
    return True


async def arun(client: Any, write: Write) -> Written | Unchanged:
    """Carry out `write` with a client of the service; see `connections.arun`."""

    async def perform(parameters: Parameters) -> Mapping[str, Any] | None:
        try:
            await client.update_item(**parameters)
        except Exception as error:  # noqa: BLE001 - whatever is no refusal is raised again
            return _refusing(error)
        return None

    return await flow.arun(_writing(write), perform)


def _writing(write: Write) -> Flow[Written | Unchanged]:
    """One request; what it found is None where it wrote, else the item that is there, empty where there is none."""
    found: Mapping[str, Any] | None = yield _update(write)
    if found is None:
        return Written(write.after)
    item = _plain(found)
    if item and item.get(write.version) is None:
        raise UsageError(
            f"The item of {write.place} has no {write.version}, so nobody can tell whether it may be written; nothing "
            f"was written. Give it one, or name the attribute that has it with version=."
        )
    shown = any(item.get(name) == value for name, value in (write.request or {}).items())
    rows = [(int(item[write.version]), int(shown))] if item else []
    return why_not(write, Reply(rows, 0), thing="item", item=item or None)


def _update(write: Write) -> Parameters:
    names = {"#version": write.version}
    values: dict[str, Any] = {":after": write.after}
    sets = ["#version = :after"]
    for number, (name, value) in enumerate(write.settings.items()):
        names[f"#set{number}"], values[f":set{number}"] = name, value
        sets.append(f"#set{number} = :set{number}")
    return {
        "TableName": write.place,
        "Key": _wire(write.key),
        "UpdateExpression": f"SET {', '.join(sets)}",
        "ConditionExpression": _condition(write, names, values),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": _wire(values),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _condition(write: Write, names: dict[str, str], values: dict[str, Any]) -> str:
    """Closes: two writers that read the same version, or both found nothing. One of the two is refused."""
    if write.expected is None:
        names["#key"] = next(iter(write.key))
        return "attribute_not_exists(#key)" + ("" if write.newer is None else " OR #version < :after")
    values[":expected"] = write.expected
    condition = "#version = :expected"
    for name, value in (write.request or {}).items():
        # Not again by the same request, even if it has read the version that it made itself.
        names["#request"], values[":request"] = name, value
        condition += " AND (attribute_not_exists(#request) OR #request <> :request)"
    return condition


def _refusing(error: Exception) -> Mapping[str, Any]:
    """What stood in the way, where the error says that the condition did not hold; any other is passed on."""
    response = getattr(error, "response", None) or {}
    if response.get("Error", {}).get("Code") != "ConditionalCheckFailedException":
        raise error
    item: Mapping[str, Any] = response.get("Item", {})
    return item


def _wire(values: Mapping[str, Any]) -> dict[str, Any]:
    with requires("An item of DynamoDB", "boto3"):
        from boto3.dynamodb.types import TypeSerializer

    serializer = TypeSerializer()
    try:
        return {name: serializer.serialize(value) for name, value in values.items()}
    except TypeError as problem:
        message = f"An item of DynamoDB cannot keep this: {problem} Nothing was written."
        raise UsageError(message) from problem


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    with requires("An item of DynamoDB", "boto3"):
        from boto3.dynamodb.types import TypeDeserializer

    deserializer = TypeDeserializer()
    return {name: deserializer.deserialize(value) for name, value in item.items()}


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
def run(client: Any, write: Write) -> Written | Unchanged:
    """Carry out `write` with a client of the service; see `connections.run`."""

    def perform(parameters: Parameters) -> Mapping[str, Any] | None:
        try:
            client.update_item(**parameters)
        except Exception as error:  # noqa: BLE001 - whatever is no refusal is raised again
            return _refusing(error)
        return None

    return flow.run(_writing(write), perform)
