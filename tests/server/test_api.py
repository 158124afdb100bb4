"""The admin API: answers, refusals in words, and the document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from semel.batch import Batches, Item
from semel.events import Event, Outbox, Relay
from semel.server import User
from semel.server.api.document import openapi_document
from semel.server.api.endpoints import ENDPOINTS
from semel.server.app import make_app
from semel.server.tokens import Tokens
from tests.server.desk import ADMIN, WHY, Desk, Site

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_the_document_is_valid_openapi(site: Site) -> None:
    response = await site.client.get("/openapi.json")
    validate(response.json())


def test_the_document_and_the_routes_are_the_same(site: Site) -> None:
    described = {(method.upper(), path) for path, methods in openapi_document()["paths"].items() for method in methods}
    routed = {
        (method, route.path.replace(":path}", "}").replace(":int}", "}"))
        for route in site.app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD" and route.name != "openapi"
    }
    assert described == routed


def test_every_endpoint_has_a_name_of_its_own() -> None:
    names = [endpoint.name for endpoint in ENDPOINTS]
    assert len(names) == len(set(names))


async def test_a_doubt_is_resolved_with_an_exact_number(desk: Desk, site: Site) -> None:
    record = await desk.in_doubt()
    path, raw = f"/records/{record.reference}", '{"reason": "seen", "value": 123456789012345678901234567890}'
    headers = {"x-user": "olga", "origin": "http://semel.test", "content-type": "application/json"}
    response = await site.client.post(f"/api/v1{path}/resolve", content=raw, headers=headers)
    assert (response.status_code, response.json()["status"]) == (200, "completed")
    body = await site.get(f"{path}/body")
    assert json.loads(body.json()["text"]) == 123456789012345678901234567890


async def test_a_refusal_says_why_as_a_problem(desk: Desk, site: Site) -> None:
    record = await desk.running()
    response = await site.post(f"/records/{record.reference}/release", {"reason": WHY})
    assert response.status_code == 409
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["because"] == "still_running"
    assert "lease until" in response.json()["detail"]


async def test_what_needs_a_person_is_told_with_what_to_do(desk: Desk, site: Site) -> None:
    record = await desk.in_doubt()
    (need,) = (await site.get("/attention")).json()["needs"]
    assert (need["target"], need["policy"], need["scope"]) == (record.reference, "hold", "acme")


async def test_records_are_listed_counted_and_shown(desk: Desk, site: Site) -> None:
    await desk.completed()
    record = await desk.in_doubt()
    listed = (await site.get("/records", params={"status": "in_doubt", "scope": "acme"})).json()
    assert [one["reference"] for one in listed["records"]] == [record.reference]
    assert (await site.get("/counts")).json()["number"] == 2
    shown = (await site.get(f"/records/{record.reference[:8]}")).json()
    assert shown["status"] == "in_doubt"
    assert (await site.get(f"/records/{record.reference}/history")).json()["entries"][0]["ending"] == "in_doubt"


@pytest.mark.parametrize(
    "query", [{"nonsense": "1"}, {"limit": "many"}, {"before": "yesterday"}, {"cursor": "x"}, {"status": "lost"}]
)
async def test_a_query_that_cannot_be_used_is_refused(site: Site, query: dict[str, str]) -> None:
    assert (await site.get("/records", params=query)).status_code == 422


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": 1}, {"reason": WHY, "more": 1}, [], "text"])
async def test_a_body_that_cannot_be_used_is_refused(desk: Desk, site: Site, body: Any) -> None:
    record = await desk.in_doubt()
    assert (await site.post(f"/records/{record.reference}/cancel", body)).status_code == 422
    assert (await desk.read("doubt")).status == "in_doubt"


async def test_a_body_that_is_no_utf_8_is_refused(desk: Desk, site: Site) -> None:
    record = await desk.in_doubt()
    headers = {"x-user": "olga", "origin": "http://semel.test", "content-type": "application/json"}
    path = f"/api/v1/records/{record.reference}/cancel"
    answer = await site.client.post(path, content=b'{"reason": "\xff"}', headers=headers)
    assert (answer.status_code, answer.json()["because"]) == (422, "body")


PLACES = [
    "/records?subject=%00",
    "/records?operation=a%00b",
    "/records?tag=a%3D%00",
    "/counts?requester=%00",
    "/consumers/%00/letters",
    "/consumers/billing/letters?type=%00",
    "/streams/a%00b/parked",
    "/batches?scope=%00",
    "/batches/%00",
    "/bulk/%00",
    "/audit?actor=%00",
]


@pytest.mark.parametrize("path", PLACES)
async def test_an_address_with_nul_is_refused(site: Site, path: str) -> None:
    # PostgreSQL cannot even be asked for it.
    assert (await site.get(path, "adam")).status_code == 422


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/subjects/erase", {"subject": "\0", "scope": "acme"}),
        ("/bulk/discard", {"letters": {"consumer": "\0"}, "dry_run": True}),
        ("/bulk/discard", {"letters": {"consumer": "billing", "type": "a\0b"}, "dry_run": True}),
        ("/bulk/cancel", {"records": {"subject": "\0"}, "dry_run": True}),
        ("/batches/payroll/pause", {"scope": "\0"}),
        ("/tokens", {"name": "robot", "roles": ["viewer"], "scopes": ["\0"]}),
    ],
)
async def test_a_text_with_nul_in_a_body_is_refused(site: Site, path: str, body: dict[str, Any]) -> None:
    answer = await site.post(path, {"reason": WHY, **body} if path != "/tokens" else body, "adam")
    assert answer.status_code == 422


async def test_nul_in_a_stated_value_is_kept(desk: Desk, site: Site) -> None:
    record = await desk.in_doubt()
    answer = await site.post(f"/records/{record.reference}/resolve", {"reason": WHY, "value": "a\0b"})
    assert answer.status_code == 200
    assert await desk.semel.value("doubt", operation="charge", scope="acme") == "a\0b"


@pytest.mark.parametrize("value", ["1e999", "[-1e999]", "0.12345678901234567890", "1e-999"])
async def test_a_number_that_would_not_be_kept_exactly_is_refused(desk: Desk, site: Site, value: str) -> None:
    record = await desk.in_doubt()
    headers = {"x-user": "olga", "origin": "http://semel.test", "content-type": "application/json"}
    path = f"/api/v1/records/{record.reference}/resolve"
    body = '{"reason": "seen", "value": ' + value + "}"
    answer = await site.client.post(path, content=body, headers=headers)
    assert (answer.status_code, answer.json()["because"]) == (422, "value")
    assert (await desk.read("doubt")).status == "in_doubt"


async def test_batches_follow_each_other_page_by_page(desk: Desk, site: Site) -> None:
    for number in range(5):
        await Batches(desk.semel, "acme").start(f"payroll/{number}", [], operation="pay")
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = (await site.get("/batches", params={"limit": 2, "after": after})).json()
        seen += [one["id"] for one in page["batches"]]
        after = page["after"]
    assert seen == [f"payroll/{number}" for number in range(5)]


@pytest.mark.parametrize("name", ["payroll", "2026/11 items"])
async def test_items_that_failed_are_told_with_why_page_by_page(desk: Desk, site: Site, name: str) -> None:
    async def pay(item: Item) -> str:
        if item.data["id"] > "1":
            raise ValueError(f"account {item.data['id']} is closed")
        return "DE02"

    batch = await Batches(desk.semel, "acme").start(
        name, [{"id": str(number)} for number in range(5)], operation="pay", item_id="id"
    )
    await batch.run(pay)
    asked = {"scope": "acme", "status": "failed", "limit": 2}
    first = (await site.get(f"/items/{name}", "vera", params=asked)).json()
    assert [(one["id"], one["error_type"], one["attempts"]) for one in first["items"]] == [
        ("2", "builtins.ValueError", 1),
        ("3", "builtins.ValueError", 1),
    ]
    assert first["items"][0]["message"] == "account 2 is closed"
    last = (await site.get(f"/items/{name}", "vera", params={**asked, "after": first["after"]})).json()
    assert ([one["id"] for one in last["items"]], last["after"]) == (["4"], None)
    none = (await site.get(f"/items/{name}", params={**asked, "status": "in_doubt"})).json()
    assert none == {"items": [], "after": None}
    assert (await site.get(f"/items/{name}", params={**asked, "scope": "globex"})).status_code == 404
    assert (await site.get(f"/items/{name}", params={**asked, "status": "completed"})).status_code == 422
    assert (await site.get(f"/items/{name}", params={**asked, "after": -(2**62)})).json() == first
    far = (await site.get(f"/items/{name}", params={**asked, "after": 2**62})).json()
    assert far == {"items": [], "after": None}


LONG = 10**30


@pytest.mark.parametrize("path", [f"/records?limit={LONG}", f"/streams/x/parked?after={LONG}", f"/audit?limit={LONG}"])
async def test_a_number_that_no_store_can_keep_is_refused_in_a_query(site: Site, path: str) -> None:
    assert (await site.get(path, "adam")).status_code == 422


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/sweep", {"limit": LONG}, 422),
        (f"/streams/x/parked/{LONG}/release", {}, 404),
        (f"/streams/x/parked/{LONG}/drop", {}, 404),
        ("/records/00000000/cancel", {"fence": LONG}, 422),
    ],
)
async def test_a_number_that_no_store_can_keep_is_refused_in_a_change(
    site: Site, path: str, body: dict[str, Any], code: int
) -> None:
    assert (await site.post(path, {"reason": WHY, **body}, "adam")).status_code == code


@pytest.mark.parametrize("days", [LONG, 10**12, 100_000, -1])
async def test_a_token_that_lasts_too_long_is_refused(desk: Desk, days: int) -> None:
    tokens = Tokens(desk.semel)
    made = await tokens.create("root", roles=["admin"], scopes=None, expires_in=timedelta(days=1), by="t")
    app = make_app(desk.semel, tokens=tokens)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://semel.test")
    headers = {"authorization": f"Bearer {made.secret}"}
    body = {"name": "robot", "roles": ["viewer"], "expires_in": days}
    assert (await client.post("/api/v1/tokens", json=body, headers=headers)).status_code == 422


INJECTIONS = ["' OR '1'='1", "x'; DROP TABLE semel_record; --", "%", "_", "\\", "\x00", "{}", "[1]", "\U0001d54f" * 50]


@pytest.mark.parametrize("name", ["operation", "scope", "subject", "business_key", "requester", "tag"])
@pytest.mark.parametrize("text", INJECTIONS)
async def test_what_is_searched_for_is_never_more_than_a_value(desk: Desk, site: Site, name: str, text: str) -> None:
    await desk.completed()
    value = f"tenant={text}" if name == "tag" else text
    response = await site.get("/records", params={name: value})
    assert response.status_code in (200, 422)
    assert response.status_code == 422 or response.json()["records"] == []


async def test_the_audit_chain_is_read_and_whole(desk: Desk, site: Site) -> None:
    record = await desk.in_doubt()
    await site.post(f"/records/{record.reference}/cancel", {"reason": WHY})
    entries = (await site.get("/audit", "adam")).json()["entries"]
    assert [(one["actor"], one["action"], one["phase"]) for one in entries] == [
        ("olga", "cancel", "ended"),
        ("olga", "cancel", "begun"),
    ]
    assert (await site.get("/audit/verify", "adam")).json()["is_whole"]
    assert (await site.get("/audit", "anna")).json()["entries"] == entries  # hers is the scope acme


async def test_what_a_person_wrote_is_taken_out_of_the_chain(desk: Desk, site: Site) -> None:
    record = await desk.in_doubt()
    await site.post(f"/records/{record.reference}/cancel", {"reason": "Ann Personal called"})
    asked = {"scope": "acme", "seq": 1, "reason": "request 17"}
    said = await site.post("/audit/redact", asked, "anna")  # hers is the scope acme
    assert (said.status_code, said.json()["actor"], said.json()["action"]) == (200, "anna", "audit.redact")
    listed = await site.get("/audit", "adam")
    assert "Ann Personal" not in listed.text
    assert (await site.get("/audit/verify", "adam")).json()["is_whole"]
    assert (await site.post("/audit/redact", asked, "adam")).status_code == 404  # nothing is left in it


@pytest.mark.parametrize(
    ("more", "code"), [({"scope": "globex"}, 404), ({"seq": 99}, 404), ({"seq": 0}, 422), ({"reason": " "}, 422)]
)
async def test_what_cannot_be_taken_out_of_the_chain_is_refused(
    desk: Desk, site: Site, people: dict[str, User], more: dict[str, Any], code: int
) -> None:
    people["fred"] = User("fred", {"admin"}, scopes={"acme"})
    for scope in ("acme", "globex"):
        record = await desk.in_doubt(scope=scope)
        await desk.actions.cancel(ADMIN, record.reference, reason=WHY)
    before = await desk.entries()
    asked = {"scope": "acme", "seq": 1, "reason": WHY, **more}
    assert (await site.post("/audit/redact", asked, "fred")).status_code == code
    assert await desk.entries() == before


async def test_tokens_are_made_used_and_revoked(desk: Desk) -> None:
    tokens = Tokens(desk.semel)
    from datetime import timedelta

    first = await tokens.create("first", roles=["admin"], scopes=None, expires_in=timedelta(days=1), by="test")
    client = httpx.AsyncClient(transport=httpx.ASGITransport(make_app(desk.semel, tokens=tokens)), base_url="http://t")
    admin = {"authorization": f"Bearer {first.secret}"}
    made = await client.post("/api/v1/tokens", json={"name": "robot", "roles": ["viewer"]}, headers=admin)
    assert made.status_code == 201
    robot = {"authorization": f"Bearer {made.json()['secret']}"}
    assert (await client.get("/api/v1/me", headers=robot)).json()["permissions"] == ["list", "show"]
    assert made.json()["secret"] not in (await client.get("/api/v1/tokens", headers=admin)).text
    assert (await client.post("/api/v1/tokens/robot/revoke", json={}, headers=admin)).status_code == 200
    assert (await client.get("/api/v1/me", headers=robot)).status_code == 401


async def test_all_events_of_a_stream_that_failed_are_released_at_once(desk: Desk, site: Site) -> None:
    class Broker:
        is_mended = False

        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            return [None if self.is_mended else LookupError("no such exchange") for _ in events]

    outbox, broker = Outbox(desk.semel), Broker()
    for number in range(3):
        event = Event(type="order.paid", source="/shop", id=f"o-{number}", data=None)
        await outbox.add(event, scope=f"tenant-{number}", autonomous=True)
    relay = Relay(outbox, broker, max_attempts=1)
    await relay.run_once()
    answer = await site.post("/streams/default/parked/release", {"reason": WHY})
    assert (answer.status_code, answer.json()) == (200, {"number": 3})
    broker.is_mended = True
    await relay.run_once()
    assert (await site.get("/streams/default/parked")).json()["events"] == []
    (begun, _) = await desk.entries()
    told = (begun.actor, begun.action, begun.target, begun.reason)
    assert told == ("olga", "redrive", "parked:default:all", WHY)


async def test_health_says_whether_the_store_answers(site: Site) -> None:
    response = await site.client.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_an_error_that_nobody_expects_is_answered_without_its_text(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(*args: Any, **named: Any) -> None:
        raise ZeroDivisionError("patient-7")

    monkeypatch.setattr(site.app.state.api.actions, "list", breaks)
    response = await site.get("/records")
    assert response.status_code == 500
    assert "patient-7" not in response.text + caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_answers_are_what_the_document_says(site: Site) -> None:
    schemas = openapi_document()["components"]["schemas"]
    for endpoint in ENDPOINTS:
        assert set(schemas[endpoint.gives.__name__]["properties"]) == {
            field.encode_name for field in msgspec.structs.fields(endpoint.gives)
        }
