"""Every endpoint with every role, and from another scope: who may what, as the table says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from semel.batch import Batches
from semel.events import Event, Outbox, Relay
from semel.server import Permission, Role, User
from semel.server.access import PERMISSIONS
from semel.server.actions.events import letter_id
from semel.server.api.endpoints import ENDPOINTS, Endpoint
from semel.server.bulk import BulkAction, BulkActions, BulkRequest
from semel.server.process import make_server_app
from semel.server.settings import ServerSettings
from semel.server.tokens import Tokens
from tests.server.desk import ADMIN, WHY, Desk, Site
from tests.server.test_attention import put_letter

pytestmark = pytest.mark.anyio
NOWHERE = "f" * 64
PLACES = {
    "reference": NOWHERE,
    "consumer": "billing",
    "letter": NOWHERE,
    "stream": "default",
    "position": "1",
    "batch": "payroll",
    "bulk": "bulk-1",
    "name": "robot",
}
BODIES: dict[str, dict[str, Any]] = {
    "resolve_record": {"reason": WHY, "value": 1},
    "fail_record": {"reason": WHY, "error": "declined"},
    "retry_batch": {"reason": WHY, "which": "failed"},
    "change_bulk": {"reason": WHY, "what": "pause"},
    "erase_subject": {"reason": WHY, "subject": "patient-7", "scope": "acme"},
    "redact_audit": {"reason": WHY, "scope": "acme", "seq": 1},
    "add_token": {"name": "robot", "roles": ["viewer"]},
    "revoke_token": {},
    "bulk_fail": {"reason": WHY, "error": "declined", "records": {}, "dry_run": True},
    "bulk_redrive": {"reason": WHY, "letters": {"consumer": "billing"}, "dry_run": True},
    "bulk_discard": {"reason": WHY, "letters": {"consumer": "billing"}, "dry_run": True},
    **{
        f"bulk_{name}": {"reason": WHY, "records": {}, "dry_run": True}
        for name in ("resolve", "cancel", "release", "reopen", "erase")
    },
}


def path_of(endpoint: Endpoint) -> str:
    path = endpoint.path.replace(":path}", "}").replace(":int}", "}")
    return path.format(**PLACES)


QUERIES: dict[str, dict[str, Any]] = {"batch_items": {"status": "failed"}}


async def ask(site: Site, endpoint: Endpoint, user: str) -> int:
    if endpoint.method == "GET":
        response = await site.get(path_of(endpoint), user, params=QUERIES.get(endpoint.name))
    else:
        response = await site.post(path_of(endpoint), BODIES.get(endpoint.name, {"reason": WHY}), user)
    return response.status_code


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
@pytest.mark.parametrize("role", Role)
async def test_a_role_may_exactly_what_its_permissions_say(
    site: Site, people: dict[str, User], endpoint: Endpoint, role: Role
) -> None:
    people["somebody"] = User("somebody", {role})
    status = await ask(site, endpoint, "somebody")
    may = endpoint.permission is None or endpoint.permission in PERMISSIONS[role]
    assert (status == 403) is not may, status
    assert status in ((200, 201, 202, 404, 409) if may else (403,)), status


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
async def test_who_has_no_role_may_do_nothing(site: Site, people: dict[str, User], endpoint: Endpoint) -> None:
    people["somebody"] = User("somebody", set())
    assert await ask(site, endpoint, "somebody") == (200 if endpoint.permission is None else 403)


@pytest.mark.parametrize("action", ["release", "resolve", "erase"])
@pytest.mark.parametrize("role", Role)
async def test_a_bulk_action_is_changed_by_those_who_may_begin_it(
    desk: Desk, site: Site, people: dict[str, User], role: Role, action: str
) -> None:
    await desk.in_doubt()
    asked = BulkRequest(action=cast("BulkAction", action), reason=WHY, records={"status": "in_doubt"}, id="bulk-1")
    await BulkActions(desk.actions).start(User("adam", {"admin"}), asked)
    people["somebody"] = User("somebody", {role})
    answer = await site.post("/bulk/bulk-1/change", {"reason": WHY, "what": "pause"}, "somebody")
    assert answer.status_code == (200 if Permission(action) in PERMISSIONS[role] else 403)


OPEN = {"health", "openapi", "sign_in", "open_session", "end_session"}
"""What is answered to anybody: nothing of it is about a record."""


def serve(desk: Desk) -> Starlette:
    return make_server_app(desk.semel, ServerSettings(), due=lambda now: now + timedelta(minutes=15))


def test_every_route_of_the_server_is_an_endpoint_a_page_or_open(desk: Desk) -> None:
    names = {getattr(route, "name", "") for route in serve(desk).routes}
    assert names - {endpoint.name for endpoint in ENDPOINTS} == {*OPEN, "metrics", "console"}


@pytest.mark.parametrize("role", [*Role, None])
async def test_metrics_are_shown_to_those_who_may_list(desk: Desk, role: Role | None) -> None:
    made = await Tokens(desk.semel).create(
        "robot", roles=[role or Role.VIEWER], scopes=None, expires_in=timedelta(days=1), by="test"
    )
    headers = {} if role is None else {"authorization": f"Bearer {made.secret}"}
    transport = httpx.ASGITransport(serve(desk))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
        answer = await client.get("/metrics", headers=headers)
    wanted = 401 if role is None else 200 if Permission.LIST in PERMISSIONS[role] else 403
    assert answer.status_code == wanted


BATCH_ENDPOINTS = [endpoint for endpoint in ENDPOINTS if "{batch" in endpoint.path]


@pytest.mark.parametrize("scopes", [None, {""}], ids=["everywhere", "shared"])
@pytest.mark.parametrize("role", Role)
async def test_a_bulk_action_is_no_batch(
    desk: Desk, site: Site, people: dict[str, User], role: Role, scopes: set[str] | None
) -> None:
    await desk.completed()
    bulk = BulkActions(desk.actions)
    asked = BulkRequest(action="erase", reason=WHY, records={"status": "completed"}, id="payroll")
    await bulk.start(ADMIN, asked)
    await bulk.change(ADMIN, "", "payroll", "pause", reason="wait for the lawyer")
    people["somebody"] = User("somebody", {role}, scopes=scopes)
    for endpoint in BATCH_ENDPOINTS:
        status = await ask(site, endpoint, "somebody")
        assert status == (404 if endpoint.permission in PERMISSIONS[role] else 403), endpoint.name
    assert (await bulk.progress(ADMIN, "", "payroll")).status.state == "paused"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
async def test_nobody_is_answered_who_is_not_known(site: Site, endpoint: Endpoint) -> None:
    assert await ask(site, endpoint, "stranger") == 401


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
async def test_what_is_not_bound_to_a_scope_is_not_for_users_of_some(site: Site, endpoint: Endpoint) -> None:
    assert (await ask(site, endpoint, "anna") == 403) is endpoint.is_everywhere


RECORD_ENDPOINTS = [endpoint for endpoint in ENDPOINTS if "{reference}" in endpoint.path]


@pytest.mark.parametrize("endpoint", RECORD_ENDPOINTS, ids=lambda endpoint: endpoint.name)
async def test_a_record_of_another_scope_looks_like_none(
    desk: Desk, site: Site, people: dict[str, User], endpoint: Endpoint
) -> None:
    record = await desk.in_doubt(scope="acme")
    people["fred"] = User("fred", {"admin"}, scopes={"globex"})
    answers = []
    for reference in (record.reference, NOWHERE):
        path = endpoint.path.format(reference=reference)
        if endpoint.method == "GET":
            response = await site.get(path, "fred")
        else:
            response = await site.post(path, BODIES.get(endpoint.name, {"reason": WHY}), "fred")
        answers.append((response.status_code, response.text.replace(reference[:16], "…"), dict(response.headers)))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


class Refusing:
    """A broker that takes nothing."""

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        return [LookupError("no such exchange") for _ in events]


async def fill(desk: Desk, scope: str) -> dict[str, str]:
    """Something of everything that has a scope; gives how it is named in addresses."""
    record = await desk.in_doubt(scope=scope)
    await put_letter(desk, "billing", scope)
    (letter,) = (await desk.actions.letters(ADMIN, "billing")).letters
    outbox = Outbox(desk.semel)
    await outbox.add(Event(type="paid", source="/shop", id="e-1", data=None), scope=scope, autonomous=True)
    await Relay(outbox, Refusing(), max_attempts=1).run_once()
    (parked,) = (await desk.actions.parked(ADMIN, "default")).events

    async def fail(item: str) -> None:
        raise ValueError(item)

    batch = await Batches(desk.semel, scope).start("payroll", ["a", "b"], operation="pay")
    await batch.run(fail, final_errors=(ValueError,), max_failed=0)
    wanted = BulkRequest(action="release", reason=WHY, records={"scope": scope, "status": "in_doubt"}, id="bulk-1")
    bulk = BulkActions(desk.actions)
    await bulk.start(ADMIN, wanted)
    await bulk.change(ADMIN, scope, "bulk-1", "pause", reason=WHY)  # else the server would go on with it
    named = {"reference": record.reference, "letter": letter_id(letter), "position": str(parked.stored.position)}
    return {**PLACES, **named}


def named_in(scope: str, asked: type[msgspec.Struct] | None) -> dict[str, Any]:
    """The scope, where a query or a body has a place for it."""
    return {"scope": scope} if asked is not None and "scope" in asked.__struct_fields__ else {}


async def ask_in(site: Site, endpoint: Endpoint, user: str, places: dict[str, str], scope: str) -> httpx.Response:
    """Ask for what is named in a scope, and say so wherever it can be said."""
    path = endpoint.path.replace(":path}", "}").replace(":int}", "}").format(**places)
    if endpoint.method == "GET":
        return await site.get(path, user, params={**QUERIES.get(endpoint.name, {}), **named_in(scope, endpoint.query)})
    body = {**BODIES.get(endpoint.name, {"reason": WHY}), **named_in(scope, endpoint.body)}
    for filters in ("records", "letters"):
        if filters in body:
            body[filters] = {**body[filters], "scope": scope}
    return await site.post(path, body, user)


async def all_that_is_shown(site: Site, places: dict[str, str], scope: str) -> dict[str, str]:
    """What an admin of all scopes is shown, of everything that can be looked at without a trace."""
    looking = [one for one in ENDPOINTS if one.method == "GET" and one.permission is not Permission.BODY]
    return {one.name: (await ask_in(site, one, "adam", places, scope)).text for one in looking}


async def test_nothing_of_another_scope_is_shown_or_changed(desk: Desk, site: Site, people: dict[str, User]) -> None:
    places = await fill(desk, "hidden")
    before = await all_that_is_shown(site, places, "hidden")
    shown = {name for name, text in before.items() if "hidden" in text}
    people["fred"] = User("fred", {"admin"}, scopes={"globex", "initech"})
    for endpoint in ENDPOINTS:
        answer = await ask_in(site, endpoint, "fred", places, "hidden")
        assert "hidden" not in answer.text, endpoint.name
        if endpoint.is_everywhere:
            assert answer.status_code == 403, endpoint.name
        elif "{" in endpoint.path and endpoint.name not in ("list_letters", "list_parked"):
            assert answer.status_code == 404, endpoint.name
    assert await all_that_is_shown(site, places, "hidden") == before
    # What was hidden is there to be seen by somebody else.
    assert shown >= {"attention", "list_records", "show_record", "list_letters", "show_letter", "list_parked"}
    assert shown >= {"list_batches", "show_batch", "list_bulk", "show_bulk"}


def test_every_permission_is_asked_for_by_an_endpoint() -> None:
    asked = {endpoint.permission for endpoint in ENDPOINTS}
    assert set(Permission) - asked == {Permission.FORCE}  # a part of the endpoints that end a doubt
