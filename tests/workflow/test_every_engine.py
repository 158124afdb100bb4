"""One delegate, unchanged, in every engine: what one of them did is found by all others, and each hears the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel
from tests.workflow.clinic import VARIABLES, CardDeclined, Gateway, LineDown, PayClaim, fail
from tests.workflow.told import ENGINES, Told, by_hand

pytestmark = pytest.mark.slow
Engine = Callable[[Any, dict[str, Any], str], Awaitable[Told]]

every_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)


class Held(PayClaim):
    """Runs at most once."""

    in_doubt = "hold"


class Clinic:
    """The delegate on a file."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.gateway = Gateway()
        self._folder = folder

    def play(self, scenario: Callable[[PayClaim], Awaitable[None]], kind: type[PayClaim] = PayClaim) -> None:
        """Run a scenario with a delegate of that kind."""

        async def played() -> None:
            semel = AsyncSemel(f"sqlite:///{self._folder}/semel.db")
            await scenario(kind(semel, self.gateway))
            await semel.close()

        asyncio.run(played())

    async def ask(self, engine: Engine, task: Any, **changes: Any) -> Told:
        """Have an engine run a task; a change to None leaves the variable out."""
        given = {**VARIABLES, **changes}
        return await engine(task, {name: value for name, value in given.items() if value is not None}, self.address)


@pytest.fixture
def clinic(address: str, tmp_path: Path) -> Clinic:
    return Clinic(address, tmp_path)


@pytest.mark.parametrize("first", ENGINES, ids=lambda engine: engine.__name__)
def test_what_one_engine_did_is_found_by_all_others(first: Engine, clinic: Clinic) -> None:
    async def scenario(pay: PayClaim) -> None:
        done = await clinic.ask(first, pay)
        assert done.variables["idempotencyDuplicate"] is False
        for engine in [engine for engine in ENGINES if engine is not first]:
            found = await clinic.ask(engine, pay)
            assert found.variables["idempotencyDuplicate"] is True, engine
            assert found.variables["receipt"] == done.variables["receipt"]
            assert found.variables["idempotencyKey"] == done.variables["idempotencyKey"]

    clinic.play(scenario)
    assert clinic.gateway.charges == {"CLAIM-001": 1}


@every_engine
def test_a_business_error_is_one_in_every_engine_and_so_is_its_replay(engine: Engine, clinic: Clinic) -> None:
    clinic.gateway.before = fail(CardDeclined("no money"))

    async def scenario(pay: PayClaim) -> None:
        assert await clinic.ask(engine, pay) == Told("error", "PAYMENT_DECLINED")
        clinic.gateway.before = None
        assert await clinic.ask(by_hand, pay) == await clinic.ask(engine, pay) == Told("error", "PAYMENT_DECLINED")

    clinic.play(scenario)
    assert not clinic.gateway.charges


@every_engine
def test_a_changed_amount_is_a_business_error_in_every_engine(engine: Engine, clinic: Clinic) -> None:
    async def scenario(pay: PayClaim) -> None:
        await clinic.ask(by_hand, pay)
        assert await clinic.ask(engine, pay, amount="1600.00") == Told("error", "KEY_REUSED")

    clinic.play(scenario)
    assert clinic.gateway.charges == {"CLAIM-001": 1}


@every_engine
def test_what_did_not_happen_costs_an_attempt_in_every_engine(engine: Engine, clinic: Clinic) -> None:
    clinic.gateway.before = fail(LineDown())

    async def scenario(pay: PayClaim) -> None:
        assert await clinic.ask(engine, pay) == Told("retry")
        clinic.gateway.before = None
        assert await clinic.ask(engine, pay) == Told("completed")

    clinic.play(scenario)
    assert clinic.gateway.charges == {"CLAIM-001": 1}


@every_engine
def test_a_doubt_that_is_held_needs_a_person_in_every_engine(engine: Engine, clinic: Clinic) -> None:
    clinic.gateway.after = fail(RuntimeError("no answer"))

    async def scenario(pay: PayClaim) -> None:
        assert await clinic.ask(engine, pay) == await clinic.ask(engine, pay) == Told("incident")

    clinic.play(scenario, Held)
    assert clinic.gateway.charges == {"CLAIM-001": 1}


@every_engine
def test_a_variable_that_is_missing_needs_a_person_in_every_engine(engine: Engine, clinic: Clinic) -> None:
    async def scenario(pay: PayClaim) -> None:
        heard = await clinic.ask(engine, pay, amount=None)
        assert heard == Told("incident")
        assert "amount" in heard.why

    clinic.play(scenario)
    assert not clinic.gateway.charges


@every_engine
def test_a_compensation_undoes_once_in_every_engine_and_marks_the_original(engine: Engine, clinic: Clinic) -> None:
    async def scenario(pay: PayClaim) -> None:
        await clinic.ask(by_hand, pay)
        for is_duplicate in (False, True):
            undone = await clinic.ask(engine, pay.compensation)
            assert undone == Told("completed")
            assert undone.variables["idempotencyDuplicate"] is is_duplicate
        assert await clinic.ask(engine, pay) == Told("error", "COMPENSATED")

    clinic.play(scenario)
    assert clinic.gateway.charges == {"CLAIM-001": 1}
    assert clinic.gateway.refunds == {"R-CLAIM-001-1": 1}
