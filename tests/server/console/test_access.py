"""Who sees what and may do what, which forms are taken, and what every answer says to the browser."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from semel import AsyncSemel
from semel.server import User, console_app
from semel.server.console.app import _FORMS, _PAGES
from semel.stores.memory import MemoryStore
from tests.server.console.sample import HOSTILE
from tests.server.console.sample_site import USERS, Site, served

HOST: Final = "console.example"
SAME: Final = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    """Somebody who sends requests."""
    with client_of(site.address) as client:
        yield client


def client_of(address: str) -> httpx.Client:
    """Sends requests to one address, under the name that the server has there."""
    return httpx.Client(base_url=address, headers={"host": HOST}, timeout=60)


@contextmanager
def alone(semel: AsyncSemel, user: Callable[[Request], User | Awaitable[User]]) -> Iterator[httpx.Client]:
    """A console that is mounted nowhere."""
    with served(Starlette(routes=[Mount("/", console_app(semel, user=user))])) as address, client_of(address) as client:
        yield client


def form_of(client: httpx.Client, role: str, place: str) -> dict[str, str]:
    """The hidden fields of the form on a page."""
    text = client.get(f"/{role}{place}").text
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text)) | {"reason": "because"}


PLACES: Final = [place for place, _ in _PAGES]


@pytest.mark.parametrize("place", PLACES)
def test_nobody_sees_nothing(client: httpx.Client, place: str) -> None:
    answer = client.get(f"/nobody{place.format(reference='0' * 16)}")
    assert answer.status_code == 401
    assert "Nobody is signed in" in answer.text
    assert "acme" not in answer.text


@pytest.mark.parametrize("place", [place for place, _ in _FORMS])
def test_nobody_sends_nothing(client: httpx.Client, place: str) -> None:
    assert client.post(f"/nobody{place}", headers=SAME).status_code == 401


@pytest.mark.parametrize("place", [*PLACES, "/static/console.css", "/no/such/page"])
def test_every_answer_forbids_what_no_page_needs(client: httpx.Client, place: str) -> None:
    headers = client.get(f"/admin{place.format(reference='0' * 16)}").headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "base-uri 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_pages_load_nothing_from_elsewhere_and_hold_no_script_or_style(client: httpx.Client) -> None:
    for place in ("/", "/overview", "/records", "/batches", "/events", "/doctor", "/audit"):
        text = client.get(f"/admin{place}").text
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*(?:src|href)="([^"]*)"', text)
        assert loaded
        assert all(address.startswith("/admin/static/") for address in loaded)
        assert not re.search(r"<script(?![^>]*\bsrc=)", text)
        assert not re.search(r"<style|\bstyle=|\bon\w+=\"", text)


ACTIONS: Final = {
    "viewer": set[str](),
    "operator": {"happened", "release", "cancel", "fail"},
    "eraser": set[str](),
    "admin": {"happened", "release", "cancel", "fail"},
}


@pytest.mark.parametrize("role", ACTIONS)
def test_a_role_is_offered_what_it_may_do_and_refused_the_rest(client: httpx.Client, site: Site, role: str) -> None:
    record = site.in_doubt("offered")
    text = client.get(f"/{role}/records/{record.reference}").text
    assert set(re.findall(r"do=(\w+)", text)) == ACTIONS[role]
    for name in ("happened", "release", "cancel", "fail", "reopen", "erase"):
        answer = client.get(f"/{role}/act?do={name}&target={record.reference}")
        permitted = {"operator": {"reopen"}, "eraser": {"erase"}, "admin": {"reopen", "erase"}}.get(role, set())
        assert answer.status_code == (200 if name in ACTIONS[role] | permitted else 403), name
        if answer.status_code == 403:
            assert f"{USERS[role].name} may not" in answer.text  # type: ignore[union-attr]  # each role is somebody


@pytest.mark.parametrize(("role", "code"), [("viewer", 403), ("eraser", 403), ("operator", 200), ("admin", 200)])
def test_bodies_are_a_right_of_their_own(client: httpx.Client, site: Site, role: str, code: int) -> None:
    record = site.completed("secret", {"iban": "DE02"})
    assert "DE02" not in client.get(f"/{role}/records/{record.reference}").text
    answer = client.get(f"/{role}/records/{record.reference}/body")
    assert answer.status_code == code
    assert ("DE02" in answer.text) is (code == 200)


@pytest.mark.parametrize(("role", "code"), [("viewer", 403), ("operator", 403), ("eraser", 403), ("admin", 200)])
def test_only_an_admin_reads_the_audit_chain(client: httpx.Client, role: str, code: int) -> None:
    assert client.get(f"/{role}/audit").status_code == code


def test_a_look_at_a_body_is_in_the_audit_chain(client: httpx.Client, site: Site) -> None:
    record = site.completed("looked at", "x")
    client.get(f"/operator/records/{record.reference}/body")
    text = client.get(f"/admin/audit?target={record.reference}").text
    assert "olga" in text
    assert ">body" in text


def test_another_scope_does_not_exist_for_who_does_not_reach_it(client: httpx.Client, site: Site) -> None:
    record = site.in_doubt("far away", "globex")
    for place in ("", "/body"):
        assert client.get(f"/acme/records/{record.reference}{place}").status_code == 404
    assert "globex" not in client.get("/acme/").text
    assert "globex" not in client.get("/acme/records?order=oldest").text
    assert "No record matches" in client.get("/acme/records?scope=globex").text
    assert client.get("/acme/batch", params={"scope": "globex", "batch": HOSTILE}).status_code == 404
    assert client.get("/acme/doctor").status_code == 403
    assert "far away" not in client.get(f"/acme/act?do=cancel&target={record.reference}").text
    assert "Streams belong to no scope" in client.get("/acme/events").text


def test_a_form_is_taken_from_the_page_that_this_browser_was_given(client: httpx.Client, site: Site) -> None:
    record = site.in_doubt("taken")
    form = form_of(client, "operator", f"/act?do=cancel&target={record.reference}")
    answer = client.post("/operator/act", data=form, headers=SAME)
    assert answer.status_code == 303
    assert site.read("taken").status == "cancelled"


FOREIGN: Final = {
    "another origin": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "another port": {"origin": f"http://{HOST}:81"},
    "a page of another site": {"referer": "https://evil.example/page"},
    "a sibling": {"origin": f"http://{HOST}", "sec-fetch-site": "same-site"},
    "null": {"origin": "null"},
    "nothing": dict[str, str](),
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_a_form_of_another_site_is_refused(client: httpx.Client, site: Site, headers: dict[str, str]) -> None:
    record = site.in_doubt("wanted by others")
    form = form_of(client, "operator", f"/act?do=cancel&target={record.reference}")
    answer = client.post("/operator/act", data=form, headers=headers)
    assert answer.status_code == 403
    assert "nothing was changed" in answer.text
    assert site.read("wanted by others").status == "in_doubt"


@pytest.mark.parametrize("place", [place for place, _ in _FORMS])
def test_a_form_without_its_token_is_refused_everywhere(client: httpx.Client, place: str) -> None:
    client.get("/operator/")
    for token in ("", "0" * 64):
        answer = client.post(f"/operator{place}", data={"token": token, "do": "cancel"}, headers=SAME)
        assert answer.status_code == 403
        assert "not of a page that this browser was given" in answer.text


def test_the_token_of_one_user_is_of_no_use_to_another(client: httpx.Client, site: Site) -> None:
    record = site.in_doubt("of another")
    form = form_of(client, "operator", f"/act?do=cancel&target={record.reference}")
    cookie = client.cookies.get("semel_console", path="/operator")
    assert cookie is not None
    client.cookies.set("semel_console", cookie, domain=HOST, path="/admin")
    assert client.post("/admin/act", data=form, headers=SAME).status_code == 403


def test_the_cookie_is_kept_from_scripts_and_other_sites(client: httpx.Client) -> None:
    told = client.get("/operator/").headers["set-cookie"].lower()
    assert "httponly" in told
    assert "samesite=strict" in told
    assert "path=/operator" in told


def test_a_form_is_sent_as_a_form_and_of_bounded_size(client: httpx.Client) -> None:
    assert client.post("/operator/act", json={"do": "cancel"}, headers=SAME).status_code == 400
    answer = client.post("/operator/act", data={"reason": "x" * 100_000}, headers=SAME)
    assert answer.status_code == 400


@pytest.mark.parametrize("place", ["/act?do=cancel", "/act", "/act?do=nothing", "/events/letters", "/records/zz"])
def test_what_cannot_be_meant_is_refused_in_words(client: httpx.Client, place: str) -> None:
    answer = client.get(f"/admin{place}")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize(
    "query", ["status=gone", "tag=x", "after=yesterday", "before=2026-13-01", "cursor=!!", "scope=a&cursor=AAAA"]
)
def test_a_search_that_cannot_be_read_is_refused_on_its_page(client: httpx.Client, query: str) -> None:
    answer = client.get(f"/admin/records?{query}")
    assert answer.status_code == 400
    assert "nothing was read" in answer.text


def test_pages_follow_each_other_without_a_gap(client: httpx.Client) -> None:
    seen: list[str] = []
    place: str | None = "/admin/records?scope=acme"
    while place:
        text = client.get(place).text
        seen += re.findall(r'name="target" value="(\w+)"', text)
        found = re.search(r'rel="next" href="([^"]+)"', text)
        place = found[1].replace("&amp;", "&") if found else None
    assert len(seen) == len(set(seen))
    assert len(seen) > 100


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("order-1", "/records?business_key=order-1"),
        ("guest-3", "/records?subject=guest-3"),
        ("proc-7", "/process?instance=proc-7"),
        ("web", "/records?requester=web"),
    ],
)
def test_anything_that_records_are_known_by_is_found(client: httpx.Client, wanted: str, place: str) -> None:
    assert client.get("/viewer/find", params={"q": wanted}).headers["location"] == f"/viewer{place}"


def test_a_console_on_a_store_without_an_audit_chain_is_read_only() -> None:
    class NoChain(MemoryStore):
        """A store that can be looked at alone."""

        capabilities = MemoryStore.capabilities - {
            capability for capability in MemoryStore.capabilities if capability.name == "AUDIT"
        }

    semel = AsyncSemel(NoChain())
    with alone(semel, lambda _: User("adam", {"admin"})) as client:
        assert "read only: this store keeps no audit chain" in client.get("/").text
        assert client.get("/act?do=cancel&target=" + "0" * 64).status_code == 403


def test_an_empty_console_says_that_there_is_nothing() -> None:
    with alone(AsyncSemel("memory://"), lambda _: User("vera", {"viewer"})) as client:
        assert "Nothing needs a person." in client.get("/").text
        assert "No records yet." in client.get("/overview").text
        assert "No record matches." in client.get("/records").text
        assert "No dead letters." in client.get("/events").text
        assert "No batches." in client.get("/batches").text


def test_who_asks_may_be_found_by_a_coroutine() -> None:
    async def find(request: Request) -> User:
        del request
        return User("vera", {"viewer"})

    with alone(AsyncSemel("memory://"), find) as client:
        assert "vera" in client.get("/").text
