"""Searching a DynamoDB table: refused without its indexes, which `semel migrate --search` makes, and by them then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from semel import Key, Semel
from semel.core.operations import Page, Query, Scan
from semel.core.record import About, StoredRecord
from semel.errors import UsageError
from semel.stores.dynamodb import DynamoStore
from tests.servers.ministack import Tables
from tests.unit.stores.operations import Clock, claim

pytestmark = pytest.mark.slow

INDEXED: dict[str, dict[str, Any]] = {
    "subject": {"subject": "ann"},
    "business key": {"business_key": "o-1"},
    "process instance": {"process_instance": "p-7"},
    "requester": {"requester": "web"},
    "subject and tag": {"subject": "ann", "tag": ("till", "7")},
    "subject in a scope": {"subject": "ann", "scope": "acme"},
}
ABOUT = {
    "subject": "ann",
    "business_key": "o-1",
    "process_instance": "p-7",
    "requester": "web",
    "tags": {"till": "7"},
}


@pytest.fixture(scope="module")
def indexed(dynamodb: Tables) -> str:
    """A table with the indexes."""
    url = dynamodb.new_url()
    done = DynamoStore(url).admin().migrate(search=True)
    assert [one for one in done if one.startswith("index")] == [
        "index semel_business_key",
        "index semel_process_instance",
        "index semel_subject",
        "index semel_requester",
    ]
    return url


@pytest.fixture
def semel(indexed: str, dynamodb: Tables) -> Iterator[Semel]:
    dynamodb.empty(indexed)
    with Semel(indexed) as semel:
        yield semel


def run(semel: Semel, key: str, about: Any, scope: str = "acme") -> None:
    semel.run(key, lambda: 1, operation="pay", fingerprint=None, scope=scope, about=about)


def test_the_indexes_are_made_once(indexed: str) -> None:
    assert DynamoStore(indexed).admin().migrate(search=True) == []


@pytest.mark.parametrize("query", INDEXED.values(), ids=INDEXED)
def test_a_table_with_indexes_is_searched_without_a_scan(semel: Semel, query: dict[str, Any]) -> None:
    run(semel, "wanted", ABOUT)
    run(semel, "other", {"subject": "bob", "requester": "job", "business_key": "o-2", "process_instance": "p-8"})
    run(semel, "about nothing", None)
    assert [record.key.value for record in semel.records(**query)] == ["wanted"]


def test_a_search_in_a_scope_shows_no_record_of_another(semel: Semel) -> None:
    run(semel, "a", ABOUT)
    run(semel, "b", ABOUT, scope="zenith")
    assert [record.key.value for record in semel.records(subject="ann", scope="zenith")] == ["b"]


def test_what_was_erased_is_not_found(semel: Semel) -> None:
    run(semel, "k", ABOUT)
    semel.erase("k", operation="pay", scope="acme", reason="asked")
    assert list(semel.records(subject="ann")) == []


def test_a_tag_alone_has_no_index(semel: Semel) -> None:
    run(semel, "k", ABOUT)
    with pytest.raises(UsageError, match=r"no index of records by tag.* scan=True"):
        list(semel.records(tag=("till", "7")))
    assert len(list(semel.records(tag=("till", "7"), scan=True))) == 1


def test_a_table_without_indexes_says_how_they_are_made(dynamodb: Tables) -> None:
    with Semel(dynamodb.new_table()) as semel:
        run(semel, "k", ABOUT)
        with pytest.raises(UsageError, match=r"`semel migrate --search`.*nothing was read\. scan=True"):
            list(semel.records(subject="ann"))
        assert len(list(semel.records(subject="ann", scan=True))) == 1


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_are_whole_and_in_order_also_at_one_instant(
    indexed: str, dynamodb: Tables, clock: Clock, *, newest_first: bool
) -> None:
    dynamodb.empty(indexed)
    store = DynamoStore(indexed, clock=clock)
    driver = store.driver()
    for moment in range(3):
        claims = [
            claim(Key.of(f"{moment}-{number}", operation="pay"), number=number + 1, about=About(subject="ann"))
            for number in range(7)
        ]
        driver.perform([store.plan(claims, joined=False)])
        clock.advance(1)
    seen: list[StoredRecord] = []
    query, cursor = Query(subject="ann", newest_first=newest_first), None
    while True:
        (answers,) = driver.perform([store.plan([Scan(query, cursor, 4)], joined=False)])
        assert isinstance(answers, list)
        (page,) = answers
        assert isinstance(page, Page), page
        seen += page.records
        cursor = page.cursor
        if cursor is None:
            break
    driver.close()
    places = [(record.created_us, record.key.digest) for record in seen]
    assert len(places) == 21
    assert places == sorted(set(places), reverse=newest_first)
