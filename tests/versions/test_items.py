"""The same writes for items of DynamoDB, in both colours, by themselves and committed with a record."""

import asyncio
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from semel import Semel
from semel.errors import ConcurrentModification, UsageError
from semel.stores.dynamodb import Writes
from semel.stores.dynamodb.driver import make_async_client
from semel.stores.dynamodb.settings import Settings
from semel.versions import Items, Unchanged, Write, Written, arun, run, transact_item, update_versioned, upsert
from tests.servers.ministack import Tables

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

A = {"id": "a-1"}
ON = {"state": "on"}
OFF = {"state": "off"}
Does = Callable[[Write], Awaitable[Written | Unchanged]]


@pytest.fixture(scope="module")
def table(dynamodb: Tables) -> str:
    """A table of the caller's own, with a name that SQL would refuse."""
    name = f"assets-{secrets.token_hex(6)}"
    dynamodb.client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.made.append(name)
    return name


@pytest.fixture
def assets(table: str, dynamodb: Tables) -> Items:
    """The table, without items."""
    for item in dynamodb.client.scan(TableName=table, ConsistentRead=True)["Items"]:
        dynamodb.client.delete_item(TableName=table, Key={"id": item["id"]})
    return Items(table)


@pytest.fixture(params=["boto3", "aiobotocore"])
def does(request: pytest.FixtureRequest, dynamodb: Tables) -> Does:
    """Carries a write out, in one of the colours."""

    async def plainly(write: Write) -> Written | Unchanged:
        return await asyncio.to_thread(run, dynamodb.client, write)

    async def awaited(write: Write) -> Written | Unchanged:
        async with make_async_client(Settings.of(dynamodb.url)) as client:
            return await arun(client, write)

    return plainly if request.param == "boto3" else awaited


@pytest.fixture
def semel(dynamodb: Tables) -> Iterator[Semel]:
    with Semel(dynamodb.url) as one:
        yield one


def there(dynamodb: Tables, assets: Items) -> list[tuple[str, str, int]]:
    items = dynamodb.client.scan(TableName=assets.fullname, ConsistentRead=True)["Items"]
    return sorted((item["id"]["S"], item["state"]["S"], int(item["version"]["N"])) for item in items)


async def test_a_new_item_gets_version_1(does: Does, assets: Items, dynamodb: Tables) -> None:
    assert await does(upsert(assets, A, ON)) == Written(1)
    assert there(dynamodb, assets) == [("a-1", "on", 1)]


async def test_an_item_that_must_be_new_and_is_not_is_refused_with_what_is_there(does: Does, assets: Items) -> None:
    await does(upsert(assets, A, ON))
    with pytest.raises(ConcurrentModification, match=r"The item of .* must be new and is at version 1") as caught:
        await does(upsert(assets, A, OFF))
    assert (caught.value.expected, caught.value.found) == (None, 1)
    assert caught.value.facts["item"] == {"id": "a-1", "state": "on", "version": 1}


@pytest.mark.parametrize("write", [update_versioned, upsert], ids=["update_versioned", "upsert"])
async def test_an_item_at_the_expected_version_is_changed(
    does: Does, assets: Items, dynamodb: Tables, write: Callable[..., Write]
) -> None:
    await does(upsert(assets, A, ON))
    assert await does(write(assets, A, OFF, expected=1)) == Written(2)
    assert there(dynamodb, assets) == [("a-1", "off", 2)]


async def test_an_item_at_another_version_is_left_alone(does: Does, assets: Items, dynamodb: Tables) -> None:
    await does(upsert(assets, A, ON))
    await does(update_versioned(assets, A, OFF, expected=1))
    with pytest.raises(ConcurrentModification, match="expected at version 1 and is at version 2") as caught:
        await does(update_versioned(assets, A, ON, expected=1))
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert there(dynamodb, assets) == [("a-1", "off", 2)]


async def test_an_item_that_was_deleted_does_not_come_back(does: Does, assets: Items, dynamodb: Tables) -> None:
    with pytest.raises(ConcurrentModification, match="is not there") as caught:
        await does(upsert(assets, A, ON, expected=3))
    assert (caught.value.found, caught.value.facts["item"]) == (None, None)
    assert there(dynamodb, assets) == []


async def test_only_what_is_newer_is_written(does: Does, assets: Items, dynamodb: Tables) -> None:
    assert await does(upsert(assets, A, ON, newer=4)) == Written(4)
    assert await does(upsert(assets, A, OFF, newer=4)) == Unchanged(4)
    assert await does(upsert(assets, A, OFF, newer=3)) == Unchanged(4)
    assert await does(upsert(assets, A, OFF, newer=7)) == Written(7)
    assert there(dynamodb, assets) == [("a-1", "off", 7)]


async def test_the_same_request_again_finds_its_own_write(does: Does, assets: Items) -> None:
    await does(upsert(assets, A, ON))
    change = update_versioned(assets, A, OFF, expected=1, request={"request": "r-1"})
    assert await does(change) == Written(2)
    assert await does(change) == Unchanged(2)


async def test_a_request_that_has_read_its_own_version_writes_nothing_twice(does: Does, assets: Items) -> None:
    await does(upsert(assets, A, ON))
    await does(update_versioned(assets, A, OFF, expected=1, request={"request": "r-1"}))
    again = update_versioned(assets, A, OFF, expected=2, request={"request": "r-1"})
    assert await does(again) == Unchanged(2)


async def test_an_item_without_a_version_is_not_written(does: Does, assets: Items, dynamodb: Tables) -> None:
    dynamodb.client.put_item(TableName=assets.fullname, Item={"id": {"S": "a-1"}, "state": {"S": "on"}})
    with pytest.raises(UsageError, match=r"has no version, .* nothing was written"):
        await does(upsert(assets, A, OFF, newer=4))


async def test_values_keep_their_types(does: Does, assets: Items, dynamodb: Tables) -> None:
    values = {"state": "on", "price": Decimal("12.5"), "tags": {"x"}, "raw": b"\0", "gone": None, "parts": [1, True]}
    await does(upsert(assets, A, values))
    item = dynamodb.client.get_item(TableName=assets.fullname, Key={"id": {"S": "a-1"}}, ConsistentRead=True)["Item"]
    assert (item["price"], item["tags"], item["raw"]) == ({"N": "12.5"}, {"SS": ["x"]}, {"B": b"\0"})
    assert (item["gone"], item["parts"]) == ({"NULL": True}, {"L": [{"N": "1"}, {"BOOL": True}]})


async def test_a_value_that_an_item_cannot_keep_is_refused(does: Does, assets: Items) -> None:
    with pytest.raises(UsageError, match="Nothing was written"):
        await does(upsert(assets, A, {"price": 12.5}))


async def test_an_error_of_the_service_is_passed_on(does: Does) -> None:
    with pytest.raises(Exception, match="ResourceNotFoundException"):
        await does(upsert(Items("nobody-made-this"), A, ON))


def test_of_writers_that_read_the_same_version_one_writes(assets: Items, dynamodb: Tables) -> None:
    run(dynamodb.client, upsert(assets, A, ON))

    def write(number: int) -> bool:
        try:
            run(dynamodb.client, update_versioned(assets, A, {"state": str(number)}, expected=1))
        except ConcurrentModification:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(8))) == 1


def test_a_client_that_has_to_be_awaited_is_refused_by_run(assets: Items, dynamodb: Tables) -> None:
    async def ask() -> None:
        async with make_async_client(Settings.of(dynamodb.url)) as client:
            run(client, upsert(assets, A, ON))

    with pytest.raises(UsageError, match=r"other colour; nothing was written. Use await arun"):
        asyncio.run(ask())


async def test_a_client_that_cannot_be_awaited_is_refused_by_arun(assets: Items, dynamodb: Tables) -> None:
    with pytest.raises(UsageError, match=r"other colour; nothing was written. Use run"):
        await arun(dynamodb.client, upsert(assets, A, ON))


def test_a_table_of_dynamodb_is_refused_by_a_database() -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(UsageError, match="is a table of DynamoDB"):
        run(connection, upsert(Items("assets"), A, ON))
    connection.close()


def test_a_write_commits_with_the_record(semel: Semel, assets: Items, dynamodb: Tables) -> None:
    run(dynamodb.client, upsert(assets, A, ON))
    writes, runs = Writes(dynamodb.client), []

    def switch() -> str:
        runs.append(1)
        writes.add(transact_item(update_versioned(assets, A, OFF, expected=1)))
        return "off"

    key = secrets.token_hex(8)
    for _ in range(2):
        with semel.within(writes):
            assert semel.run(key, switch, operation="switch", fingerprint=None).value == "off"
    assert there(dynamodb, assets) == [("a-1", "off", 2)]
    assert len(runs) == 1


def test_a_write_that_is_refused_keeps_the_record_from_being_written(
    semel: Semel, assets: Items, dynamodb: Tables
) -> None:
    run(dynamodb.client, upsert(assets, A, ON, newer=5))
    writes = Writes(dynamodb.client)

    def switch() -> None:
        writes.add(transact_item(update_versioned(assets, A, OFF, expected=1)))

    key = secrets.token_hex(8)
    with semel.within(writes), pytest.raises(ConcurrentModification, match="write 1") as caught:
        semel.run(key, switch, operation="switch", fingerprint=None)
    assert there(dynamodb, assets) == [("a-1", "on", 5)]
    assert semel.read(key, operation="switch") is None
    (item,) = caught.value.facts["items"]
    assert _version(item) == 5


def _version(item: dict[str, Any]) -> int:
    return int(item["version"]["N"])
