"""The setting SEMEL: what it takes, and what is said of what is wrong with it, before the first request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory
from django.urls import path

from semel import SHARED, AsyncSemel, Semel
from semel.errors import UsageError
from semel.http import Route
from semel.http.django import IdempotencyMiddleware, atomic
from tests.unit.http.django_project import Effects, post, project

semel_of_path = Semel("memory://")


def scope_of_path(request: Any) -> str:
    return "everybody"


@pytest.fixture
def effects() -> Effects:
    return Effects()


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel("memory://") as semel:
        yield semel


@pytest.fixture
def chosen(semel: Semel) -> dict[str, Any]:
    return {"semel": semel, "scope": "SHARED"}


def test_the_settings_take_dotted_paths(effects: Effects) -> None:
    chosen = {"semel": f"{__name__}.semel_of_path", "scope": f"{__name__}.scope_of_path"}
    with project(path("orders", effects.view), SEMEL=chosen):
        assert post().content == post().content


def test_an_engine_may_be_made_by_a_function(effects: Effects, semel: Semel) -> None:
    with project(path("orders", effects.view), SEMEL={"semel": lambda: semel, "scope": SHARED}):
        assert post().content == post().content


def test_a_store_is_enough(effects: Effects, tmp_path: Any) -> None:
    with project(path("orders", effects.view), SEMEL={"store": f"sqlite:///{tmp_path}/semel.db", "scope": SHARED}):
        assert post().content == post().content


def test_it_takes_arguments_in_place_of_settings(effects: Effects, semel: Semel) -> None:
    middleware = IdempotencyMiddleware(effects.view, semel=semel, scope=SHARED, routes=[Route("/orders")])
    with project():
        for _ in range(2):
            middleware(RequestFactory().post("/orders", headers={"Idempotency-Key": "k1"}))
    assert effects.happened == ["/orders"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "SEMEL = {"),
        ({"scope": SHARED}, '"store" and "semel"'),
        ({"store": "memory://"}, 'needs "scope"'),
        ({"store": "memory://", "scope": "nowhere.at.all"}, "nowhere.at.all"),
        ({"semel": "nowhere.at.all", "scope": SHARED}, "nowhere.at.all"),
    ],
    ids=["nothing", "no engine", "no scope", "scope leads nowhere", "engine leads nowhere"],
)
def test_what_is_missing_is_said_when_it_is_made(given: Any, says: str, effects: Effects) -> None:
    with project(SEMEL=given), pytest.raises(ImproperlyConfigured, match=says):
        IdempotencyMiddleware(effects.view)


@pytest.mark.parametrize(
    "given",
    [{"needed": True}, {"routes": ["/orders"]}, {"scope": 1}, {"semel": AsyncSemel("memory://")}],
    ids=["setting", "routes", "scope", "colour"],
)
def test_what_cannot_be_so_is_said_when_it_is_made(given: Any, effects: Effects, chosen: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing was set up"):
        IdempotencyMiddleware(effects.view, **{**chosen, **given})


@pytest.mark.parametrize("given", [{"transaction": "default"}, {"routes": [Route("/a", transaction=atomic())]}])
def test_an_awaited_chain_has_no_transactions(given: Any, effects: Effects) -> None:
    with pytest.raises(UsageError, match="plain def"):
        IdempotencyMiddleware(effects.awaited, semel=AsyncSemel("memory://"), scope=SHARED, **given)
