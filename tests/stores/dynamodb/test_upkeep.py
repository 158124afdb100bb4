"""Making the table and looking at it, by the store and by the command line."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import repeat
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel.cli import main
from semel.core.flow import run
from semel.core.operations import Claim, Fail, Granted, Recorded
from semel.core.record import Failure
from semel.errors import SchemaOutdated, StoreUnavailable
from semel.stores.admin import Finding, promises
from semel.stores.dynamodb import DynamoStore
from semel.stores.dynamodb.admin import check_time_to_live, creation, migrate_table, replicas, state
from semel.stores.dynamodb.commands import Call, Pause
from tests.servers.ministack import Tables
from tests.stores.dynamodb.kit import Asker
from tests.unit.stores.operations import KEYS, claim, terms

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)


def found(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings}


def test_migrating_makes_the_table_once(dynamodb: Tables) -> None:
    store = DynamoStore(dynamodb.new_url())
    assert store.admin().migrate() == ["table", "time to live"]
    assert store.admin().migrate() == []


def test_the_table_is_paid_for_by_request_and_expires_by_itself(dynamodb: Tables) -> None:
    name = urlsplit(dynamodb.new_table()).netloc
    table = dynamodb.client.describe_table(TableName=name)["Table"]
    expiry = dynamodb.client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert (expiry["TimeToLiveStatus"], expiry["AttributeName"]) == ("ENABLED", "ttl")


def test_a_table_of_something_else_is_left_alone(dynamodb: Tables) -> None:
    url = dynamodb.new_url()
    dynamodb.client.create_table(
        TableName=urlsplit(url).netloc,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    with pytest.raises(SchemaOutdated, match="another key"):
        DynamoStore(url).admin().migrate()
    assert found(DynamoStore(url).admin().examine(DAY))["schema"].verdict == "fix"


def making(states: Iterator[str]) -> tuple[list[str], list[Any]]:
    """Make a table that is in these states one after the other; what was done, and what was asked for."""
    seen: list[Any] = []

    def answer(wanted: Call | Pause) -> Any:
        seen.append(wanted)
        if isinstance(wanted, Pause):
            return None
        if len(seen) == 1:
            raise SchemaOutdated("there is none")
        if wanted.action == "describe_table":
            return {"Table": {"TableStatus": next(states), **creation("records")}}
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}

    return run(migrate_table("records"), answer), seen


def test_a_table_that_is_still_being_made_is_waited_for() -> None:
    done, seen = making(iter(["CREATING", "CREATING", "ACTIVE"]))
    assert done == ["table", "time to live"]
    assert sum(isinstance(one, Pause) for one in seen) == 2


def test_a_table_that_is_never_ready_is_said_so() -> None:
    with pytest.raises(StoreUnavailable, match="still being made"):
        making(repeat("CREATING"))


def test_a_table_in_use_is_fine(dynamodb: Tables) -> None:
    findings = DynamoStore(dynamodb.new_table()).admin().examine(DAY)
    assert {finding.verdict for finding in findings} == {"ok"}
    assert {"schema", "table", "replicas", "time to live", "clock", "keep_for", "in doubt"} <= {*found(findings)}


def test_what_waits_is_counted(url: str, asker: Asker) -> None:
    lapsed: Claim = claim(of=terms(keep=60))
    doubtful = claim(KEYS[1], number=2)
    asker.one(lapsed, Granted)
    lease = asker.one(doubtful, Granted).lease
    asker.one(Fail(lease, "doubt", Failure("app.Broke", ""), doubtful=True), Recorded)
    told = found(DynamoStore(url).admin().examine(DAY))
    assert (told["in doubt"].found, told["lease ended, not swept"].found) == ("1", "1")
    assert told["keep_for"].verdict == "fix"


def test_a_missing_table_is_to_be_fixed(dynamodb: Tables) -> None:
    (finding,) = DynamoStore(dynamodb.new_url()).admin().examine(DAY)
    assert (finding.verdict, finding.advice) == ("fix", "run `semel migrate`")


def test_replicas_in_other_regions_break_the_promise() -> None:
    weak = replicas({"Replicas": [{"RegionName": "eu-west-2"}]})
    strong = replicas({"Replicas": [{"RegionName": "eu-west-2"}], "MultiRegionConsistency": "STRONG"})
    assert (weak.verdict, strong.verdict) == ("fix", "ok")
    assert not promises([weak])[0].holds


def test_a_foreign_expiry_is_to_be_fixed_and_none_is_a_note() -> None:
    assert [check_time_to_live(name).verdict for name in ("ttl", "", "gone_at")] == ["ok", "note", "fix"]


def test_a_table_that_takes_no_requests_is_to_be_fixed() -> None:
    assert [state(word).verdict for word in ("ACTIVE", "CREATING", "ARCHIVED")] == ["ok", "fix", "fix"]


def test_the_command_line_makes_and_looks(dynamodb: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    url = dynamodb.new_url()
    assert main(["doctor", url]) == 1
    assert main(["migrate", url]) == 0
    assert main(["doctor", url]) == 0
    assert main(["list", url]) == 0
    assert main(["sweep", url]) == 0
    said = capsys.readouterr().out
    assert "applied table, time to live" in said
    assert "the service deletes expired records" in said


@pytest.mark.parametrize("option", ["--sql", "--half=pre", "--partitions=4"])
def test_what_is_for_sql_is_refused(dynamodb: Tables, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", dynamodb.new_url(), option]) == 2
    assert "nothing was done" in capsys.readouterr().err
