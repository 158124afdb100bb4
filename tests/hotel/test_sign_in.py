"""Who may do what: sessions, strangers, and forms of other sites."""

import hashlib
import json

import httpx
import pytest
from sqlalchemy import select

from examples.hotel.tables import Session
from tests.hotel.front_desk import FrontDesk, code_of

pytestmark = pytest.mark.anyio


def _stranger(desk: FrontDesk) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(desk.app), base_url="http://hotel")


async def test_a_form_signs_in_and_leads_to_the_first_page(desk: FrontDesk) -> None:
    response = await _stranger(desk).post("/sign-in", data={"name": "Ada Lovelace"})
    assert (response.status_code, response.headers["location"]) == (303, "/")
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


async def test_only_the_digest_of_a_token_is_stored(desk: FrontDesk) -> None:
    token = (await desk.guest()).client.cookies["session"]
    async with desk.parts.database.reading() as session:
        stored = (await session.scalars(select(Session.token_digest))).all()
    assert list(stored) == [hashlib.sha256(token.encode()).hexdigest()]


async def test_knowing_a_name_does_not_open_its_reservations(desk: FrontDesk) -> None:
    reservation = (await (await desk.guest("Ada")).reserve()).json()["id"]
    assert (await (await desk.guest("Ada")).state(reservation)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/reservations"), ("POST", "/reservations/R001/pay"), ("GET", "/reservations/R001/state")],
)
async def test_strangers_are_refused(desk: FrontDesk, method: str, path: str) -> None:
    keys = {"Idempotency-Key": "k", "Payment-Idempotency-Key": "k"}
    response = await _stranger(desk).request(method, path, json={}, headers=keys)
    assert (response.status_code, code_of(response)) == (401, "not-signed-in")


async def test_after_signing_out_the_cookie_opens_nothing(desk: FrontDesk) -> None:
    guest = await desk.guest()
    token = guest.client.cookies["session"]
    reservation = (await guest.reserve()).json()["id"]
    assert (await guest.client.post("/sign-out")).status_code == 303
    guest.client.cookies.set("session", token)
    assert (await guest.state(reservation)).status_code == 401


async def test_a_session_ends_after_thirty_days(desk: FrontDesk) -> None:
    guest = await desk.guest()
    desk.clock.advance(minutes=30 * 24 * 60)
    assert (await guest.reserve()).status_code == 401


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"])
async def test_what_a_form_of_another_site_could_send_is_refused(desk: FrontDesk, kind: str) -> None:
    guest = await desk.guest()
    headers = {"Content-Type": kind, "Idempotency-Key": "k"}
    response = await guest.client.post("/reservations", content=b"{}", headers=headers)
    assert (response.status_code, code_of(response)) == (415, "not-json")


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/reservations"])
@pytest.mark.parametrize(
    "sent",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=lambda sent: "-".join(sent.values()),
)
async def test_a_form_of_another_site_neither_signs_in_nor_out(
    desk: FrontDesk, path: str, sent: dict[str, str]
) -> None:
    guest = await desk.guest()
    response = await guest.client.post(path, data={"name": "Eve"}, headers=sent)
    assert (response.status_code, code_of(response)) == (403, "other-site")
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("sent", [{"Origin": "http://hotel"}, {"Sec-Fetch-Site": "same-origin"}, {}], ids=str)
async def test_a_form_of_this_site_signs_out(desk: FrontDesk, sent: dict[str, str]) -> None:
    guest = await desk.guest()
    assert (await guest.client.post("/sign-out", headers=sent)).status_code == 303


@pytest.mark.parametrize("name", ["Ada\x00", "Ada\ud800"])
async def test_a_name_that_no_database_can_keep_is_refused(any_desk: FrontDesk, name: str) -> None:
    body = json.dumps({"name": name}).encode()
    response = await _stranger(any_desk).post("/sign-in", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, code_of(response)) == (400, "malformed")


@pytest.mark.parametrize("body", [b"", b"name=", b"name=" + b"x" * 81, b"\xff", b"other=1"])
async def test_a_sign_in_needs_a_name(desk: FrontDesk, body: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = await _stranger(desk).post("/sign-in", content=body, headers=headers)
    assert (response.status_code, code_of(response)) == (400, "malformed")


async def test_the_policy_document_names_both_headers(desk: FrontDesk) -> None:
    text = (await _stranger(desk).get("/.well-known/idempotency-policy")).text
    assert "Payment-Idempotency-Key" in text
    assert '"Idempotency-Key"' in text
