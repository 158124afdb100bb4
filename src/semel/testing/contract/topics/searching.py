"""Searching: records by what they are about, what waits for somebody, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from semel.core.fingerprint import fingerprint
from semel.core.key import SHARED, Key
from semel.core.operations import (
    Counted,
    CountFailure,
    CountRecords,
    Counts,
    Page,
    Query,
    Scan,
    SkippedTo,
    SkipRecords,
)
from semel.core.policy import Policy
from semel.core.record import About, Cancelled, Count, DidNotHappen, Failure, Happened, Status
from semel.core.store import Capability
from semel.engine.admin import PAGE
from semel.engine.call_flow import terms_of
from semel.errors import UsageError
from semel.testing.contract.api_client import OPERATION, ApiClient
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

HOUR = 3600.0
KEPT = Policy(keep_for=timedelta(hours=1), retry_errors=(ConnectionError,))
HOLD = Policy(in_doubt="hold")
FINAL = Policy(final_errors=(ValueError,))
LONG: Final = "much longer than any index can hold: " + "ä" * 4000
ABOUT: Final[Mapping[str, Any]] = {
    "subject": "ann",
    "business_key": "o-1",
    "process_instance": "p-7",
    "requester": "web",
    "tags": {"tenant": "acme", "till": "7"},
}
QUERIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "subject": {"subject": "ann"},
    "business key": {"business_key": "o-1"},
    "process instance": {"process_instance": "p-7"},
    "requester": {"requester": "web"},
    "tag": {"tag": ("tenant", "acme")},
    "another tag": {"tag": ("till", "7")},
    "several": {"subject": "ann", "requester": "web", "tag": ("till", "7")},
}
OTHERS: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "subject": "web",
        "requester": "ann",
        "business_key": "p-7",
        "process_instance": "o-1",
        "tags": {"acme": "tenant"},
    },
    {"subject": "Ann", "requester": "web ", "business_key": "o-10", "tags": {"tenant": "acme2", "till": "70"}},
    {"tags": {"tenant": '"acme"', '"till"': "7", "tenant:acme": ""}},
    {},
)
by_each = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)


async def _found(client: ApiClient, **query: Any) -> list[str]:
    """The keys that a search finds; on every store, also on one that has to read all records for it."""
    return await client.keys(**query, scan=True)


async def _pages(world: World, query: Query) -> list[bytes]:
    """The digests of what a query finds, five on a page."""
    found: list[bytes] = []
    cursor = None
    while True:
        (page,) = await world.perform(Scan(query, cursor, 5))
        assert isinstance(page, Page)
        assert len(page.records) <= 5
        found += [record.key.digest for record in page.records]
        cursor = page.cursor
        if cursor is None:
            return found


async def _left(world: World, query: Query) -> list[str]:
    """The keys that a query finds, in order; as many have to be counted."""
    (page,) = await world.perform(Scan(query, None, 10))
    (counts,) = await world.perform(CountRecords(query))
    assert isinstance(page, Page)
    assert isinstance(counts, Counts)
    assert sum(one.number for one in counts.counts) == len(page.records)
    return sorted(record.key.value for record in page.records)


class SearchContract(Contract):
    """Records by subject, business key, process instance, requester and tag."""

    @by_each
    async def test_a_record_is_found_by_what_it_is_about_and_no_other_is(
        self, world: World, query: Mapping[str, Any]
    ) -> None:
        client = world.client()
        await client.run("wanted", about=ABOUT)
        for number, about in enumerate(OTHERS):
            await client.run(f"other {number}", about=about)
        assert await _found(client, **query) == ["wanted"]

    @by_each
    async def test_a_search_in_a_scope_shows_no_record_of_another(self, world: World, query: Mapping[str, Any]) -> None:
        client = world.client()
        for scope in ("acme", "zenith", ("acme", "zenith"), SHARED):
            await client.run(f"of {scope}", scope=scope, about=ABOUT)
        assert await _found(client, scope="acme", **query) == ["of acme"]
        assert await _found(client, scope=SHARED, **query) == [f"of {SHARED}"]
        assert await _found(client, scope="nobody", **query) == []
        assert len(await _found(client, **query)) == 4

    @pytest.mark.parametrize(
        "text", ["", LONG, "Zoë ✓ 日本", '"', "\\", "', 1=1 --", "%_*?[", '","tenant":"acme', "a\nb\tc"]
    )
    async def test_any_text_is_searched_for_as_it_is(self, world: World, text: str) -> None:
        client = world.client()
        await client.run("it", about={"subject": text, "tags": {text: text, "b": text}})
        await client.run("longer", about={"subject": f"{text}x", "tags": {f"{text}x": text, "b": f"{text}x"}})
        assert await _found(client, subject=text) == ["it"]
        assert await _found(client, tag=(text, text)) == ["it"]
        assert await _found(client, tag=("b", text)) == ["it"]

    async def test_restrictions_add_to_a_search(self, world: World) -> None:
        client = world.client()
        moment = world.now()
        await client.run("a", operation="pay", about=ABOUT)
        world.clock.advance(1)
        await client.run("b", operation="refund", about=ABOUT)
        world.clock.advance(1)
        await client.error("c", world.raising(OSError()), operation="refund", policy=HOLD, about=ABOUT)
        assert await _found(client, subject="ann") == ["a", "b", "c"]
        assert await _found(client, subject="ann", operation="refund") == ["b", "c"]
        assert await _found(client, subject="ann", status="in_doubt") == ["c"]
        assert await _found(client, subject="ann", before=moment + timedelta(seconds=1)) == ["a"]
        assert await _found(client, subject="ann", after=moment + timedelta(seconds=2)) == ["c"]
        reference = (await client.read("b", operation="refund")).reference
        assert await _found(client, subject="ann", reference=reference[:12]) == ["b"]
        assert await _found(client, subject="ann", requester="nobody") == []

    async def test_claims_in_one_list_are_each_found_by_their_own(self, world: World) -> None:
        await world.perform(
            world.claim("a", about=About(subject="ann", tags={"till": "7"})),
            world.claim("b"),
            world.claim("c", about=About(subject="bob", tags={"till": "7"})),
        )
        client = world.client()
        assert await _found(client, subject="ann") == ["a"]
        assert await _found(client, subject="bob") == ["c"]
        assert sorted(await _found(client, tag=("till", "7"))) == ["a", "c"]

    async def test_the_loser_of_a_claim_changes_nothing(self, world: World) -> None:
        client = world.client()
        await client.run(about={"subject": "ann"})
        assert (await client.run(about={"subject": "bob"})).replayed
        assert await _found(client, subject="bob") == []
        assert await _found(client, subject="ann") == ["k"]

    async def test_whoever_claims_again_says_what_it_is_about(self, world: World) -> None:
        client = world.client()
        broken = world.raising(ConnectionError())
        await client.error(handler=broken, policy=KEPT, about={"subject": "ann", "requester": "web"})
        await client.error(handler=broken, policy=KEPT, about={"subject": "ann", "requester": "job"})
        assert await _found(client, requester="web") == []
        assert await _found(client, subject="ann", requester="job") == ["k"]
        await client.run(policy=KEPT)
        assert await _found(client, subject="ann") == []

    async def test_a_take_over_says_what_it_is_about(self, world: World) -> None:
        await world.crash(about=About(subject="ann", tags={"till": "7"}))
        world.clock.advance(60)
        client = world.client()
        await client.run(about={"subject": "bob", "tags": {"till": "8"}})
        assert await _found(client, subject="ann") == []
        assert await _found(client, tag=("till", "7")) == []
        assert await _found(client, tag=("till", "8")) == ["k"]

    @pytest.mark.parametrize("about", [None, {"subject": "bob"}], ids=["about nothing", "about another"])
    async def test_a_new_life_of_a_key_is_not_found_by_what_the_last_one_was_about(
        self, world: World, about: Any
    ) -> None:
        client = world.client()
        await client.run(policy=KEPT, about=ABOUT)
        world.clock.advance(2 * HOUR)
        await client.run(policy=KEPT, about=about)
        for query in QUERIES.values():
            assert await _found(client, **query) == [], query
        assert await _found(client, subject="bob") == (["k"] if about else [])

    async def test_what_was_swept_is_not_found_even_when_its_key_is_used_again(self, world: World) -> None:
        client = world.client()
        await client.run(policy=KEPT, about=ABOUT)
        world.clock.advance(2 * HOUR)
        assert (await client.sweep()).deleted == 1
        assert await _found(client, subject="ann") == []
        await client.run(policy=KEPT)
        assert await _found(client, subject="ann") == []

    @by_each
    async def test_what_was_erased_is_not_found(self, world: World, query: Mapping[str, Any]) -> None:
        client = world.client()
        await client.run(about=ABOUT)
        await client.erase()
        assert await _found(client, **query) == []

    async def test_what_was_erased_can_be_left_out(self, world: World) -> None:
        client = world.client()
        await client.run(" ")
        await client.run("erased", scope="acme")
        await client.run("kept", scope="acme")
        await client.erase("erased", scope="acme")
        assert await _left(world, Query(scope="", scan=True)) == ["", " "]
        assert await _left(world, Query(scope="", scan=True, hides_erased=True)) == [" "]
        assert await _left(world, Query(scan=True, hides_erased=True)) == [" ", "kept"]

    async def test_records_of_an_operation_can_be_left_out(self, world: World) -> None:
        client = world.client()
        await client.run("paid", operation="pay", about={"subject": "ann"})
        await client.run("refunded", operation="refund", about={"subject": "ann"})
        reference = (await client.read("paid", operation="pay")).reference[:8]
        assert await _left(world, Query(scan=True, without_operation="pay")) == ["refunded"]
        assert await _left(world, Query(scan=True, without_operation="pay", operation="refund")) == ["refunded"]
        assert await _left(world, Query(scan=True, without_operation="pay", subject="ann")) == ["refunded"]
        assert await _left(world, Query(scan=True, without_operation="pay", operation="pay")) == []
        assert await _left(world, Query(scan=True, without_operation="pay", reference=reference)) == []

    @pytest.mark.parametrize(
        "resolution", [Happened("x"), DidNotHappen(), Cancelled()], ids=lambda one: type(one).__name__
    )
    async def test_a_record_stays_found_whatever_becomes_of_it(self, world: World, resolution: Any) -> None:
        client = world.client()
        await client.error(handler=world.raising(OSError()), policy=HOLD, about=ABOUT)
        await client.resolve(resolution)
        assert await _found(client, subject="ann", tag=("till", "7")) == ["k"]

    async def test_a_failure_that_was_counted_is_found(self, world: World) -> None:
        key, error = Key.of("k", operation=OPERATION), Failure("app.Broke", "why")
        count = CountFailure(key, fingerprint(None), bytes(16), error, terms_of(KEPT), About.of(ABOUT))
        (counted,) = await world.perform(count)
        assert isinstance(counted, Counted)
        client = world.client()
        for query in QUERIES.values():
            assert await _found(client, **query) == ["k"], query

    async def test_more_than_a_page_is_found_completely_and_in_order(self, world: World) -> None:
        count = PAGE + 30
        for start in range(0, count, 46):
            await world.perform(
                *[
                    world.claim(f"k{number:04}", scope="acme", about=About(subject="ann" if number % 23 else "bob"))
                    for number in range(start, start + 46)
                ]
            )
            world.clock.advance(1)
        client = world.client()
        everywhere, in_scope = (
            await client.records(subject="ann", scan=True),
            await _found(client, scope="acme", subject="ann"),
        )
        assert [record.key.value for record in everywhere] == in_scope
        assert sorted(in_scope) == [f"k{number:04}" for number in range(count) if number % 23]
        places = [(record.created_at, record.key.digest) for record in everywhere]
        assert places == sorted(places)

    @pytest.mark.parametrize(
        "query", [Query(scan=True), Query(subject="ann"), Query(tag=("till", "7"), scope="acme")], ids=str
    )
    async def test_newest_first_is_the_same_order_backwards_page_after_page(self, world: World, query: Query) -> None:
        about = About(subject="ann", tags={"till": "7"})
        for second in range(3):
            await world.perform(*[world.claim(f"k{second}{each}", scope="acme", about=about) for each in range(4)])
            world.clock.advance(1)
        forwards = await _pages(world, replace(query, scan=True))
        assert len(forwards) == 12
        assert await _pages(world, replace(query, scan=True, newest_first=True)) == forwards[::-1]

    @by_each
    async def test_what_only_a_scan_could_find_is_refused_unless_it_is_asked_for(
        self, world: World, query: Mapping[str, Any]
    ) -> None:
        client = world.client()
        await client.run(about=ABOUT)
        if Capability.SEARCH in world.store().capabilities:
            assert await client.keys(**query) == ["k"]
            return
        try:
            found = await client.keys(**query)
        except UsageError as error:
            assert "all records would have to be read; nothing was read. scan=True" in str(error)  # noqa: PT017
        else:
            assert Capability.SEARCH_ON_DEMAND in world.store().capabilities, "it searched without saying that it can"
            assert found == ["k"]
        assert await client.keys(**query, scan=True) == ["k"]

    @pytest.mark.parametrize(
        "query",
        [
            {"tag": "tenant=acme"},
            {"tag": ("tenant",)},
            {"tag": ("tenant", 7)},
            {"tag": {"tenant": "acme"}},
            {"subject": 7},
            {"requester": b"web"},
            {"business_key": ("o", 1)},
            {"subjekt": "ann"},
            {"subject": "ann\0"},
            {"operation": "\ud800"},
            {"tag": ("tenant", "\0")},
        ],
        ids=ascii,
    )
    async def test_a_search_that_cannot_be_understood_is_refused(self, world: World, query: Mapping[str, Any]) -> None:
        for ask in (world.client().records, world.client().count, world.client().counts):
            with pytest.raises(UsageError, match="nothing was read"):
                await ask(**query)

    async def test_more_tags_than_a_record_can_have_are_refused_before_anything_runs(self, world: World) -> None:
        error = await world.client().error(about={"tags": {str(number): "" for number in range(33)}})
        assert isinstance(error, UsageError)
        assert (world.ran, await world.client().find()) == ([], None)


class StuckContract(Contract):
    """What waits for somebody: in doubt, or running with its lease over."""

    async def test_what_is_in_doubt_or_has_lapsed_is_stuck(self, world: World) -> None:
        client = world.client()
        await client.run("completed")
        await client.error("failed", world.raising(ConnectionError()), policy=KEPT)
        await client.error("doubtful", world.raising(OSError()), policy=HOLD)
        world.clock.advance(1)
        await world.crash("lapsed")
        world.clock.advance(60)
        await world.crash("alive")
        assert await client.keys(stuck=True) == ["doubtful", "lapsed"]
        assert await client.count(stuck=True, scan=True) == 2

    async def test_a_lease_is_over_at_the_instant_named(self, world: World) -> None:
        await world.crash()
        client = world.client()
        world.clock.advance(30 - 1e-6)
        assert await client.keys(stuck=True) == []
        world.clock.advance(1e-6)
        assert await client.keys(stuck=True) == ["k"]

    async def test_restrictions_add_to_what_is_stuck(self, world: World) -> None:
        for scope in ("acme", "zenith"):
            await world.crash("k", scope=scope, about=About(subject="ann"))
            await world.crash("other", scope=scope, operation="refund")
        world.clock.advance(60)
        client = world.client()
        assert len(await client.keys(stuck=True)) == 4
        assert await client.keys(stuck=True, scope="acme", operation="refund") == ["other"]
        assert await client.keys(stuck=True, scope="acme", subject="ann", scan=True) == ["k"]

    async def test_a_status_beside_it_is_refused(self, world: World) -> None:
        for ask in (world.client().records, world.client().count):
            with pytest.raises(UsageError, match="nothing was read"):
                await ask(stuck=True, status="in_doubt")


class CountsContract(Contract):
    """How many records there are."""

    async def test_records_are_counted_for_each_operation_and_status(self, world: World) -> None:
        client = await _five(world)
        assert await client.counts(scan=True) == [
            Count("pay", Status.COMPLETED, 2),
            Count("pay", Status.IN_DOUBT, 1),
            Count("refund", Status.COMPLETED, 1),
            Count("refund", Status.RUNNING, 1),
        ]

    async def test_where_there_is_nothing_there_is_no_count(self, world: World) -> None:
        client = world.client()
        assert (await client.count(scan=True), await client.counts(scan=True)) == (0, [])

    @pytest.mark.parametrize(
        ("query", "number"),
        [
            ({}, 5),
            ({"status": "completed"}, 3),
            ({"status": "cancelled"}, 0),
            ({"operation": "refund"}, 2),
            ({"scope": "acme"}, 2),
            ({"scope": SHARED}, 3),
            ({"subject": "ann"}, 2),
            ({"subject": "ann", "scope": "acme"}, 1),
            ({"subject": "ann", "status": "in_doubt"}, 0),
            ({"tag": ("till", "7")}, 1),
            ({"reference": "xyz"}, 0),
        ],
        ids=str,
    )
    async def test_what_is_listed_is_counted(self, world: World, query: dict[str, Any], number: int) -> None:
        client = await _five(world)
        assert await client.count(**query, scan=True) == number == len(await client.records(**query, scan=True))

    async def test_each_record_is_counted_once_however_many_there_are(self, world: World) -> None:
        for start in range(0, 450, 50):
            await world.perform(*[world.claim(f"k{number}") for number in range(start, start + 50)])
        assert await world.client().count(status="running", scan=True) == 450

    async def test_counting_is_refused_where_it_is_a_scan_unless_that_is_asked_for(self, world: World) -> None:
        client = await _five(world)
        if Capability.COUNT in world.store().capabilities:
            assert await client.count() == 5
            return
        for ask in (client.count, client.counts):
            with pytest.raises(UsageError, match=r"all records would have to be read; nothing was read\. scan=True"):
                await ask()

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_so_many_records_reach_to_the_next_one(self, world: World, *, newest_first: bool) -> None:
        _needs_count(world)
        instants = await _ten(world)
        there = instants[::-1] if newest_first else instants
        reached = [await _reach(world, Query(newest_first=newest_first), number) for number in range(11)]
        assert reached == [*there, None]

    async def test_so_many_records_reach_within_the_times_that_are_asked_for(self, world: World) -> None:
        _needs_count(world)
        instants = await _ten(world)
        within = Query(after_us=instants[3], before_us=instants[7])
        assert [await _reach(world, within, number) for number in (0, 3, 4)] == [instants[3], instants[6], None]

    async def test_of_a_searched_value_its_own_records_are_counted(self, world: World) -> None:
        _needs_count(world)
        instants = await _ten(world)
        assert await _reach(world, Query(subject="ann"), 4) == instants[8]
        assert await _reach(world, Query(subject="ann"), 5) is None
        assert await _reach(world, Query(subject="ann", scope="acme"), 0) == instants[0]
        assert await _reach(world, Query(subject="ann", scope="acme"), 3) is None
        assert await _reach(world, Query(subject="nobody"), 0) is None

    @pytest.mark.parametrize("newest_first", [False, True])
    @pytest.mark.parametrize(
        "wanted",
        [
            {"scope": "acme"},
            {"operation": "refund"},
            {"status": Status.FAILED},
            {"status": Status.CANCELLED},
            {"subject": "ann", "operation": "pay"},
            {"subject": "ann", "scope": "acme", "status": Status.COMPLETED},
        ],
        ids=str,
    )
    async def test_a_search_that_stops_and_goes_on_finds_what_one_without_a_stop_does(
        self, world: World, wanted: dict[str, Any], *, newest_first: bool
    ) -> None:
        _needs_count(world)
        await _ten(world)
        query = Query(**wanted, newest_first=newest_first)
        assert await _in_parts(world, query) == await _pages(world, query)

    async def test_a_store_that_cannot_count_does_not_tell_how_far_records_reach(self, world: World) -> None:
        if Capability.COUNT in world.store().capabilities:
            pytest.skip("it can count")
        with pytest.raises(UsageError, match="nothing was read"):
            await world.perform(SkipRecords(Query(), 1))


def _needs_count(world: World) -> None:
    if Capability.COUNT not in world.store().capabilities:
        pytest.skip("only asked of stores that can count")


async def _reach(world: World, query: Query, number: int) -> int | None:
    (answer,) = await world.perform(SkipRecords(query, number))
    assert isinstance(answer, SkippedTo)
    return answer.created_us


async def _ten(world: World) -> list[int]:
    """Ten records, a second apart: of two operations, some of a subject and some of a scope; the instants of all."""
    client = world.client()
    for number in range(10):
        scope, about = "acme" if number % 4 == 0 else SHARED, {"subject": "ann"} if number % 2 == 0 else {}
        operation = "refund" if number % 3 == 0 else "pay"
        if number in (2, 7):
            await client.error(
                f"k{number}", world.raising(ValueError()), operation=operation, scope=scope, about=about, policy=FINAL
            )
        else:
            await client.run(f"k{number}", operation=operation, scope=scope, about=about)
        world.clock.advance(1)
    (page,) = await world.perform(Scan(Query(), None, 20))
    assert isinstance(page, Page)
    return [record.created_us for record in page.records]


async def _in_parts(world: World, query: Query) -> list[bytes]:
    """What a query finds if it stops after each record that is looked at, and goes on behind it."""
    found: list[bytes] = []
    for _ in range(20):
        at = await _reach(world, query, 0)
        if at is None:
            return found
        found += await _pages(world, replace(query, after_us=at, before_us=at + 1))
        query = replace(query, before_us=at) if query.newest_first else replace(query, after_us=at + 1)
    raise AssertionError


async def _five(world: World) -> ApiClient:
    """A world with five records of two operations and two scopes."""
    client = world.client()
    await client.run("a", operation="pay", about={"subject": "ann", "tags": {"till": "7"}})
    await client.run("b", operation="pay", scope="acme", about={"subject": "ann"})
    await client.error("c", world.raising(OSError()), operation="pay", policy=HOLD, about={"subject": "bob"})
    await client.run("d", operation="refund", scope="acme")
    await world.crash("e", operation="refund")
    return client
