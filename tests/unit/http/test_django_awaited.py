"""The Django middleware in a chain that is awaited."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import path

from semel import SHARED, AsyncSemel, Policy
from tests.unit.http.django_project import Effects, apost, project


class Final(Exception):
    """Stored."""


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.mark.anyio
async def test_an_awaited_chain_runs_once_and_replays(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:
        with project(path("orders", effects.awaited), SEMEL={"semel": semel, "scope": "SHARED"}):
            first, again = await apost(), await apost()
    assert (first.content, again.content) == (b"effect 1", b"effect 1")


@pytest.mark.anyio
async def test_a_called_view_in_an_awaited_chain_finds_its_attempt() -> None:
    async with AsyncSemel("memory://") as semel:

        def view(request: Any) -> HttpResponse:
            return HttpResponse(semel.current().derive("next"))

        with project(path("orders", view), SEMEL={"semel": semel, "scope": "SHARED"}):
            assert len((await apost()).content) == 64


@pytest.mark.anyio
async def test_an_error_in_an_awaited_chain_follows_the_policy() -> None:
    async def view(request: Any) -> HttpResponse:
        raise Final

    async with AsyncSemel("memory://", policy=Policy(final_errors=(Final,))) as semel:
        with project(path("orders", view), SEMEL={"semel": semel, "scope": "SHARED"}):
            assert b"Server Error" in (await apost()).content
            assert (await apost()).json()["type"] == "urn:semel:problem:failed-before"


@pytest.mark.anyio
async def test_an_awaited_scope_says_who_asks(effects: Effects) -> None:
    async def nobody(request: Any) -> None:
        return None

    async with AsyncSemel("memory://") as semel:
        with project(path("orders", effects.awaited), SEMEL={"semel": semel, "scope": nobody}):
            assert (await apost()).status_code == 401
    assert effects.happened == []


@pytest.mark.anyio
async def test_a_key_is_required_where_the_route_says_so(effects: Effects) -> None:
    async with AsyncSemel("memory://") as semel:
        with project(path("orders", effects.awaited), SEMEL={"semel": semel, "scope": SHARED, "required": True}):
            assert (await apost(key=None)).status_code == 400
    assert effects.happened == []
