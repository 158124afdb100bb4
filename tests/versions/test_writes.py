"""What each write does and answers, through every library."""

import pytest

from semel.errors import ConcurrentModification
from semel.versions import Unchanged, Written, update_versioned, upsert
from tests.versions.conftest import Opener
from tests.versions.doors import Session

pytestmark = [pytest.mark.anyio, pytest.mark.covering]

A = {"id": "a-1"}
ON = {"state": "on"}
OFF = {"state": "off"}


async def asset(session: Session) -> list[tuple[object, ...]]:
    return await session.sql("SELECT id, state, version FROM asset ORDER BY id")


async def test_a_new_row_gets_version_1(session: Session) -> None:
    assert await session.write(upsert("asset", A, ON)) == Written(1)
    assert await asset(session) == [("a-1", "on", 1)]


async def test_a_row_that_must_be_new_and_is_not_is_refused(session: Session) -> None:
    await session.write(upsert("asset", A, ON))
    with pytest.raises(ConcurrentModification, match=r"must be new and is at version 1; nothing was written") as caught:
        await session.write(upsert("asset", A, OFF))
    assert (caught.value.expected, caught.value.found) == (None, 1)
    assert await asset(session) == [("a-1", "on", 1)]


async def test_the_transaction_goes_on_after_a_refusal(session: Session) -> None:
    await session.write(upsert("asset", A, ON))
    with pytest.raises(ConcurrentModification):
        await session.write(upsert("asset", A, OFF))
    assert await session.write(update_versioned("asset", A, OFF, expected=1)) == Written(2)
    await session.commit()
    assert await asset(session) == [("a-1", "off", 2)]


async def test_a_new_row_that_another_unique_index_refuses_raises_the_database_s_error(session: Session) -> None:
    await session.write(upsert("asset", A, {**ON, "serial": "s"}))
    await session.commit()
    with pytest.raises(Exception, match=r"(?i)unique|duplicate") as caught:
        await session.write(upsert("asset", {"id": "a-2"}, {**ON, "serial": "s"}))
    assert not isinstance(caught.value, ConcurrentModification)


@pytest.mark.parametrize("write", [update_versioned, upsert], ids=["update_versioned", "upsert"])
async def test_a_row_at_the_expected_version_is_changed(session: Session, write: type) -> None:
    await session.write(upsert("asset", A, ON))
    assert await session.write(write("asset", A, OFF, expected=1)) == Written(2)
    assert await asset(session) == [("a-1", "off", 2)]


async def test_writing_what_is_there_already_raises_the_version(session: Session) -> None:
    await session.write(upsert("asset", A, ON))
    assert await session.write(update_versioned("asset", A, ON, expected=1)) == Written(2)
    assert await asset(session) == [("a-1", "on", 2)]


@pytest.mark.parametrize("expected", [1, 3], ids=["older", "not-yet"])
async def test_another_version_is_refused_and_told(session: Session, expected: int) -> None:
    await session.write(upsert("asset", A, ON, newer=2))
    with pytest.raises(ConcurrentModification) as caught:
        await session.write(update_versioned("asset", A, OFF, expected=expected))
    assert caught.value.message == (
        f"The row of asset was expected at version {expected} and is at version 2; nothing was written. Read it again "
        f"and decide whether the change still applies."
    )
    assert (caught.value.expected, caught.value.found) == (expected, 2)
    assert await asset(session) == [("a-1", "on", 2)]


@pytest.mark.parametrize("write", [update_versioned, upsert], ids=["update_versioned", "upsert"])
async def test_a_row_that_was_deleted_is_not_brought_back(session: Session, write: type) -> None:
    with pytest.raises(ConcurrentModification, match="is not there") as caught:
        await session.write(write("asset", A, ON, expected=4))
    assert (caught.value.expected, caught.value.found) == (4, None)
    assert await asset(session) == []


async def test_only_the_named_row_is_changed(session: Session) -> None:
    await session.write(upsert("asset", A, ON))
    await session.write(upsert("asset", {"id": "a-2"}, ON))
    await session.write(update_versioned("asset", A, OFF, expected=1))
    assert await asset(session) == [("a-1", "off", 2), ("a-2", "on", 1)]


@pytest.mark.parametrize("version", [1, 7], ids=["first", "later"])
async def test_an_event_makes_the_row_at_its_own_version(session: Session, version: int) -> None:
    assert await session.write(upsert("asset", A, ON, newer=version)) == Written(version)
    assert await asset(session) == [("a-1", "on", version)]


async def test_a_newer_event_wins(session: Session) -> None:
    await session.write(upsert("asset", A, ON, newer=3))
    assert await session.write(upsert("asset", A, OFF, newer=7)) == Written(7)
    assert await asset(session) == [("a-1", "off", 7)]


@pytest.mark.parametrize("version", [7, 6, 1], ids=["again", "late", "much-too-late"])
async def test_an_event_that_is_not_newer_changes_nothing(session: Session, version: int) -> None:
    await session.write(upsert("asset", A, ON, newer=7))
    assert await session.write(upsert("asset", A, OFF, newer=version)) == Unchanged(7)
    assert await asset(session) == [("a-1", "on", 7)]


async def test_an_event_never_changes_a_row_with_another_key(session: Session) -> None:
    await session.write(upsert("asset", A, {**ON, "serial": "s"}))
    await session.commit()
    with pytest.raises(Exception, match=r"(?i)unique"):
        await session.write(upsert("asset", {"id": "a-2"}, {**OFF, "serial": "s"}, newer=9))
    await session.rollback()
    assert await asset(session) == [("a-1", "on", 1)]


async def test_the_same_new_row_again_is_done_already(session: Session) -> None:
    write = upsert("asset", A, ON, request={"request": "r-1"})
    assert await session.write(write) == Written(1)
    assert await session.write(write) == Unchanged(1)


async def test_the_same_change_again_is_done_already(session: Session) -> None:
    await session.write(upsert("asset", A, ON))
    write = update_versioned("asset", A, OFF, expected=1, request={"request": "r-2"})
    assert await session.write(write) == Written(2)
    assert await session.write(write) == Unchanged(2)
    assert await asset(session) == [("a-1", "off", 2)]


async def test_a_request_that_read_its_own_write_does_not_write_again(session: Session) -> None:
    await session.write(upsert("asset", A, ON, request={"request": "r-1"}))
    again = update_versioned("asset", A, OFF, expected=1, request={"request": "r-1"})
    assert await session.write(again) == Unchanged(1)
    assert await asset(session) == [("a-1", "on", 1)]


async def test_another_request_is_refused(session: Session) -> None:
    await session.write(upsert("asset", A, ON, request={"request": "r-1"}))
    with pytest.raises(ConcurrentModification):
        await session.write(upsert("asset", A, ON, request={"request": "r-2"}))


async def test_another_request_at_the_right_version_writes(session: Session) -> None:
    await session.write(upsert("asset", A, ON, request={"request": "r-1"}))
    write = update_versioned("asset", A, OFF, expected=1, request={"request": "r-2"})
    assert await session.write(write) == Written(2)


async def test_nothing_is_committed(session: Session, opened: Opener) -> None:
    await session.write(upsert("asset", A, ON))
    await session.write(upsert("asset", {"id": "a-2"}, ON, newer=3))
    await session.rollback()
    assert await asset(await opened()) == []


async def test_values_are_bound_and_reserved_words_are_names(session: Session) -> None:
    nasty = "'; DROP TABLE asset; -- %s ? $1 :x"
    write = upsert("asset", {"id": nasty}, {"state": nasty, "group": None})
    assert await session.write(write) == Written(1)
    assert await session.write(upsert("asset", {"id": nasty}, {"state": nasty, "group": "g"}, newer=2)) == Written(2)
    assert await session.write(update_versioned("asset", {"id": nasty}, {"group": "h"}, expected=2)) == Written(3)
    rows = await session.sql("SELECT * FROM asset")
    assert rows == [(nasty, nasty, "h", None, None, 3)]


async def test_a_key_may_have_several_columns(session: Session) -> None:
    await session.sql(
        "CREATE TABLE reading (site INT, day INT, kwh INT, version INT NOT NULL, PRIMARY KEY (site, day))"
    )
    key = {"site": 1, "day": 2}
    assert await session.write(upsert("reading", key, {"kwh": 5})) == Written(1)
    assert await session.write(upsert("reading", {"site": 1, "day": 3}, {"kwh": 6}, newer=4)) == Written(4)
    assert await session.write(update_versioned("reading", key, {"kwh": 7}, expected=1)) == Written(2)
    assert await session.sql("SELECT * FROM reading ORDER BY day") == [(1, 2, 7, 2), (1, 3, 6, 4)]
