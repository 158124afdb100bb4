"""Whatever is done to the tables of the audit chain, `verify` finds it and says what it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest
from msgspec.structs import replace

from semel import AsyncSemel
from semel.core.flow import ask
from semel.core.operators.audit import KeepFrom, ReadEntries, ReadSeals
from semel.core.operators.chain import StoredEntry, hash_entry, hash_origin, hash_range, hash_seal, name_chain
from semel.core.operators.verification import EXPIRE
from semel.engine.engine import engine_of
from semel.server.audit import Anchor, Audit, AuditFault
from tests.audit.places import PLACES, Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
_NUMBERS = count()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = make_place(request.param, request, tmp_path_factory.mktemp("audit"))
    made.unguard()
    return made


class Chain:
    """A chain of eight entries, of which the first five are sealed, and what is done to it."""

    def __init__(self, place: Place, semel: AsyncSemel) -> None:
        self.scope = f"scope {next(_NUMBERS)}"
        self.place = place
        self.audit = Audit(semel)
        self._engine = engine_of(semel)
        self.name = place.literal(name_chain(self.scope))
        self.anchors: list[Anchor] = []

    async def fill(self) -> None:
        for number in range(1, 9):
            await self.audit.append(
                scope=self.scope, actor="ann", action="resolve", target=f"r{number}", reason="why", outcome="done"
            )
            if number == 5:
                self.anchors = await self.audit.seal(scope=self.scope)

    async def find(self, *, with_anchors: bool = False) -> list[tuple[str, int]]:
        return [(fault.kind, fault.seq) for fault in await self.faults(with_anchors=with_anchors)]

    async def faults(self, *, with_anchors: bool = False) -> tuple[AuditFault, ...]:
        report = await self.audit.verify(scope=self.scope, anchors=self.anchors if with_anchors else ())
        assert all(fault.scope in (self.scope, "") for fault in report.faults)
        return report.faults

    def run(self, *statements: str) -> None:
        self.place.run(*(statement.replace("{chain}", f"chain = {self.name}") for statement in statements))

    async def expire(self, most: int = 100) -> int:
        """Have the first five entries deleted as an expiry does, so many of them."""
        said = await self.audit.append(scope=self.scope, actor="ann", action=EXPIRE, target="6", reason="old")
        assert said.seq == 9
        return (await self._engine.perform_on(None, ask(KeepFrom(name_chain(self.scope), 6, most)))).count

    async def entries(self) -> list[StoredEntry]:
        found = await self._engine.perform_on(None, ask(ReadEntries(name_chain(self.scope), 0, 99, 99)))
        return list(found.entries)

    async def rewrite(self, first: int, last: int, change: Callable[[StoredEntry], StoredEntry]) -> None:
        """Change an entry and hash it and those up to `last` anew, as somebody would who knows how."""
        entries = await self.entries()
        entries[first - 1] = change(entries[first - 1])
        for place in range(first - 1, last):
            entry = entries[place]
            if place:
                entry = replace(entry, previous=entries[place - 1].hash)
            entries[place] = entry = replace(entry, hash=hash_entry(entry))
            hashes = f"hash = {self.place.literal(entry.hash)}, previous = {self.place.literal(entry.previous)}"
            self.run(f"UPDATE semel_audit SET actor = '{entry.actor}', {hashes} WHERE {{chain}} AND seq = {entry.seq}")
        if last == len(entries):
            head = self.place.literal(entries[-1].hash)
            self.run(f"UPDATE semel_audit_head SET hash = {head} WHERE {{chain}}")

    async def reseal(self) -> None:
        """Hash the only seal anew."""
        found = await self._engine.perform_on(None, ask(ReadSeals(name_chain(self.scope), 0, 99, 99)))
        (seal,) = found.seals
        entries = (await self.entries())[: seal.last]
        hashes = (entry.hash for entry in entries)
        seal = replace(seal, last_hash=entries[-1].hash, range_hash=hash_range(hashes))
        seal = replace(seal, hash=hash_seal(self.scope, seal))
        literal = self.place.literal
        self.run(
            f"UPDATE semel_audit_seal SET last_hash = {literal(seal.last_hash)}, "
            f"range_hash = {literal(seal.range_hash)}, hash = {literal(seal.hash)} WHERE {{chain}}",
            f"UPDATE semel_audit_head SET seal_hash = {literal(seal.hash)} WHERE {{chain}}",
        )


@pytest.fixture
async def chain(place: Place) -> AsyncIterator[Chain]:
    async with AsyncSemel(place.url) as semel:
        made = Chain(place, semel)
        await made.fill()
        yield made


def _as_eve(entry: StoredEntry) -> StoredEntry:
    return replace(entry, actor="eve")


async def test_a_chain_that_nobody_touched_is_whole(chain: Chain) -> None:
    report = await chain.audit.verify(scope=chain.scope, anchors=chain.anchors)
    assert (report.entries, report.sealed, report.faults, report.scopes) == (8, 5, (), 1)


@pytest.mark.parametrize(
    "change",
    ["actor = 'eve'", "at_us = at_us + 1", "outcome = 'x'", "target = ''", "phase = 1", "ends = 1", "scope = 'x'"],
)
@pytest.mark.covering
async def test_an_entry_that_was_changed_is_found(chain: Chain, change: str) -> None:
    chain.run(f"UPDATE semel_audit SET {change} WHERE {{chain}} AND seq = 3")
    assert await chain.find() == [("edit", 3)]


async def test_a_reason_that_was_changed_is_found(chain: Chain) -> None:
    written = chain.place.literal(bytes(16) + b'{"reason":"other","detail":{}}')
    chain.run(f"UPDATE semel_audit SET written = {written} WHERE {{chain}} AND seq = 7")
    assert await chain.find() == [("edit", 7)]


async def test_a_reason_that_was_taken_out_behind_the_chain_is_found(chain: Chain) -> None:
    chain.run("UPDATE semel_audit SET written = NULL WHERE {chain} AND seq = 7")
    assert await chain.find() == [("edit", 7)]


@pytest.mark.parametrize("change", ["written = {bytes}", "at_us = 9223372036854775807", "at_us = -9223372036854775807"])
@pytest.mark.covering
async def test_a_damaged_entry_is_found_and_hides_no_other_from_the_list(chain: Chain, change: str) -> None:
    damage = change.replace("{bytes}", chain.place.literal(b"\xff" * 20))
    chain.run(f"UPDATE semel_audit SET {damage} WHERE {{chain}} AND seq = 7")
    assert await chain.find() == [("edit", 7)]
    listed = [entry async for entry in chain.audit.entries(scope=chain.scope)]
    assert sorted(entry.seq for entry in listed) == list(range(1, 9))
    (damaged,) = [place for place, entry in enumerate(listed) if entry.seq == 7]
    behind = [entry async for entry in chain.audit.entries(scope=chain.scope, before=listed[damaged].place)]
    assert behind == listed[damaged + 1 :], "a list goes on behind it"
    (reason,) = [entry.reason for entry in listed if entry.seq == 7]
    assert reason == ("(damaged: see semel audit verify)" if "written" in change else "why")


async def test_an_entry_that_was_changed_and_hashed_anew_is_found(chain: Chain) -> None:
    await chain.rewrite(7, 7, _as_eve)
    assert await chain.find() == [("edit", 7)]


async def test_the_last_entry_changed_and_hashed_anew_is_found(chain: Chain) -> None:
    await chain.rewrite(8, 8, _as_eve)
    chain.run("UPDATE semel_audit_head SET hash = " + chain.place.literal(bytes(32)) + " WHERE {chain}")
    assert await chain.find() == [("edit", 8)]


async def test_a_chain_that_was_hashed_anew_to_its_end_is_found_by_its_seal(chain: Chain) -> None:
    await chain.rewrite(2, 8, _as_eve)
    faults = await chain.find()
    assert faults == [("edit", 5)]


async def test_a_chain_that_was_hashed_and_sealed_anew_is_found_by_its_anchor(chain: Chain) -> None:
    await chain.rewrite(2, 8, _as_eve)
    await chain.reseal()
    assert await chain.find() == [], "nothing in the database tells"
    assert await chain.find(with_anchors=True) == [("edit", 5)]


@pytest.mark.parametrize("seq", [1, 4, 7])
@pytest.mark.covering
async def test_an_entry_that_was_deleted_is_found(chain: Chain, seq: int) -> None:
    chain.run(f"DELETE FROM semel_audit WHERE {{chain}} AND seq = {seq}")
    assert await chain.find() == [("deletion", seq)]


async def test_an_entry_that_was_deleted_with_those_behind_moved_up_is_found(chain: Chain) -> None:
    chain.run(
        "DELETE FROM semel_audit WHERE {chain} AND seq = 6",
        "UPDATE semel_audit SET seq = 1000 + seq WHERE {chain} AND seq > 6",
        "UPDATE semel_audit SET seq = seq - 1001 WHERE {chain} AND seq > 1000",
    )
    assert await chain.find() == [("deletion", 6)]


async def test_old_entries_that_were_deleted_behind_the_chain_are_found(chain: Chain) -> None:
    chain.run(
        "UPDATE semel_audit_head SET kept_from = 6 WHERE {chain}", "DELETE FROM semel_audit WHERE {chain} AND seq < 6"
    )
    assert await chain.find() == [("deletion", 5)]


async def test_old_entries_that_were_deleted_without_a_seal_are_found(chain: Chain) -> None:
    chain.run(
        "UPDATE semel_audit_head SET kept_from = 4 WHERE {chain}", "DELETE FROM semel_audit WHERE {chain} AND seq < 4"
    )
    assert ("deletion", 3) in await chain.find()


def _insertion(seq: int, like: int = 2) -> str:
    columns = "chain, at_us, ends, phase, seal, scope, actor, action, target, outcome, written_hash, written"
    return (
        f"INSERT INTO semel_audit (seq, id, previous, hash, {columns}) "
        f"SELECT {seq}, {{id}}, previous, hash, {columns} FROM semel_audit WHERE {{chain}} AND seq = {like}"
    )


async def test_an_entry_that_was_put_in_is_found(chain: Chain) -> None:
    chain.run(
        "UPDATE semel_audit SET seq = 1000 + seq WHERE {chain} AND seq > 5",
        "UPDATE semel_audit SET seq = seq - 999 WHERE {chain} AND seq > 1000",
        _insertion(6).replace("{id}", chain.place.literal(bytes(16))),
        "UPDATE semel_audit_head SET seq = 9 WHERE {chain}",
    )
    assert ("insertion", 6) in await chain.find()


async def test_an_entry_that_was_put_in_and_hashed_is_found(chain: Chain) -> None:
    chain.run(
        "UPDATE semel_audit SET seq = 1000 + seq WHERE {chain} AND seq > 5",
        "UPDATE semel_audit SET seq = seq - 999 WHERE {chain} AND seq > 1000",
        _insertion(6).replace("{id}", chain.place.literal(bytes(16))),
    )
    await chain.rewrite(6, 6, lambda entry: replace(entry, actor="eve"))
    assert ("insertion", 6) in await chain.find()


async def test_an_entry_that_was_put_in_behind_the_end_is_found(chain: Chain) -> None:
    chain.run(_insertion(9).replace("{id}", chain.place.literal(bytes(16))))
    assert await chain.find() == [("insertion", 9)]


@pytest.mark.parametrize("seq", [0, -7])
async def test_an_entry_that_was_put_in_before_the_beginning_is_found(chain: Chain, seq: int) -> None:
    chain.run(_insertion(seq).replace("{id}", chain.place.literal(bytes(16))))
    assert await chain.find() == [("insertion", seq)]
    listed = [entry async for entry in chain.audit.entries(scope=chain.scope)]
    (put_in,) = [place for place, entry in enumerate(listed) if entry.seq == seq]
    behind = [entry async for entry in chain.audit.entries(scope=chain.scope, before=listed[put_in].place)]
    assert behind == listed[put_in + 1 :], "a list goes on behind it"


async def test_an_entry_that_was_put_in_below_what_is_kept_is_found(chain: Chain) -> None:
    assert await chain.expire() == 5
    assert await chain.find() == []
    chain.run(_insertion(3, like=7).replace("{id}", chain.place.literal(bytes(16))))
    assert await chain.find() == [("insertion", 3)]
    chain.run(_insertion(5, like=7).replace("{id}", chain.place.literal(bytes(range(16)))))
    assert await chain.find() == [("insertion", 3), ("insertion", 5)]


async def test_what_an_expiry_that_was_cut_off_has_left_is_in_order_until_it_is_changed(chain: Chain) -> None:
    assert await chain.expire(most=2) == 2
    assert await chain.find() == [], "the rest is deleted by the next expiry"
    chain.run("UPDATE semel_audit SET actor = 'eve' WHERE {chain} AND seq = 4")
    assert await chain.find() == [("insertion", 4)]


async def test_a_second_chain_of_a_scope_is_found(chain: Chain) -> None:
    other = chain.place.literal(bytes(16))
    columns = "at_us, ends, phase, scope, actor, action, target, outcome, id, written_hash, previous, hash, written"
    head = "scope, hash, at_us, sealed_us"
    origin = chain.place.literal(hash_origin(chain.scope))
    first = "(SELECT hash FROM semel_audit WHERE {chain} AND seq = 1)"
    chain.run(
        f"INSERT INTO semel_audit (chain, seq, {columns}) SELECT {other}, seq, {columns} FROM semel_audit "
        f"WHERE {{chain}} AND seq = 1",
        f"INSERT INTO semel_audit_head (chain, seq, kept_from, sealed, seal_hash, {head}) "
        f"SELECT {other}, 1, 1, 0, {origin}, {head.replace(' hash', first)} FROM semel_audit_head WHERE {{chain}}",
    )
    try:
        faults = [fault for fault in (await chain.audit.verify()).faults if fault.scope == chain.scope]
        assert [(fault.kind, fault.seq) for fault in faults] == [("insertion", 1)]
    finally:
        chain.place.run(
            *(f"DELETE FROM {table} WHERE chain = {other}" for table in ("semel_audit", "semel_audit_head"))
        )


async def test_entries_that_changed_places_are_found(chain: Chain) -> None:
    chain.run(
        "UPDATE semel_audit SET seq = 1000 WHERE {chain} AND seq = 6",
        "UPDATE semel_audit SET seq = 6 WHERE {chain} AND seq = 8",
        "UPDATE semel_audit SET seq = 8 WHERE {chain} AND seq = 1000",
    )
    assert await chain.find() == [("reorder", 6), ("reorder", 8)]


async def test_neighbours_that_changed_places_below_a_seal_are_found(chain: Chain) -> None:
    chain.run(
        "UPDATE semel_audit SET seq = 1000 WHERE {chain} AND seq = 2",
        "UPDATE semel_audit SET seq = 2 WHERE {chain} AND seq = 3",
        "UPDATE semel_audit SET seq = 3 WHERE {chain} AND seq = 1000",
    )
    assert await chain.find() == [("reorder", 2), ("reorder", 3)]


async def test_a_tail_that_was_cut_off_is_found(chain: Chain) -> None:
    chain.run("DELETE FROM semel_audit WHERE {chain} AND seq > 6")
    assert await chain.find() == [("truncation", 7)]


async def _rewind(chain: Chain, seq: int) -> None:
    last = (await chain.entries())[seq - 1]
    chain.run(
        f"DELETE FROM semel_audit WHERE {{chain}} AND seq > {seq}",
        f"UPDATE semel_audit_head SET seq = {seq}, hash = {chain.place.literal(last.hash)}, at_us = {last.at_us} "
        f"WHERE {{chain}}",
    )


async def test_a_tail_that_was_cut_off_with_the_head_is_found_by_its_seal(chain: Chain) -> None:
    await _rewind(chain, 3)
    assert ("truncation", 5) in await chain.find()


async def test_a_tail_that_was_cut_off_and_grew_again_is_found_by_its_seal(chain: Chain) -> None:
    await _rewind(chain, 3)
    chain.run("UPDATE semel_audit_head SET sealed = 0 WHERE {chain}")
    for number in range(5):
        await chain.audit.append(scope=chain.scope, actor="eve", action="a", target=str(number), reason="")
    assert ("truncation", 5) in await chain.find()


async def test_a_tail_that_was_cut_off_with_head_and_seals_is_found_by_its_anchor(chain: Chain) -> None:
    await _rewind(chain, 3)
    origin = chain.place.literal((await chain.entries())[0].previous)
    chain.run(
        "DELETE FROM semel_audit_seal WHERE {chain}",
        f"UPDATE semel_audit_head SET sealed = 0, seal_hash = {origin} WHERE {{chain}}",
    )
    assert await chain.find() == [], "nothing in the database tells"
    assert await chain.find(with_anchors=True) == [("truncation", 5)]


async def test_a_chain_without_its_head_is_found(chain: Chain) -> None:
    chain.run("DELETE FROM semel_audit_head WHERE {chain}")
    kinds = {fault.kind for fault in await chain.faults()}
    assert kinds == {"truncation"}


async def test_a_chain_of_which_only_seals_are_left_is_found(chain: Chain) -> None:
    chain.run("DELETE FROM semel_audit_head WHERE {chain}", "DELETE FROM semel_audit WHERE {chain}")
    assert await chain.find() == [("truncation", 5)]


async def test_a_chain_that_is_gone_altogether_is_found_by_its_anchor(chain: Chain) -> None:
    chain.run(*(f"DELETE FROM {table} WHERE {{chain}}" for table in ("semel_audit", "semel_audit_head")))
    chain.run("DELETE FROM semel_audit_seal WHERE {chain}")
    assert await chain.find() == []
    assert await chain.find(with_anchors=True) == [("truncation", 5)]


async def test_a_seal_that_was_deleted_is_found(chain: Chain) -> None:
    chain.run("DELETE FROM semel_audit_seal WHERE {chain}")
    assert await chain.find() == [("truncation", 1)]


async def test_a_seal_that_was_changed_is_found(chain: Chain) -> None:
    chain.run("UPDATE semel_audit_seal SET at_us = at_us + 1 WHERE {chain}")
    assert await chain.find() == [("edit", 5)]


async def test_a_chain_with_a_damaged_head_takes_no_entry(chain: Chain) -> None:
    chain.run("UPDATE semel_audit_head SET seq = 4 WHERE {chain}")
    with pytest.raises(Exception, match="Run `semel audit verify`") as caught:
        await chain.audit.append(scope=chain.scope, actor="a", action="b", target="c", reason="")
    assert type(caught.value).__name__ == "RecordUnreadable"


async def test_sealing_does_not_cover_up_what_is_missing(chain: Chain) -> None:
    chain.run("DELETE FROM semel_audit WHERE {chain} AND seq = 7")
    (anchor,) = await chain.audit.seal(scope=chain.scope)
    assert anchor.seq == 5, "sealed no further"
    assert await chain.find() == [("deletion", 7)]


async def test_a_head_that_was_set_back_keeps_no_other_chain_from_being_sealed(
    chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    await chain.audit.seal(scope=chain.scope)
    chain.run("UPDATE semel_audit_head SET sealed = 0 WHERE {chain}")
    others = [f"{chain.scope}, other {number}" for number in range(6)]
    for scope in others:
        await chain.audit.append(scope=scope, actor="ann", action="resolve", target="r", reason="why", outcome="done")
    sealed = {anchor.scope: anchor.seq for anchor in await chain.audit.seal()}
    assert [sealed.get(scope) for scope in others] == [1] * len(others)
    assert f"the audit chain of scope {chain.scope!r} could not be sealed" in caplog.text
    assert await chain.faults()
