"""Erasing a person: all records about a subject go, what has not ended is refused, and nothing happens again for it."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from semel.core.erasure.port import SubjectErasureReport
from semel.core.key import SHARED
from semel.core.operations import Erase
from semel.core.policy import Policy
from semel.core.record import About
from semel.core.store import Capability
from semel.errors import ResultNotKept, StoreUnavailable, UsageError
from semel.testing.contract.api_client import ApiClient
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

ANN = {"subject": "ann"}
HOLD = Policy(in_doubt="hold")
RETRY = Policy(retry_errors=(ValueError,))


async def erase_subject(client: ApiClient, subject: str = "ann", **asked: Any) -> SubjectErasureReport:
    """Erase a person, on every store: also on one that has to read all records for it."""
    settings = {"reason": "request 17", "scan": True, **asked}
    report: SubjectErasureReport = await client.call(
        functools.partial(client.engine.erase_subject, subject, **settings)
    )
    return report


class SubjectErasureContract(Contract):
    """Everything about one subject, by the public method."""

    async def test_the_records_of_a_subject_are_erased_and_no_others(self, world: World) -> None:
        client = world.client()
        for key, subject in (("a", "ann"), ("b", "ann"), ("c", "Ann"), ("d", "ann "), ("e", "an"), ("f", None)):
            await client.run(key, about={"subject": subject})
        report = await erase_subject(client, by="dpo")
        assert (report.erased, report.refused.keys() - {"copies"}) == ({"records": 2}, set())
        assert [(await client.read(key)).erased for key in "abcdef"] == [True, True, False, False, False, False]
        note = (await client.read("a")).note
        assert note is not None
        assert (note.reason, note.by) == ("request 17", "dpo")

    async def test_a_scope_restricts_what_is_erased(self, world: World) -> None:
        client = world.client()
        for scope in ("acme", "zenith", SHARED):
            await client.run(scope=scope, about=ANN)
        assert (await erase_subject(client, scope="acme")).erased == {"records": 1}
        assert [(await client.read(scope=scope)).erased for scope in ("acme", "zenith", SHARED)] == [True, False, False]
        assert (await erase_subject(client, scope=SHARED)).erased == {"records": 1}
        assert (await erase_subject(client)).erased == {"records": 1}

    async def test_a_retry_after_the_erasure_has_no_second_effect(self, world: World) -> None:
        client = world.client()
        await client.run(handler=world.returning("value"), about=ANN)
        await client.error("failed", handler=world.raising(ValueError("ann")), policy=RETRY, about=ANN)
        await erase_subject(client)
        assert isinstance(await client.error(handler=world.returning("again"), about=ANN), ResultNotKept)
        error = await world.client().error("failed", handler=world.returning("again"), policy=RETRY, about=ANN)
        assert "ann" not in repr(error)
        assert world.ran == ["value", "ValueError"]

    async def test_what_has_not_ended_is_refused_with_what_to_do_and_stays(self, world: World) -> None:
        client = world.client()
        await world.crash("runs", about=About(subject="ann"))
        await client.error("doubt", handler=world.raising(OSError()), policy=HOLD, about=ANN)
        before = [await world.stored("runs"), await world.stored("doubt")]
        report = await erase_subject(client)
        assert report.erased == {}
        refused = {refusal.names: refusal for refusal in report.refused["records"]}
        references = {key: (await client.read(key)).reference[:16] for key in ("runs", "doubt")}
        assert "still running" in refused[(references["runs"],)].why
        assert "semel resolve" in refused[(references["doubt"],)].why
        assert not report.is_complete
        assert [await world.stored("runs"), await world.stored("doubt")] == before

    async def test_a_dry_run_tells_and_changes_nothing(self, world: World) -> None:
        client = world.client()
        await client.run("a", about=ANN)
        await world.crash("runs", about=About(subject="ann"))
        before = await client.read("a")
        report = await erase_subject(client, dry_run=True)
        assert (report.erased, report.dry_run) == ({"records": 1}, True)
        assert [refusal.number for refusal in report.refused["records"]] == [1]
        assert await client.read("a") == before

    async def test_erasing_twice_finds_nothing_more(self, world: World) -> None:
        client = world.client()
        await client.run(about=ANN)
        await erase_subject(client)
        left = await world.stored()
        assert await erase_subject(client) == SubjectErasureReport({}, {})
        assert await world.stored() == left

    async def test_a_run_that_was_cut_off_is_run_again_and_ends_with_everything_erased(self, world: World) -> None:
        watched = world.watched()
        client = world.client(watched)
        for key in "abc":
            await client.run(key, about=ANN)
        watched.lose(Erase)
        with pytest.raises(StoreUnavailable):
            await erase_subject(client)
        watched.mend()
        await erase_subject(client)
        assert [(await client.read(key)).erased for key in "abc"] == [True] * 3

    async def test_what_only_a_scan_would_find_is_refused_and_nothing_is_erased(self, world: World) -> None:
        client = world.client()
        await client.run(about=ANN)
        if Capability.SEARCH in world.store().capabilities:
            assert (await erase_subject(client, scan=False)).erased == {"records": 1}
            return
        with pytest.raises(UsageError, match="scan=True"):
            await erase_subject(client, scan=False)
        assert not (await client.read()).erased

    @pytest.mark.parametrize("asked", [{"reason": ""}, {"reason": None}, {"subject": ""}, {"subject": None}])
    async def test_erasing_a_person_needs_a_subject_and_a_reason(self, world: World, asked: dict[str, Any]) -> None:
        client = world.client()
        await client.run(about=ANN)
        with pytest.raises(UsageError, match=r"needs .* nothing was erased"):
            await erase_subject(client, **asked)
        assert not (await client.read()).erased

    async def test_the_texts_of_the_history_go_with_the_record(self, world: World) -> None:
        client = world.client()
        await client.error(handler=world.raising(ValueError("about ann")), policy=RETRY, about=ANN)
        await client.run(policy=RETRY, about=ANN)
        assert "about ann" in repr(await client.history())
        await erase_subject(client)
        assert "about ann" not in repr(await client.history())
