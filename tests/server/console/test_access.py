"""Who sees what and may do what, which forms are taken, and what every answer says to the browser."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from semel import AsyncSemel, Semel
from semel.batch import Batches
from semel.core.operations import Operation, Resolve
from semel.core.operators.audit import AppendEntry
from semel.core.store import Answers, Capability
from semel.errors import StoreUnavailable
from semel.events import Consumer, Event, Outbox, Relay
from semel.server import User, console_app
from semel.server.attention import Needs
from semel.server.console.app import _FORMS, _PAGES
from semel.stores.memory import MemoryStore
from tests.server.console.sample import HOSTILE
from tests.server.console.sample_site import HOLD, USERS, Lost, Site, run_apart, served

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
def alone(
    semel: Semel | AsyncSemel,
    user: Callable[[Request], User | Awaitable[User]],
    consumers: Sequence[Consumer[Any]] = (),
) -> Iterator[httpx.Client]:
    """A console that is mounted nowhere."""
    app = Starlette(routes=[Mount("/", console_app(semel, user=user, consumers=consumers))])
    with served(app) as address, client_of(address) as client:
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
    "no address": {"origin": "http://["},
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


def test_a_page_that_is_asked_for_in_the_wrong_way_says_so(client: httpx.Client) -> None:
    answer = client.post("/operator/records", headers=SAME)
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]
    assert "cannot be asked for in this way" in answer.text
    assert "There is no such page here." in client.get("/operator/nowhere").text


@pytest.mark.parametrize("place", [place for place, _ in _FORMS])
def test_a_form_without_its_token_is_refused_everywhere(client: httpx.Client, place: str) -> None:
    client.get("/operator/")
    for token in ("", "0" * 64, "\u00e9", "\U0001f511" * 16):
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


@pytest.mark.parametrize("place", ["/records?subject=%00", "/events/letters?consumer=a%00b", "/records/%00"])
def test_an_address_with_nul_is_refused(client: httpx.Client, place: str) -> None:
    answer = client.get(f"/admin{place}")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text


def test_a_form_with_nul_is_refused(client: httpx.Client, site: Site) -> None:
    record = site.in_doubt("nul")
    form = form_of(client, "operator", f"/act?do=fail&target={record.reference}") | {"error": "a\0b"}
    assert client.post("/operator/act", data=form, headers=SAME).status_code == 400
    assert site.read("nul").status == "in_doubt"


def test_an_error_that_nobody_expects_is_answered_and_logged_without_its_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def lose(*_: object, **__: object) -> None:
        raise LookupError("ann@example.com")

    monkeypatch.setattr("semel.server.actions.Actions.show", lose)
    with alone(AsyncSemel("memory://"), lambda _: User("vera", {"viewer"})) as client:
        answer = client.get(f"/records/{'a' * 64}")
    assert answer.status_code == 500
    assert "Something went wrong" in answer.text
    assert "LookupError" in caplog.text
    assert "ann@example.com" not in answer.text + caplog.text


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


def test_what_has_happened_is_never_said_to_come(tmp_path: Path) -> None:
    with Semel(tmp_path / "shop.db") as semel:
        semel.run("first", lambda: 1, operation="charge", fingerprint=None)
    with alone(AsyncSemel(tmp_path / "shop.db"), lambda _: User("adam", {"admin"})) as client:
        text = " ".join(re.sub("<[^>]*>", " ", client.get("/doctor").text).split())
    assert "Looked at just now ; at most twice in a minute." in text  # after the page was asked for


def test_who_asks_may_be_found_by_a_coroutine() -> None:
    async def find(request: Request) -> User:
        del request
        return User("vera", {"viewer"})

    with alone(AsyncSemel("memory://"), find) as client:
        assert "vera" in client.get("/").text


NINES: Final = "9" * 5_000


@pytest.mark.parametrize(
    "place",
    [
        f"/events/parked?after={NINES}",
        "/events/parked?after=99999999999999999999",
        "/events/parked?after=%C2%B2",
        f"/act?do=drop&stream=default&position={NINES}",
        "/act?do=drop&stream=default&position=99999999999999999999",
        f"/events/letters?consumer=billing&cursor={NINES}.AAAA",
        "/events/letters?consumer=billing&cursor=99999999999999999999.AAAA",
        f"/batches?after={NINES}",
        f"/batch?scope=acme&batch=payroll-2026-11&items=failed&after={NINES}",
        "/batch?scope=acme&batch=payroll-2026-11&items=gone",
    ],
)
def test_a_number_that_no_store_has_is_refused_in_words(client: httpx.Client, place: str) -> None:
    answer = client.get(f"/admin{place}")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize(
    "value", ["[" * 20_000, "NaN", "[Infinity]", "1e999", "0.12345678901234567890", "-1e-999", "{", "9" * 5_000]
)
def test_a_value_that_would_not_be_kept_as_it_was_typed_is_refused(
    client: httpx.Client, site: Site, value: str
) -> None:
    record = site.in_doubt("inexact")
    form = form_of(client, "operator", f"/act?do=happened&target={record.reference}") | {"value": value}
    answer = client.post("/operator/act", data=form, headers=SAME)
    assert answer.status_code == 400
    assert "nothing was changed" in answer.text
    assert site.read("inexact").status == "in_doubt"


@pytest.mark.parametrize("value", ["12.50", "-0.1", "1e3", "123456789012345678901234567890", '{"a": [1.25, null]}'])
def test_a_value_is_kept_as_it_was_typed(client: httpx.Client, site: Site, value: str) -> None:
    key = f"exact {value}"
    record = site.in_doubt(key)
    form = form_of(client, "operator", f"/act?do=happened&target={record.reference}") | {"value": value}
    assert client.post("/operator/act", data=form, headers=SAME).status_code == 303
    assert site.semel.value(key, operation="probe", scope="acme") == json.loads(value)


@pytest.mark.parametrize("fence", ["x:" + NINES, "x:nine", "x:99999999999999999999"])
def test_a_fence_that_is_none_is_refused(client: httpx.Client, site: Site, fence: str) -> None:
    record = site.in_doubt("fenced")
    form = form_of(client, "operator", f"/act?do=cancel&target={record.reference}")
    form["fence"] = fence.replace("x", record.reference)
    answer = client.post("/operator/act", data=form, headers=SAME)
    assert "refused" in answer.text
    assert site.read("fenced").status == "in_doubt"


def test_a_form_for_all_that_match_since_an_hour_is_the_same_when_it_is_sent_twice(
    client: httpx.Client, site: Site
) -> None:
    site.in_doubt("twice", "twice")
    form = form_of(client, "operator", "/act?which=all&do=cancel&scope=twice&after=1h")
    first = client.post("/operator/bulk", data=form, headers=SAME)
    second = client.post("/operator/bulk", data=form, headers=SAME)
    assert first.status_code == second.status_code == 303
    assert first.headers["location"] == second.headers["location"]


def test_all_that_match_are_resolved_with_the_value_that_was_typed(client: httpx.Client, site: Site) -> None:
    for number in range(2):
        site.in_doubt(f"stated {number}", "stated")
    assert '<option value="happened">' in client.get("/operator/records?scope=stated").text
    form = form_of(client, "operator", "/act?which=all&do=happened&scope=stated")
    wrong = client.post("/operator/bulk", data=form | {"value": "{"}, headers=SAME)
    assert (wrong.status_code, "The value is no JSON" in wrong.text) == (400, True)
    begun = client.post("/operator/bulk", data=form | {"value": '{"id": 7}'}, headers=SAME)
    assert begun.status_code == 303
    while "2 done" not in client.get(begun.headers["location"]).text:
        continue  # every look waits for an answer, and the test has its time limit
    for number in range(2):
        assert site.semel.value(f"stated {number}", operation="probe", scope="stated") == {"id": 7}


def test_an_address_cannot_make_a_page_say_that_something_was_done(client: httpx.Client, site: Site) -> None:
    record = site.completed("said")
    page = client.get(f"/viewer/records/{record.reference}", params={"done": "Your account is locked, call 555"}).text
    assert "locked" not in page  # a process or a reference may have the number
    assert "Cancel it: done." in client.get(f"/viewer/records/{record.reference}?done=cancel").text


def test_a_key_with_blanks_around_it_is_found_by_the_link_of_its_record(client: httpx.Client, site: Site) -> None:
    about = {"business_key": " padded ", "process_instance": " p "}
    site.semel.run("padded", lambda: 1, operation="probe", scope="acme", fingerprint=None, about=about)
    record = site.read("padded")
    page = client.get(f"/viewer/records/{record.reference}").text
    for place in re.findall(r'href="(/viewer/(?:records|process)\?[^"]*)"', page):
        assert record.reference in client.get(place.replace("&amp;", "&")).text


def test_a_batch_with_blanks_around_its_id_can_be_decided_about(client: httpx.Client, site: Site) -> None:
    batch = Batches(site.semel, "acme").start(" padded ", [{"id": "1"}], operation="pay", item_id="id")
    place = "/act?do=pause&scope=acme&batch=+padded+"
    form = form_of(client, "operator", place)
    assert client.post("/operator/act", data=form, headers=SAME).status_code == 200
    assert batch.status().state == "paused"


def test_who_paused_a_batch_is_told_on_its_page(client: httpx.Client, site: Site) -> None:
    Batches(site.semel, "acme").start("held-up", [{"id": "1"}], operation="pay", item_id="id")
    form = form_of(client, "operator", "/act?do=pause&scope=acme&batch=held-up")
    assert client.post("/operator/act", data=form, headers=SAME).status_code == 200
    place = "/batch?scope=acme&batch=held-up"
    assert "Paused by olga, " in client.get(f"/admin{place}").text
    assert "Paused by" not in client.get(f"/viewer{place}").text
    assert "Paused by olga. " in client.get("/admin/").text


def test_batches_follow_each_other_page_by_page_the_newest_first(
    client: httpx.Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.server.console.pages.batches.PAGE", 2)
    for number in range(5):
        Batches(site.semel, "paged").start(f"paged-{number}", [], operation="pay")
    seen: list[str] = []
    place: str | None = "/admin/batches"
    while place:
        text = client.get(place).text
        seen += re.findall(r"batch=(paged-\d)", text)
        found = re.search(r'rel="next" href="([^"]+)"', text)
        place = found[1].replace("&amp;", "&") if found else None
    assert seen == [f"paged-{number}" for number in reversed(range(5))]


def test_items_that_failed_are_shown_with_why_page_by_page(client: httpx.Client) -> None:
    text = client.get("/viewer/batch?scope=acme&batch=payroll-2026-10").text
    items = re.findall(r'<th scope="row" class="text mono">(p-\d+)</th>', text)
    assert len(items) == 3
    assert text.count("account closed") == 3
    after = client.get("/viewer/batch?scope=acme&batch=payroll-2026-10&items=failed&after=60").text
    assert re.findall(r'<th scope="row" class="text mono">(p-\d+)</th>', after) == items[-1:]


def test_a_store_without_a_chain_does_not_say_that_a_look_was_written_down() -> None:
    class NoChain(MemoryStore):
        capabilities = MemoryStore.capabilities - {Capability.AUDIT}

    store = NoChain()
    with Semel(store) as semel:
        semel.run("seen", lambda: "x", operation="probe", fingerprint=None)
        record = semel.read("seen", operation="probe")
    assert record is not None
    with alone(AsyncSemel(store), lambda _: User("olga", {"operator"})) as client:
        for place in ("", "/body"):
            text = client.get(f"/records/{record.reference}{place}").text
            assert "so that you looked is written down nowhere" in text
            assert "in the audit chain" not in text.replace("into", "in")


def test_a_page_says_what_was_not_looked_at_instead_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    semel = AsyncSemel("memory://")

    async def many(*_: object) -> Needs:
        return Needs((), (), datetime.now(UTC), ("in_doubt",), ("charge",))

    monkeypatch.setattr("semel.server.console.pages.state.needs_of", many)
    with alone(semel, lambda _: User("vera", {"viewer"})) as client:
        text = client.get("/").text
        assert "Nothing needs a person" not in text
        assert "very many records in doubt, and only the oldest were looked at" in text
        assert "cannot be reconciled here" in text
        assert "<code>charge</code>" in text


class CountsNothing(MemoryStore):
    """A store that would find letters only by reading everything."""

    capabilities = MemoryStore.capabilities - {Capability.COUNT}


def fill_letters(semel: Semel) -> list[Consumer[Semel]]:
    """Two consumers, of which each has a dead letter."""
    consumers = [Consumer(semel, name, max_attempts=1, unknown="dead_letter") for name in ("billing", "shipping")]
    for consumer in consumers:
        consumer.handle(Event(type="order.placed", source="/shop", id="e-1", data={}))
    return consumers


class Losing(MemoryStore):
    """A store whose answers to some operations are lost: they are carried out, and nobody hears of it."""

    def __init__(self) -> None:
        super().__init__()
        self.loses: tuple[type, ...] = ()
        self.after = 0

    def apply(self, operations: Sequence[Operation]) -> Answers:
        """The answers, or none."""
        answers = super().apply(operations)
        if any(isinstance(operation, self.loses) for operation in operations):
            self.after -= 1
            if self.after < 0:
                raise StoreUnavailable("The store did not answer; whether it was recorded is not known.")
        return answers


def _lose() -> None:
    raise Lost


def cancel_both(store: Losing, loses: tuple[type, ...], after: int) -> tuple[str, str, list[str]]:
    """What came of cancelling two records, what the audit chain says of it, and how the records are."""
    semel = Semel(store)
    for key in ("one", "two"):
        with suppress(Lost):
            semel.run(key, _lose, operation="probe", fingerprint=None, policy=HOLD)
    with alone(semel, lambda _: User("adam", {"admin"})) as client:
        references = "".join(f"&target={record.reference}" for record in semel.records())
        text = client.get(f"/act?do=cancel{references}").text
        form = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text)
        store.loses, store.after = loses, after
        given: dict[str, list[str]] = {"reason": ["gone"]}
        for name, value in form:
            given.setdefault(name, []).append(value)
        came = client.post("/act", data=given, headers=SAME).text
        store.loses = ()
        chain = client.get("/audit").text
    return came, chain, [record.status for record in semel.records()]


def test_a_decision_whose_answer_was_lost_is_not_called_refused() -> None:
    came, chain, statuses = cancel_both(Losing(), (Resolve,), after=1)
    assert statuses == ["cancelled", "cancelled"]
    assert "1 of 2 done, 1 without an answer" in came
    assert "refused" not in came
    assert "refused" not in chain
    assert "unknown: unavailable" in chain


def test_what_was_done_before_the_store_went_away_is_told() -> None:
    came, _, statuses = cancel_both(Losing(), (AppendEntry,), after=2)
    assert sorted(statuses) == ["cancelled", "in_doubt"]
    assert "1 of 2 done, 1 without an answer" in came


def test_a_consumer_whose_letters_were_not_looked_at_is_not_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    semel = Semel("memory://")
    with alone(semel, lambda _: User("vera", {"viewer"}), fill_letters(semel)) as client:
        monkeypatch.setattr("semel.server.attention.MOST_ON_A_PAGE", 1)
        text = client.get("/events").text
    assert "consumer=shipping" in text
    assert "Consumers without letters" not in text
    assert "only the oldest were looked at" in text


def test_a_store_that_does_not_look_for_letters_does_not_say_who_has_none() -> None:
    semel = Semel(CountsNothing())
    with alone(semel, lambda _: User("vera", {"viewer"}), fill_letters(semel)) as client:
        text = client.get("/events").text
    assert "Not looked for." in text
    assert "Consumers known here" in text
    assert "Consumers without letters" not in text


async def _park(semel: AsyncSemel, scope: str) -> None:
    class Refuses:
        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            return [ValueError("no such exchange") for _ in events]

    outbox = Outbox(semel)
    await outbox.add(Event(type="order.lost", source="/shop", id=scope, data={}), scope=scope, autonomous=True)
    await Relay(outbox, Refuses(), max_attempts=1).run_once()


def test_events_that_were_not_looked_at_are_not_said_to_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    semel = AsyncSemel("memory://")
    for scope in ("globex", "acme"):
        run_apart(_park(semel, scope))
    monkeypatch.setattr("semel.server.console.pages.events.PAGE", 1)
    monkeypatch.setattr("semel.server.actions.events._LOOKED_AT", 0)
    with alone(semel, lambda _: User("anna", {"viewer"}, scopes={"acme"})) as client:
        first = client.get("/events/parked").text
        assert "Nothing is parked" not in first
        (onward,) = re.findall(r'rel="next" href="([^"]+)"', first)
        assert "order.lost" in client.get(onward.replace("&amp;", "&")).text
