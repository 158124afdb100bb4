"""The audit chain: one row of entries for each scope, whoever appends; and tokens of operators."""

from __future__ import annotations

from typing import Any

import pytest

from semel.core.operators.audit import (
    AddSeal,
    AppendEntry,
    EntriesDropped,
    EntriesFound,
    EntryAppended,
    EntryRedacted,
    FindStrays,
    HeadsFound,
    KeepFrom,
    ReadEntries,
    ReadHeads,
    ReadSeals,
    RedactEntry,
    ScanEntries,
    SealAdded,
    SealsFound,
    StraysFound,
    seal_after,
)
from semel.core.operators.chain import (
    ChainHead,
    Phase,
    Seal,
    StoredEntry,
    hash_entry,
    hash_origin,
    hash_written,
    name_chain,
    write_note,
)
from semel.core.operators.tokens import (
    AddToken,
    FindToken,
    ListTokens,
    RevokeToken,
    StoredToken,
    TokenFound,
    TokensFound,
    TouchToken,
)
from semel.core.store import Capability
from semel.testing.contract.suite import Contract
from semel.testing.contract.world import World

CHAIN = name_chain("acme")
_MINUTE_US = 60_000_000


def _new(number: int, **changes: Any) -> AppendEntry:
    fields: dict[str, Any] = {
        "scope": "acme",
        "id": number.to_bytes(16, "big"),
        "actor": "ann",
        "action": "resolve",
        "target": f"r{number}",
        "outcome": "done",
        "written": write_note(bytes(16), f"why {number}", {"n": str(number)}),
    }
    return AppendEntry(**{**fields, **changes})


async def _ask(world: World, operation: Any, kind: type[Any]) -> Any:
    (answer,) = await world.perform(operation)
    assert isinstance(answer, kind), f"not the answer to {type(operation).__name__}: {answer}"
    return answer


async def _append(world: World, *numbers: int, **changes: Any) -> list[StoredEntry]:
    entries: list[StoredEntry] = []
    for number in numbers:
        appended: EntryAppended = await _ask(world, _new(number, **changes), EntryAppended)
        entries.append(appended.entry)
    return entries


async def _entries(world: World, scope: str = "acme", after: int = 0, upto: int = 99) -> tuple[StoredEntry, ...]:
    found: EntriesFound = await _ask(world, ReadEntries(name_chain(scope), after, upto, 100), EntriesFound)
    return found.entries


async def _head(world: World, scope: str = "acme") -> ChainHead:
    found: HeadsFound = await _ask(world, ReadHeads(scope, b"", 10), HeadsFound)
    (head,) = found.heads
    return head


async def _scan(world: World, **asked: Any) -> list[tuple[str, int]]:
    fields: dict[str, Any] = dict.fromkeys(("scopes", "actor", "action", "target", "before"))
    scan = ScanEntries(**{**fields, "only_open": False, "limit": 100, **asked})
    found: EntriesFound = await _ask(world, scan, EntriesFound)
    return [(entry.scope, entry.seq) for entry in found.entries]


async def _seal(world: World) -> Seal:
    head = await _head(world)
    seal = seal_after(head, await _entries(world, after=head.sealed), head.at_us)
    added: SealAdded = await _ask(world, AddSeal(CHAIN, seal), SealAdded)
    assert added.is_done
    return seal


def _check_chain(entries: tuple[StoredEntry, ...], scope: str = "acme") -> None:
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1)), "numbers without a gap"
    previous = hash_origin(scope)
    for entry in entries:
        assert entry.previous == previous, "an entry follows the one before"
        assert entry.hash == hash_entry(entry), "an entry is hashed as it is kept"
        previous = entry.hash


class AuditContract(Contract, calls=False):
    """What a store with `Capability.AUDIT` does for the audit chain and for tokens."""

    async def test_audit_is_declared(self, world: World) -> None:
        assert Capability.AUDIT in world.store().capabilities

    async def test_entries_follow_each_other(self, world: World) -> None:
        await _append(world, 1, 2, 3)
        entries = await _entries(world)
        _check_chain(entries)
        head = await _head(world)
        assert (head.seq, head.hash, head.at_us) == (3, entries[-1].hash, entries[-1].at_us)

    async def test_an_entry_is_kept_as_it_was_said(self, world: World) -> None:
        new = _new(1, actor="Zoë <z@x> ", outcome="", target="a'b\\c%_", phase=int(Phase.ENDED), ends=7)
        (entry,) = [(await _ask(world, new, EntryAppended)).entry]
        (read,) = await _entries(world)
        assert read == entry
        assert (read.actor, read.outcome, read.target, read.phase, read.ends) == (
            "Zoë <z@x> ",
            "",
            "a'b\\c%_",
            Phase.ENDED,
            7,
        )
        assert read.written == new.written
        assert read.written_hash == hash_written(new.written)

    async def test_text_that_no_database_can_keep_is_hashed_as_it_is_kept(self, world: World) -> None:
        await _append(world, 1, target="half \ud800")
        _check_chain(await _entries(world))

    async def test_an_entry_that_is_sent_again_is_not_appended_twice(self, world: World) -> None:
        (first,) = await _append(world, 1)
        await _append(world, 2)
        (again,) = await _append(world, 1)
        assert again == first
        assert len(await _entries(world)) == 2

    async def test_entries_that_are_sent_together_are_one_row(self, world: World) -> None:
        await _append(world, 1)
        answers = await world.perform(*(_new(number) for number in (2, 3, 1, 4)), _new(9, scope="other"))
        numbers = [answer.entry.seq for answer in answers if isinstance(answer, EntryAppended)]
        assert numbers == [2, 3, 1, 4, 1]
        _check_chain(await _entries(world))
        _check_chain(await _entries(world, "other"), "other")

    async def test_scopes_have_chains_of_their_own(self, world: World) -> None:
        for scope in ("acme", "acme ", "ACME", ""):
            await _append(world, 1, scope=scope)
        for scope in ("acme", "acme ", "ACME", ""):
            (entry,) = await _entries(world, scope)
            assert entry.scope == scope
            _check_chain((entry,), scope)
        found: HeadsFound = await _ask(world, ReadHeads(None, b"", 10), HeadsFound)
        assert sorted(head.scope for head in found.heads) == ["", "ACME", "acme", "acme "]
        assert [head.chain for head in found.heads] == sorted(head.chain for head in found.heads)

    async def test_heads_are_read_in_pages(self, world: World) -> None:
        for scope in ("a", "b", "c"):
            await _append(world, 1, scope=scope)
        first: HeadsFound = await _ask(world, ReadHeads(None, b"", 2), HeadsFound)
        rest: HeadsFound = await _ask(world, ReadHeads(None, first.heads[-1].chain, 2), HeadsFound)
        assert sorted(head.scope for head in (*first.heads, *rest.heads)) == ["a", "b", "c"]

    async def test_an_instant_is_the_clock_of_the_store_and_never_goes_back(self, world: World) -> None:
        (first,) = await _append(world, 1)
        assert first.at_us == world.clock.store_clock()
        world.clock.set_back(10)
        (second,) = await _append(world, 2)
        assert second.at_us == first.at_us
        _check_chain(await _entries(world))

    async def test_entries_are_listed_newest_first(self, world: World) -> None:
        await _append(world, 1, 2)
        await world.pass_time(1)
        await _append(world, 3, scope="other")
        await world.pass_time(1)
        await _append(world, 4)
        everything = [("acme", 3), ("other", 1), ("acme", 2), ("acme", 1)]
        assert await _scan(world) == everything
        assert await _scan(world, scopes=("acme",)) == [("acme", 3), ("acme", 2), ("acme", 1)]
        assert await _scan(world, scopes=("acme", "other")) == everything
        assert await _scan(world, scopes=()) == []
        assert await _scan(world, limit=2) == everything[:2]

    async def test_a_list_goes_on_where_it_ended(self, world: World) -> None:
        await _append(world, 1, 2, 3)  # in one instant
        await _append(world, 4, scope="other")
        everything = await _scan(world)
        for place, (scope, seq) in enumerate(everything):
            (entry,) = await _entries(world, scope, seq - 1, seq)
            assert await _scan(world, before=(entry.at_us, seq, name_chain(scope))) == everything[place + 1 :]

    async def test_entries_are_found_by_who_what_and_to_what(self, world: World) -> None:
        await _append(world, 1)
        await _append(world, 2, actor="bob")
        await _append(world, 3, action="erase")
        assert await _scan(world, actor="bob") == [("acme", 2)]
        assert await _scan(world, action="erase") == [("acme", 3)]
        assert await _scan(world, target="r1") == [("acme", 1)]
        assert await _scan(world, actor="bob", target="r1") == []

    async def test_an_action_without_an_end_is_open(self, world: World) -> None:
        await _append(world, 1, 2, phase=int(Phase.BEGUN))
        await _append(world, 3, scope="other", phase=int(Phase.ENDED), ends=2)
        await _append(world, 4, phase=int(Phase.ENDED), ends=1)
        assert await _scan(world, only_open=True) == [("acme", 2)]

    async def test_a_range_is_sealed_once(self, world: World) -> None:
        await _append(world, 1, 2)
        head = await _head(world)
        seal = await _seal(world)
        late = seal_after(head, await _entries(world), head.at_us + 1)
        refused: SealAdded = await _ask(world, AddSeal(CHAIN, late), SealAdded)
        assert not refused.is_done
        found: SealsFound = await _ask(world, ReadSeals(CHAIN, 0, 99, 10), SealsFound)
        assert found.seals == (seal,)
        sealed = await _head(world)
        assert (sealed.sealed, sealed.sealed_us, sealed.seal_hash) == (2, seal.at_us, seal.hash)
        assert (sealed.seq, sealed.hash) == (head.seq, head.hash)

    async def test_seals_follow_each_other(self, world: World) -> None:
        await _append(world, 1, 2)
        first = await _seal(world)
        await _append(world, 3)
        second = await _seal(world)
        assert (second.first, second.last, second.previous) == (3, 3, first.hash)
        found: SealsFound = await _ask(world, ReadSeals(CHAIN, 2, 99, 10), SealsFound)
        assert found.seals == (second,)

    async def test_what_a_person_wrote_can_be_taken_out(self, world: World) -> None:
        before = await _append(world, 1, 2)
        taken: EntryRedacted = await _ask(world, RedactEntry(CHAIN, 1), EntryRedacted)
        again: EntryRedacted = await _ask(world, RedactEntry(CHAIN, 1), EntryRedacted)
        assert (taken.is_done, again.is_done) == (True, False)
        entries = await _entries(world)
        assert [entry.written for entry in entries] == [None, before[1].written]
        _check_chain(entries)

    async def test_only_what_is_sealed_can_be_deleted(self, world: World) -> None:
        await _append(world, 1, 2, 3)
        await _seal(world)
        await _append(world, 4)
        refused: EntriesDropped = await _ask(world, KeepFrom(CHAIN, 5, 10), EntriesDropped)
        assert refused.count == 0
        assert len(await _entries(world)) == 4
        assert (await _head(world)).kept_from == 1

    async def test_old_entries_are_deleted_in_lots_from_the_beginning(self, world: World) -> None:
        await _append(world, 1, 2, 3)
        await _seal(world)
        await _append(world, 4)
        lots: list[EntriesDropped] = [await _ask(world, KeepFrom(CHAIN, 4, 2), EntriesDropped) for _ in range(3)]
        assert [lot.count for lot in lots] == [2, 1, 0]
        assert [entry.seq for entry in await _entries(world)] == [4]
        assert (await _head(world)).kept_from == 4
        back: EntriesDropped = await _ask(world, KeepFrom(CHAIN, 2, 10), EntriesDropped)
        assert back.count == 0
        assert (await _head(world)).kept_from == 4
        (entry,) = await _append(world, 5)
        assert entry.seq == 5

    async def test_nothing_strays_from_a_chain_that_is_whole(self, world: World) -> None:
        await _append(world, 1, 2)
        await _seal(world)
        found: StraysFound = await _ask(world, FindStrays(), StraysFound)
        assert found.strays == ()

    async def test_a_token_is_kept_under_its_name_once(self, world: World) -> None:
        kept = await _token(world, "ci")
        other: TokenFound = await _ask(world, _new_token("ci", id=b"87654321"), TokenFound)
        assert other.token == kept, "the one that is there"
        again: TokenFound = await _ask(world, _new_token("ci"), TokenFound)
        assert again.token == kept
        found: TokenFound = await _ask(world, FindToken(b"12345678"), TokenFound)
        assert found.token == kept
        assert found.now_us == world.clock.store_clock()
        nobody: TokenFound = await _ask(world, FindToken(b"87654321"), TokenFound)
        assert nobody.token is None

    @pytest.mark.parametrize("scopes", [None, "[]", '["acme"]'])
    async def test_a_token_has_what_it_was_given(self, world: World, scopes: str | None) -> None:
        now = world.clock.store_clock()
        assert await _token(world, "ci", scopes=scopes) == StoredToken(
            id=b"12345678",
            name="ci",
            secret_hash=bytes(range(32)),
            roles="operator,viewer",
            scopes=scopes,
            created_us=now,
            created_by="ann",
            expires_us=now + 1000,
        )

    async def test_the_use_of_a_token_is_noted_once_in_a_while(self, world: World) -> None:
        await _token(world, "ci")
        began = world.clock.store_clock()
        seen: list[int | None] = []
        for pause in (0, 30, 30, 59, 1):
            await world.pass_time(pause)
            touched: TokenFound = await _ask(world, TouchToken(b"12345678", _MINUTE_US), TokenFound)
            assert touched.token is not None
            seen.append(None if touched.token.used_us is None else (touched.token.used_us - began) // 1_000_000)
        assert seen == [0, 0, 60, 60, 120]

    async def test_a_token_is_revoked_once(self, world: World) -> None:
        await _token(world, "ci")
        await world.pass_time(1)
        revoked: TokenFound = await _ask(world, RevokeToken("ci", "bob"), TokenFound)
        assert revoked.token is not None
        assert (revoked.token.revoked_us, revoked.token.revoked_by) == (world.clock.store_clock(), "bob")
        again: TokenFound = await _ask(world, RevokeToken("ci", "eve"), TokenFound)
        unknown: TokenFound = await _ask(world, RevokeToken("nobody", "eve"), TokenFound)
        assert (again.token, unknown.token) == (None, None)
        found: TokenFound = await _ask(world, FindToken(b"12345678"), TokenFound)
        assert found.token == revoked.token

    async def test_tokens_are_listed_by_name(self, world: World) -> None:
        for number, name in enumerate(("b", "a", "C")):
            await _token(world, name, id=bytes([number] * 8))
        first: TokensFound = await _ask(world, ListTokens("", 2), TokensFound)
        rest: TokensFound = await _ask(world, ListTokens(first.tokens[-1].name, 2), TokensFound)
        assert [[token.name for token in page.tokens] for page in (first, rest)] == [["C", "a"], ["b"]]


def _new_token(name: str, **changes: Any) -> AddToken:
    fields: dict[str, Any] = {
        "id": b"12345678",
        "name": name,
        "secret_hash": bytes(range(32)),
        "roles": "operator,viewer",
        "scopes": None,
        "by": "ann",
        "lasts_us": 1000,
    }
    return AddToken(**{**fields, **changes})


async def _token(world: World, name: str, **changes: Any) -> StoredToken:
    found: TokenFound = await _ask(world, _new_token(name, **changes), TokenFound)
    assert found.token is not None
    return found.token
