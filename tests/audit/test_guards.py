"""Where the database can, it refuses by itself to change entries or to delete them."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel import AsyncSemel
from semel.server.audit import Audit
from tests.audit.places import Place, make_place

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sqlite", "postgresql"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made = make_place(request.param, request, tmp_path)
    async with AsyncSemel(made.url) as semel:
        await Audit(semel).append(scope="", actor="ann", action="resolve", target="r1", reason="why")
    return made


async def test_an_entry_cannot_be_changed_deleted_or_given_another_reason(place: Place) -> None:
    for statement in (
        "UPDATE semel_audit SET actor = 'eve'",
        "UPDATE semel_audit SET written = previous",
        "UPDATE semel_audit SET written = NULL, at_us = 0",
        "DELETE FROM semel_audit",
        *(["TRUNCATE semel_audit"] if place.kind == "postgresql" else []),
    ):
        with pytest.raises(Exception, match="semel: "):
            place.run(statement)
    assert place.run("SELECT actor FROM semel_audit") == [("ann",)]


async def test_what_a_person_wrote_can_be_taken_out(place: Place) -> None:
    async with AsyncSemel(place.url) as semel:
        await Audit(semel).redact(scope="", seq=1, actor="ann", reason="request 17")
        assert (await Audit(semel).verify()).is_whole
    assert place.run("SELECT written FROM semel_audit WHERE seq = 1") == [(None,)]
