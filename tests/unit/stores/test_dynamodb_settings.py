"""What a dynamodb URL may say, and what it may not."""

import subprocess
import sys
from datetime import timedelta

import pytest

from semel.errors import UsageError
from semel.stores.dynamodb import DynamoStore
from semel.stores.dynamodb.settings import Settings
from semel.stores.urls import store_from_url


def test_a_url_names_a_table_and_a_region() -> None:
    settings = Settings.of("dynamodb://My.table-1?region=eu-west-1")
    assert (settings.table, settings.region, settings.endpoint) == ("My.table-1", "eu-west-1", "")


def test_a_url_may_name_an_endpoint() -> None:
    assert Settings.of("dynamodb://records?endpoint=http%3A%2F%2Flocalhost%3A8000").endpoint == "http://localhost:8000"


def test_settings_given_directly_go_first() -> None:
    settings = Settings.of("dynamodb://records?pool_size=2", pool_size=5, read_timeout=timedelta(seconds=2))
    assert (settings.pool_size, settings.read_timeout) == (5, 2.0)


def test_the_name_of_a_store_is_a_url_to_it() -> None:
    name = store_from_url("dynamodb://records?region=eu-west-1&endpoint=http://localhost:8000").name
    assert Settings.of(name) == Settings("records", region="eu-west-1", endpoint="http://localhost:8000")


def test_two_regions_are_two_places() -> None:
    names = {DynamoStore(f"dynamodb://records?region={region}").name for region in ("eu-west-1", "eu-west-2")}
    assert len(names) == 2


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb://",
        "dynamodb://ab",
        "dynamodb://a b c",
        "dynamodb://records?place=eu-west-1",
        "dynamodb://records?pool_size=0",
        "dynamodb://records?read_timeout=never",
        "dynamodb://user:secret@records",
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_opened(url: str) -> None:
    with pytest.raises(UsageError, match="nothing was opened") as caught:
        store_from_url(url)
    assert "secret" not in str(caught.value)


def test_naming_a_store_loads_no_sdk() -> None:
    looking = "assert not {'boto3', 'botocore', 'aiobotocore'} & {*sys.modules}"
    code = f"import sys; from semel import Semel; Semel('dynamodb://records'); {looking}"
    subprocess.run([sys.executable, "-c", code], check=True)
