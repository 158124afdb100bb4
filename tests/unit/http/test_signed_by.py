"""Routes that take signed keys alone: who they were issued to, and what they stand for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from semel import SHARED, AsyncSemel, errors, make_key
from semel.http.asgi import IdempotencyMiddleware
from semel.http.route import Route
from tests.unit.http.driver import App, Driver, asked

pytestmark = pytest.mark.anyio
OLD, NEW = b"o" * 32, b"n" * 32
SECRETS = {"old": OLD, "new": NEW}


@pytest.fixture
async def semel() -> AsyncIterator[AsyncSemel]:
    async with AsyncSemel("memory://") as semel:
        yield semel


def sign(part: str = "o-1", *, name: str = "new", tenant: str = "acme", **settings: Any) -> str:
    return make_key(part, secret=SECRETS[name], key_id=name, tenant=tenant, **settings)


async def send(semel: AsyncSemel, app: App, key: str, *, tenant: str = "acme") -> Driver:
    site = IdempotencyMiddleware(
        app, semel=semel, scope=lambda _request: tenant, routes=[Route("/orders", signed_by=SECRETS)]
    )
    return await asked(site, key=f'"{key}"')


async def test_a_key_that_was_issued_to_the_caller_is_taken(semel: AsyncSemel) -> None:
    app = App()
    driver = await send(semel, app, sign())
    assert (driver.status, len(app.calls)) == (201, 1)


async def test_one_that_is_signed_anew_is_the_same_operation(semel: AsyncSemel) -> None:
    app = App()
    await send(semel, app, sign(name="old"))
    driver = await send(semel, app, sign(expires=datetime.now(UTC) + timedelta(hours=1)))
    assert (driver.status, len(app.calls)) == (201, 1)


@pytest.mark.parametrize("key", ["o-1", make_key("o-1"), sign(tenant="globex"), sign()[:-1] + "0", "0" + sign()[1:]])
async def test_any_other_key_is_refused_before_anything_runs(semel: AsyncSemel, key: str) -> None:
    app = App()
    driver = await send(semel, app, key)
    assert (driver.status, app.calls) == (400, [])
    assert b"was not issued to this caller; nothing ran" in driver.body


async def test_one_that_has_expired_is_refused_with_what_to_do(semel: AsyncSemel) -> None:
    app = App()
    driver = await send(semel, app, sign(expires=datetime.now(UTC) - timedelta(hours=1)))
    assert (driver.status, app.calls) == (400, [])
    assert b"Have it signed again" in driver.body


async def test_a_site_whose_callers_are_not_told_apart_cannot_ask_for_signed_keys(semel: AsyncSemel) -> None:
    with pytest.raises(errors.UsageError, match="needs scope=; nothing was set up"):
        IdempotencyMiddleware(App(), semel=semel, scope=SHARED, routes=[Route("/orders", signed_by=SECRETS)])


def test_a_secret_that_is_too_short_is_refused_when_the_route_is_made() -> None:
    with pytest.raises(errors.KeyInvalid, match="at least"):
        Route("/orders", signed_by={"new": b"short"})


def test_settings_show_the_names_of_secrets_alone() -> None:
    assert "nnnn" not in repr(Route("/orders", signed_by={"new": "n" * 32}).settings)
