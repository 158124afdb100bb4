"""Which operations cannot be reconciled here, because nobody here knows their hooks."""

from __future__ import annotations

import pytest

from semel import AsyncSemel, Policy
from semel.core.store import Capability
from semel.engine.engine import engine_of
from semel.server import User, hooks
from semel.server.actions import Actions, make_actions
from semel.server.hooks import find_operations_without_hook
from semel.server.refusals import Forbidden
from semel.stores.memory import MemoryStore
from tests.server.desk import ADMIN, RECONCILED, Desk, Site

pytestmark = pytest.mark.anyio


def without_application(desk: Desk) -> Actions:
    """The same store, seen by a server that knows no hooks."""
    return make_actions(AsyncSemel(engine_of(desk.semel).store, clock=desk.clock))


async def test_an_operation_whose_hook_is_not_known_is_named_with_what_waits(desk: Desk) -> None:
    first = await desk.in_doubt("a", policy=RECONCILED)
    await desk.in_doubt("b", policy=RECONCILED)
    await desk.in_doubt("c", policy=Policy(in_doubt="hold"))
    (found,) = (await find_operations_without_hook(without_application(desk), ADMIN)).operations
    assert (found.operation, found.number, found.scope) == ("charge", 2, "acme")
    assert (found.reference, found.oldest) == (first.reference, (await desk.read("a")).updated_at)


async def test_an_operation_whose_hook_is_known_is_not_named(desk: Desk) -> None:
    await desk.in_doubt("a", policy=RECONCILED)

    @desk.semel.once(operation="charge", key="order", policy=RECONCILED)
    async def charge(order: str) -> str:
        return order

    found = await find_operations_without_hook(desk.actions, ADMIN)
    assert (found.operations, found.is_exact, found.is_looked_for) == ((), True, True)


async def test_a_user_is_told_of_their_scopes_alone(desk: Desk) -> None:
    await desk.in_doubt("a", scope="acme", policy=RECONCILED)
    await desk.in_doubt("b", scope="globex", policy=RECONCILED)
    actions = without_application(desk)
    (found,) = (await find_operations_without_hook(actions, User("fred", {"viewer"}, scopes={"globex"}))).operations
    assert (found.number, found.scope) == (1, "globex")
    with pytest.raises(Forbidden):
        await find_operations_without_hook(actions, User("nobody", ()))


async def test_more_than_is_looked_at_is_said_to_be_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "MOST", 2)
    monkeypatch.setattr(hooks, "_PAGE", 1)
    for key in "abc":
        await desk.in_doubt(key, policy=RECONCILED)
    found = await find_operations_without_hook(without_application(desk), ADMIN)
    assert (found.operations[0].number, found.is_exact) == (2, False)


async def test_what_could_only_be_found_by_reading_everything_is_not_looked_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = engine_of(desk.semel).store.capabilities
    monkeypatch.setattr(MemoryStore, "capabilities", has - {Capability.COUNT})
    found = await find_operations_without_hook(desk.actions, ADMIN)
    assert (found.operations, found.is_looked_for) == ((), False)


async def test_the_api_tells_it(desk: Desk, site: Site) -> None:
    await desk.in_doubt("a", policy=RECONCILED)
    engine_of(desk.semel).known.clear()  # as after a start without the application
    told = (await site.get("/operations")).json()
    assert [(one["operation"], one["number"]) for one in told["without_hook"]] == [("charge", 1)]
    assert told["exact"]
