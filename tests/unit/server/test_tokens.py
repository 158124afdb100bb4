"""Tokens of operators: shown once, kept as a hash, of use until they expire or are revoked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from semel import AsyncSemel
from semel.core.operators.tokens import TouchToken
from semel.errors import UsageError
from semel.server.access import Permission, Role
from semel.server.audit import Audit
from semel.server.tokens import NewToken, Tokens
from semel.stores.memory import MemoryStore
from semel.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class Counting(MemoryStore):
    """A store that counts how often the use of a token is written."""

    touched = 0

    def apply(self, operations: Any) -> Any:
        self.touched += isinstance(operations[0], TouchToken)
        return super().apply(operations)


@pytest.fixture
def store(clock: VirtualClock) -> Counting:
    return Counting(clock=clock.store_clock)


@pytest.fixture
async def semel(store: Counting, clock: VirtualClock) -> AsyncIterator[AsyncSemel]:
    async with AsyncSemel(store, clock=clock) as semel:
        yield semel


async def create(semel: AsyncSemel, name: str = "ci", **changes: Any) -> NewToken:
    fields: dict[str, Any] = {"roles": ["operator"], "scopes": None, "expires_in": timedelta(days=1), "by": "ann"}
    return await Tokens(semel).create(name, **{**fields, **changes})


async def test_whoever_shows_the_secret_is_the_user_of_the_token(semel: AsyncSemel) -> None:
    made = await create(semel, scopes=["acme"])
    user = await Tokens(semel).find(made.secret)
    assert user is not None
    assert (user.name, user.roles, user.scopes) == ("ci", frozenset({Role.OPERATOR}), frozenset({"acme"}))
    assert user.may(Permission.RESOLVE, "acme")
    assert not user.may(Permission.RESOLVE, "other")


async def test_a_token_without_scopes_reaches_all_and_one_with_none_reaches_nothing(semel: AsyncSemel) -> None:
    everywhere, nowhere = await create(semel), await create(semel, "no", scopes=[])
    users = [await Tokens(semel).find(made.secret) for made in (everywhere, nowhere)]
    assert [user is not None and user.reaches("acme") for user in users] == [True, False]


async def test_the_secret_is_kept_nowhere(semel: AsyncSemel, store: Counting) -> None:
    made = await create(semel)
    _, id_, secret = made.secret.split("_", 2)
    kept = repr(vars(store.table.tokens)) + repr(vars(store.table.audit))
    assert bytes.fromhex(id_).hex() == id_
    assert secret not in kept
    assert secret not in repr(made)


@pytest.mark.parametrize("wrong", ["other secret", "other id", "no form", "empty", "cut", "longer"])
async def test_what_is_not_the_secret_signs_nobody_in(semel: AsyncSemel, wrong: str) -> None:
    right = (await create(semel)).secret
    other = "A" if right[-2] != "A" else "B"
    shown = {
        "other secret": right[:-2] + other + right[-1],
        "other id": right[:6] + "0" * 16 + right[22:],
        "no form": "Bearer " + right,
        "empty": "",
        "cut": right[:-1],
        "longer": right + "A",
    }[wrong]
    assert shown != right
    assert await Tokens(semel).find(shown) is None


async def test_a_token_is_of_no_use_once_it_has_expired(semel: AsyncSemel, clock: VirtualClock) -> None:
    made = await create(semel)
    clock.advance(timedelta(days=1) - timedelta(seconds=1))
    assert await Tokens(semel).find(made.secret) is not None
    clock.advance(1)
    assert await Tokens(semel).find(made.secret) is None
    (token,) = [token async for token in Tokens(semel).list()]
    assert not token.is_valid


async def test_a_token_is_of_no_use_once_it_was_revoked(semel: AsyncSemel) -> None:
    made = await create(semel)
    assert await Tokens(semel).revoke("ci", by="bob")
    assert await Tokens(semel).find(made.secret) is None
    assert not await Tokens(semel).revoke("ci", by="bob")
    assert not await Tokens(semel).revoke("nobody", by="bob")


async def test_last_use_is_written_at_most_once_a_minute(
    semel: AsyncSemel, store: Counting, clock: VirtualClock
) -> None:
    made = await create(semel)
    for _ in range(100):
        await Tokens(semel).find(made.secret)
        clock.advance(1)
    assert store.touched == 2
    (token,) = [token async for token in Tokens(semel).list()]
    assert token.last_used is not None
    assert token.last_used - token.created == timedelta(minutes=1)


async def test_what_is_refused_is_not_a_use(semel: AsyncSemel, store: Counting) -> None:
    made = await create(semel)
    await Tokens(semel).revoke("ci", by="ann")
    await Tokens(semel).find(made.secret)
    assert store.touched == 0


async def test_a_name_is_used_once(semel: AsyncSemel) -> None:
    first = await create(semel)
    with pytest.raises(UsageError, match="already"):
        await create(semel)
    assert await Tokens(semel).find(first.secret) is not None
    await Tokens(semel).revoke("ci", by="ann")
    with pytest.raises(UsageError, match="already"):
        await create(semel)


@pytest.mark.parametrize(
    "wrong",
    [
        {"roles": []},
        {"roles": ["king"]},
        {"expires_in": timedelta(days=400)},
        {"expires_in": timedelta(0)},
        {"scopes": ["x"] * 101},
        {"scopes": ["x" * 256]},
        {"name": "two words"},
        {"name": ""},
        {"name": "x" * 65},
        {"by": ""},
        {"scopes": "acme"},
        {"scopes": [1]},
        {"roles": "viewer"},
    ],
    ids=str,
)
async def test_what_cannot_be_a_token_is_refused(semel: AsyncSemel, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await create(semel, **wrong)
    assert [token async for token in Tokens(semel).list()] == []


async def test_what_is_done_with_tokens_is_in_the_audit_chain(semel: AsyncSemel) -> None:
    await create(semel, scopes=["acme"])
    await Tokens(semel).revoke("ci", by="bob")
    entries = [entry async for entry in Audit(semel).entries()]
    assert [(entry.actor, entry.action, entry.target, entry.phase) for entry in entries] == [
        ("bob", "token.revoke", "ci", "ended"),
        ("bob", "token.revoke", "ci", "begun"),
        ("ann", "token.create", "ci", "ended"),
        ("ann", "token.create", "ci", "begun"),
    ]
    assert entries[-1].detail == {"roles": "operator", "scopes": "acme"}


async def test_tokens_are_listed_by_name(semel: AsyncSemel) -> None:
    for name in ("b", "a", "c"):
        await create(semel, name)
    assert [token.name async for token in Tokens(semel).list()] == ["a", "b", "c"]


async def test_a_store_without_tokens_is_refused_when_it_is_named() -> None:
    async with AsyncSemel("redis://localhost:1") as semel:
        with pytest.raises(UsageError, match="no audit chain and no tokens"):
            Tokens(semel)
