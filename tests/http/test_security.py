"""What a caller may learn and do with keys: nothing of others, and nothing that costs more than an answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel import SHARED, Semel
from semel.engine.engine import engine_of
from semel.http.exchange import Exchange, RunApp, Settle
from semel.http.request import Headers, Request, State
from semel.http.response import REPLAYED, Response
from semel.http.response import Answered as Whole
from semel.http.route import Route
from tests.http.asking import ALICE, BOB, Asker, new_key
from tests.http.conftest import Start
from tests.http.resident import MIB, resident
from tests.http.sites import SITES, Running
from tests.http.wire import Answered, Wire, head

pytestmark = pytest.mark.slow

CALLERS = [f"Bearer {tenant}/{user}" for tenant in ("acme", "umbrella") for user in ("ann", "ben")]
ROUTES = ("/orders", "/required")
JSON = "Content-Type: application/json"
MARKS = {"idempotency-replayed", "idempotency-expires", "cache-control", "access-control-expose-headers"}
OF_THE_SERVER = {"connection", "content-length", "date", "server", "transfer-encoding"}
OF_DJANGO = {"cross-origin-opener-policy", "referrer-policy", "x-content-type-options", "x-frame-options"}
MALFORMED = ('"{}', '"{}", "other"', "{} and more", '"{}"; =1', "{}é", "{:x<300}")


@pytest.fixture(params=["starlette-uvicorn", "flask-gunicorn"])
def site(request: pytest.FixtureRequest, sites: Callable[[str, str], Running]) -> Running:
    """A site that awaits, and one that blocks."""
    return sites(request.param, "sqlite")


def of(asker: Asker, caller: str | None) -> Asker:
    """The same, on behalf of somebody else."""
    return Asker(asker.running, caller, asker.threads)


def shape(answer: httpx.Response) -> tuple[int, tuple[str, ...], bytes]:
    """All that can be told of an answer, but the instant it was sent."""
    return answer.status_code, tuple(sorted(name for name, _ in answer.headers.multi_items())), answer.content


def test_one_key_of_many_tenants_users_and_routes_shows_nobody_a_foreign_byte(asker: Asker) -> None:
    """The number of the effect stands in the body, the location and the tag, so no two answers are alike."""
    key, before = new_key(), asker.running.effects()
    asked = list(itertools.product(CALLERS, ROUTES))
    told = [
        [(answer.content, answer.headers["location"], answer.headers["etag"]) for answer in answers]
        for answers in ([of(asker, caller).ask(route, key) for caller, route in asked] for _ in range(3))
    ]
    assert told[0] == told[1] == told[2]
    assert len(set(told[0])) == len(asked)
    assert asker.running.effects() == before + len(asked)


def test_what_one_caller_sent_is_never_told_to_another(asker: Asker) -> None:
    key = new_key()
    for caller in (*CALLERS, *CALLERS):
        answer = of(asker, caller).ask("/echo", key, body=f"of {caller}".encode(), content_type="text/plain")
        assert (answer.status_code, answer.text) == (200, f"of {caller}")


@pytest.mark.parametrize("body", [b'{"amount": 10}', b'{"amount": 11}'], ids=["the same body", "another body"])
def test_a_foreign_key_cannot_be_told_from_one_that_nobody_has(asker: Asker, body: bytes) -> None:
    shapes = set()
    for _ in range(20):
        foreign = new_key()
        asker.ask("/null", foreign)
        bob = of(asker, BOB)
        shapes |= {shape(bob.ask("/null", key, body=body)) for key in (foreign, new_key())}
    assert len(shapes) == 1


def test_a_foreign_key_that_is_at_work_cannot_be_told_from_one_that_nobody_has(asker: Asker) -> None:
    key, gate = new_key(), asker.running.gate
    first = asker.later("/busy", key)
    held = gate.visitor()
    answers = []
    for foreign in (key, new_key()):
        asked = of(asker, BOB).later("/busy", foreign)
        gate.visitor().go()
        answers.append(asked.result())
    held.go()
    statuses, names, _ = zip(*map(shape, (*answers, first.result())), strict=True)
    assert set(statuses) == {201}
    assert len(set(names)) == 1


@pytest.mark.parametrize("caller", [None, "Basic YWxpY2U6"])
def test_who_is_not_signed_in_learns_nothing_of_a_key(asker: Asker, caller: str | None) -> None:
    key, nobody = new_key(), of(asker, caller)
    asker.ask("/orders", key)
    assert shape(nobody.ask("/orders", key)) == shape(nobody.ask("/orders", new_key()))


def test_who_has_lost_the_right_learns_nothing_of_a_key(asker: Asker) -> None:
    key = new_key()
    asker.ask("/orders", key)
    asker.running.revoke(["alice"])
    assert shape(asker.ask("/orders", key)) == shape(asker.ask("/orders", new_key()))


@pytest.mark.parametrize("spelling", MALFORMED)
def test_a_malformed_key_gets_the_same_answer_whether_or_not_it_is_known(asker: Asker, spelling: str) -> None:
    known, before = new_key(), asker.running.effects()
    asker.ask("/orders", known)
    answers = [
        shape(of(asker, caller).ask("/orders", headers=(("Idempotency-Key", spelling.format(key).encode()),)))
        for caller, key in itertools.product((ALICE, BOB), (known, new_key()))
    ]
    assert {status for status, _, _ in answers} == {400}
    assert len(set(answers)) == 1
    assert asker.running.effects() == before + 1


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("path", ["/orders", "/headers", "/gzip", "/empty", "/stream", "/status?code=302"])
def test_a_replay_carries_no_header_outside_the_list(
    sites: Callable[[str, str], Running], name: str, path: str
) -> None:
    site = sites(name, "sqlite")
    lines = {"Idempotency-Key": new_key(), "Authorization": ALICE, "Origin": "https://shop.example"}
    site.client.post(path, headers=lines)
    again = site.client.post(path, headers=lines)
    assert again.headers["idempotency-replayed"] == "true"
    beside = OF_THE_SERVER | (OF_DJANGO if name.startswith(("django", "drf")) else set())
    assert set(again.headers) <= REPLAYED | MARKS | beside


BROKEN = st.builds("{}{}{}".format, st.text(), st.sampled_from(["\r\n", "\r", "\n", "\0"]), st.text())
NAMES = st.sampled_from([*sorted(REPLAYED), "Location", "LINK", "Set-Cookie", "X-Trace", "Location\r\nSet-Cookie"])


def recorded(headers: list[tuple[str, str]]) -> Response:
    """What is stored of an answer with these headers."""
    request = Request("POST", "/orders", "", Headers(()), State({}))
    exchange = Exchange(engine_of(Semel("memory://")), SHARED, [Route("/orders")], None, {})
    route = exchange.find("POST", "/orders")
    assert route is not None
    wanted = next(exchange.on_response(RunApp(None, route, request), Whole(201, headers, b"")))  # type: ignore[arg-type]
    assert isinstance(wanted, Settle)
    assert isinstance(wanted.value, Response)
    return wanted.value


@given(st.lists(st.tuples(NAMES, st.text() | BROKEN)))
def test_a_line_break_in_a_header_never_reaches_a_replay(headers: list[tuple[str, str]]) -> None:
    kept = recorded(headers).headers
    assert all(name.lower() in REPLAYED for name, _ in kept)
    assert not any(set("\r\n\0") & set(name + value) for name, value in kept)


@pytest.fixture
def wire(asker: Asker) -> Iterator[Wire]:
    """A connection to the site."""
    wire = Wire(asker.running.port)
    yield wire
    wire.close()


def sent(wire: Wire, *lines: str) -> Answered:
    """The answer to an order with these lines in its head."""
    wire.send(head("POST", "/orders", JSON, *lines, length=2) + b"{}")
    return wire.answer()


@pytest.mark.parametrize(
    "lines",
    [[f"X-Padding: {'x' * 65_536}"], [f"X-Padding-{number}: x" for number in range(2000)]],
    ids=["64 KiB in a value", "2,000 lines"],
)
def test_a_huge_head_is_refused_by_the_server_or_read_once(asker: Asker, wire: Wire, lines: list[str]) -> None:
    """How long a head may be is for the server to say; semel reads the lines it knows and copies none."""
    asker.ask("/orders", new_key())
    memory, before = resident(asker.running), asker.running.effects()
    answer = sent(wire, f"Idempotency-Key: {new_key()}", *lines)
    assert (answer.status, asker.running.effects() - before) in ((201, 1), (400, 0), (431, 0))
    assert resident(asker.running) - memory < 4 * MIB


@pytest.mark.parametrize("length", [256, 10_000, 60_000])
def test_a_key_that_is_too_long_is_refused_and_nothing_runs(asker: Asker, wire: Wire, length: int) -> None:
    before = asker.running.effects()
    assert sent(wire, f"Idempotency-Key: {'k' * length}").status in (400, 431)
    assert asker.running.effects() == before


def test_fifty_megabytes_in_chunks_are_never_held(asker: Asker, wire: Wire) -> None:
    asker.ask("/echo", new_key(), body=b"x", content_type="text/plain")
    memory, before = resident(asker.running), asker.running.effects()
    line = f"Idempotency-Key: {new_key()}"
    wire.send(head("POST", "/echo", "Content-Type: text/plain", line, "Transfer-Encoding: chunked"))
    most = max(itertools.chain([memory], (resident(asker.running) for _ in flood(wire))))
    assert said(wire) in (413, None)
    assert most - memory < 20 * MIB
    assert asker.running.effects() == before
    assert asker.ask("/echo", new_key(), body=b"x", content_type="text/plain").status_code == 200


def flood(wire: Wire) -> Iterator[None]:
    """Fifty megabytes, or as many as the server takes; gives way after each."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    try:
        for _ in range(50):
            wire.send(chunk * 16)
            yield
        wire.send(b"0\r\n\r\n")
    except OSError:
        return  # it has closed the connection


def said(wire: Wire) -> int | None:
    """The status that the server told, if it still could."""
    try:
        return wire.answer().status
    except (OSError, IndexError):
        return None


BOMBS = {
    "arrays 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "objects 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "5,000 digits": b"1" * 5000,
    "5,000 digits behind the point": b"0." + b"1" * 5000,
    "an exponent of 5,000 digits": b"1E" + b"9" * 5000,
}


def test_a_member_that_appears_twice_is_named(asker: Asker) -> None:
    before = asker.running.effects()
    answer = asker.ask("/orders", new_key(), body=b'{"item": "tea", "amount": 1, "amount": 2}')
    problem = answer.json()
    assert (answer.status_code, problem["title"]) == (400, "Ambiguous JSON")
    assert problem["detail"].startswith("The body is ambiguous: the member 'amount' appears twice; nothing ran.")
    assert asker.running.effects() == before


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_json_that_would_burn_is_400_and_nothing_runs(asker: Asker, body: bytes) -> None:
    before = asker.running.effects()
    answer = asker.ask("/orders", new_key(), body=body)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:semel:problem:body-ambiguous")
    assert asker.running.effects() == before


@pytest.mark.parametrize(
    "settings", [{}, {"/orders": {"ignore_fields": ["items.seen"]}}], ids=["plain", "without members"]
)
@pytest.mark.parametrize("name", ["starlette-uvicorn", "flask-gunicorn"])
def test_however_deep_json_is_it_is_compared_or_refused(start: Start, name: str, settings: dict[str, Any]) -> None:
    asker = Asker(start(name, settings=settings))
    bodies = [b"[" * depth + b"]" * depth for depth in (10, 60, 70, 200, 300, 450, 600, 800, 900, 970, 1000, 1100)]
    statuses = [asker.ask("/orders", new_key(), body=body).status_code for body in bodies]
    asker.threads.shutdown()
    assert set(statuses) == {201, 400}
    assert asker.running.effects() == statuses.count(201)


def test_numbers_that_floats_cannot_hold_are_told_apart(asker: Asker) -> None:
    key = new_key()
    first, again, other = (asker.ask("/orders", key, body=body) for body in (b"1E400", b"10E399", b"2E400"))
    assert (first.status_code, other.status_code) == (201, 422)
    assert again.headers["idempotency-replayed"] == "true"
