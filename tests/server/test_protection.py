"""Threats from the network: other sites, other hosts, floods of secrets, large bodies, and what leaks."""

from __future__ import annotations

import logging
from datetime import timedelta

import httpx
import pytest

from semel.server import User
from semel.server.api.protection import HEADERS, MOST_BYTES, MissLimit, TooManyMisses
from semel.server.api.signin import FORGERY_HEADER
from semel.server.app import make_app
from semel.server.tokens import Tokens
from tests.server.desk import WHY, Desk, Site

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/health", "/openapi.json", "/metrics", "/api/v1/records", "/api/v1/nothing"])
async def test_every_answer_has_the_headers(site: Site, path: str) -> None:
    response = await site.client.get(path, headers={"x-user": "olga"})
    assert {name: response.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.test"},
        {"origin": "null"},
        {"origin": "http://semel.test.evil.test"},
        {"origin": "http://semel.test:8080"},
        {"origin": "http://["},
    ],
    ids=str,
)
async def test_a_change_that_another_site_sends_is_refused(desk: Desk, site: Site, headers: dict[str, str]) -> None:
    record = await desk.in_doubt()
    response = await site.post(f"/records/{record.reference}/cancel", {"reason": WHY}, **headers)
    assert (response.status_code, response.json()["because"]) == (403, "other_site")
    assert (await desk.read("doubt")).status == "in_doubt"


async def test_a_change_that_does_not_say_where_it_comes_from_is_refused(desk: Desk, site: Site) -> None:
    record = await desk.in_doubt()
    path = f"/api/v1/records/{record.reference}/cancel"
    response = await site.client.post(path, json={"reason": WHY}, headers={"x-user": "olga"})
    assert response.status_code == 403


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""])
async def test_a_change_is_taken_as_json_alone(desk: Desk, site: Site, kind: str) -> None:
    record = await desk.in_doubt()
    headers = {"x-user": "olga", "origin": "http://semel.test", "content-type": kind}
    path = f"/api/v1/records/{record.reference}/cancel"
    response = await site.client.post(path, content=b'{"reason": "x"}', headers=headers)
    assert response.status_code == 415


async def test_a_large_body_is_refused(site: Site) -> None:
    response = await site.post("/sweep", {"reason": "x" * MOST_BYTES})
    assert response.status_code == 413


async def test_other_hosts_are_not_answered(desk: Desk) -> None:
    app = make_app(desk.semel, anybody=True, hosts={"localhost"})
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8000")
    assert (await client.get("/api/v1/me")).status_code == 200
    assert (await client.get("/api/v1/me", headers={"host": "evil.test"})).status_code == 421


@pytest.mark.parametrize("host", ["[", "[::1", "localhost:x:y]", ""])
async def test_what_is_no_host_is_not_answered(desk: Desk, host: str) -> None:
    app = make_app(desk.semel, anybody=True, hosts={"localhost"})
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8000")
    assert (await client.get("/api/v1/me", headers={"host": host})).status_code == 421


async def test_unknown_secrets_are_soon_refused_and_good_ones_are_not(desk: Desk) -> None:
    tokens = Tokens(desk.semel)
    made = await tokens.create("robot", roles=["viewer"], scopes=None, expires_in=timedelta(days=1), by="test")
    client = httpx.AsyncClient(transport=httpx.ASGITransport(make_app(desk.semel, tokens=tokens)), base_url="http://t")
    good = {"authorization": f"Bearer {made.secret}"}
    assert (await client.get("/api/v1/me", headers=good)).status_code == 200
    statuses = [
        (await client.get("/api/v1/me", headers={"authorization": f"Bearer guess{number}"})).status_code
        for number in range(12)
    ]
    assert statuses == [401] * 10 + [429] * 2
    assert (await client.get("/api/v1/me", headers=good)).status_code == 200


async def test_a_tab_whose_token_has_expired_shuts_nobody_out(desk: Desk) -> None:
    tokens = Tokens(desk.semel)
    made = await tokens.create("olga", roles=["viewer"], scopes=None, expires_in=timedelta(days=1), by="test")
    app = make_app(desk.semel, tokens=tokens)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://semel.test")
    origin = {"origin": "http://semel.test"}
    assert (await client.post("/sign-in", data={"token": made.secret}, headers=origin)).status_code == 303
    await tokens.revoke("olga", by="test")
    assert [(await client.get("/api/v1/me")).status_code for _ in range(30)] == [401] * 30
    other = await tokens.create("fred", roles=["viewer"], scopes=None, expires_in=timedelta(days=1), by="test")
    answer = await client.get("/api/v1/me", headers={"authorization": f"Bearer {other.secret}"})
    assert answer.status_code == 200


@pytest.mark.parametrize(("site", "is_secure"), [("http://semel.test", False), ("https://semel.test", True)])
async def test_a_session_behind_tls_is_never_sent_without_it(desk: Desk, site: str, is_secure: bool) -> None:
    """Behind a proxy the server itself is asked without TLS: the browser says which it speaks."""
    tokens = Tokens(desk.semel)
    made = await tokens.create("olga", roles=["viewer"], scopes=None, expires_in=timedelta(days=1), by="test")
    app = make_app(desk.semel, tokens=tokens)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://semel.test")
    answer = await client.post("/sign-in", data={"token": made.secret}, headers={"origin": site})
    assert ("secure" in answer.headers["set-cookie"].lower()) is is_secure


def test_misses_are_forgotten_after_a_minute() -> None:
    now = [0.0]
    limit = MissLimit(1, lambda: now[0])
    limit.miss("here")
    with pytest.raises(TooManyMisses):
        limit.check("here", "x")
    limit.check("there", "x")
    now[0] = 60.0
    limit.check("here", "x")


async def test_a_browser_signs_in_with_a_token_and_shows_its_token_against_forgery(desk: Desk) -> None:
    tokens = Tokens(desk.semel)
    made = await tokens.create("olga", roles=["operator"], scopes=None, expires_in=timedelta(days=1), by="test")
    app = make_app(desk.semel, tokens=tokens)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://semel.test")
    origin = {"origin": "http://semel.test"}
    refused = await client.post("/sign-in", data={"token": "wrong"}, headers=origin)
    assert refused.status_code == 401
    signed_in = await client.post("/sign-in", data={"token": made.secret}, headers=origin)
    assert signed_in.status_code == 303
    cookie = signed_in.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert made.secret.lower() not in cookie
    assert (await client.get("/api/v1/me")).json()["name"] == "olga"

    record = await desk.in_doubt()
    path = f"/api/v1/records/{record.reference}/cancel"
    without = await client.post(path, json={"reason": WHY}, headers=origin)
    assert (without.status_code, without.json()["because"]) == (403, "forgery")
    token = (await client.get("/api/v1/me")).headers[FORGERY_HEADER]
    with_token = await client.post(path, json={"reason": WHY}, headers={**origin, FORGERY_HEADER: token})
    assert with_token.status_code == 200

    await tokens.revoke("olga", by="test")
    assert (await client.get("/api/v1/me")).status_code == 401


async def test_another_site_cannot_sign_a_browser_in(desk: Desk) -> None:
    app = make_app(desk.semel, tokens=Tokens(desk.semel))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://semel.test")
    response = await client.post("/sign-in", data={"token": "x"}, headers={"origin": "https://evil.test"})
    assert response.status_code == 403


async def test_neither_key_nor_value_nor_secret_is_in_the_log(
    desk: Desk, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    record = await desk.in_doubt("canary-key")
    await site.post(f"/records/{record.reference}/resolve", {"reason": WHY, "value": "canary-value"})
    await site.get(f"/records/{record.reference}/body")
    await site.get("/records", params={"subject": "canary-subject"})
    own = [line for line in caplog.messages if "HTTP Request" not in line]  # that is the client of this test
    assert "canary" not in "\n".join(own)


async def test_an_application_may_find_its_users_in_a_coroutine(desk: Desk) -> None:
    async def find(request: object) -> User | None:
        return User("ada", {"viewer"})

    app = make_app(desk.semel, user=find)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t")
    assert (await client.get("/api/v1/me")).json()["name"] == "ada"
