"""No spelling of a request leads around its key: on every site and over real sockets, one table for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.http.asking import Asker, new_key
from tests.http.sites import MORE_SITES, SITES, Running
from tests.http.wire import Answered, Wire, head

pytestmark = [pytest.mark.slow, pytest.mark.covering]

BODY = b'{"amount": 10}'
JSON = "application/json"

CONTROLS = (
    "/required%0A",
    "/required%0D%0A",
    "/required%0A%0A",
    "/%0Arequired",
    "/required%00",
    "/required%09",
    "/required%1F",
    "/required%7F",
    "/required%C2%85",
    "//required%0A",
    "/required/%0A",
)
SPELLINGS = (
    *(("POST", target) for target in CONTROLS),
    ("POST", "//required"),
    ("POST", "///required"),
    ("POST", "/required/"),
    ("POST", "/required//"),
    ("POST", "/%72equired"),
    ("POST", "%2Frequired"),
    ("POST", "/%2Frequired"),
    ("POST", "/required%2F"),
    ("POST", "/./required"),
    ("POST", "/orders/../required"),
    ("POST", "/required;a=1"),
    ("POST", "/required%20"),
    ("POST", "/required?"),
    ("POST", "/required%3F"),
    ("POST", "/required#a"),
    ("POST", "/REQUIRED"),
    ("POST", "http://site/required"),
    ("POST", "http://site//required"),
    ("post", "/required"),
    ("Post", "/required"),
    ("pOST", "//required"),
)


@pytest.fixture(scope="session", params=[*SITES, *MORE_SITES])
def site_name(request: pytest.FixtureRequest) -> str:
    """Every application on every server, those that read the first line otherwise too."""
    return str(request.param)


@pytest.fixture(scope="session", params=["sqlite"])
def site_store(request: pytest.FixtureRequest) -> str:
    """What a request is spelt like is read before any store is asked."""
    return str(request.param)


@pytest.fixture
def send(site: Running) -> Iterator[Callable[..., Answered]]:
    """Sends one request as it stands, each on a connection of its own."""
    opened: list[Wire] = []

    def sent(method: str, target: str, *lines: str, body: bytes = BODY, content_type: str = JSON) -> Answered:
        opened.append(Wire(site.port))
        opened[-1].send(head(method, target, f"Content-Type: {content_type}", *lines, length=len(body)) + body)
        return opened[-1].answer()

    yield sent
    for wire in opened:
        wire.close()


Send = Callable[..., Answered]


@pytest.mark.parametrize(("method", "target"), SPELLINGS)
def test_no_spelling_leads_past_a_key_that_is_required(site: Running, send: Send, method: str, target: str) -> None:
    before = site.effects()
    answer = send(method, target)
    assert site.effects() == before, f"{method} {target} ran without a key, and was answered {answer.status}"
    assert 300 <= answer.status < 500, f"{method} {target} was answered {answer.status}: {site.log[-2000:]}"


@pytest.mark.parametrize(("method", "target"), SPELLINGS)
def test_one_key_runs_once_however_the_request_is_spelt(site: Running, send: Send, method: str, target: str) -> None:
    key, before = f"Idempotency-Key: {new_key()}", site.effects()
    statuses = [send("POST", "/required", key).status, send(method, target, key).status]
    assert site.effects() == before + 1, f"{method} {target} ran once more: {statuses}"
    assert statuses[1] < 500, f"{method} {target} was answered {statuses[1]}: {site.log[-2000:]}"


@pytest.mark.parametrize("target", CONTROLS)
def test_a_control_character_in_the_path_is_400(site: Running, send: Send, target: str) -> None:
    answer = send("POST", target, f"Idempotency-Key: {new_key()}")
    # Where keys are claimed at views, semel is asked only for what the framework has found a view for.
    at_views = site.site.app in ("fastapi_app", "drf_app")
    assert answer.status == 400 or (at_views and answer.status == 404), f"{target} was answered {answer.status}"


@pytest.mark.parametrize("key", [(), ("Idempotency-Key: a-key",)], ids=["without a key", "with a key"])
def test_a_line_feed_at_the_end_that_a_framework_overlooks_is_told(
    sites: Callable[[str, str], Running], key: tuple[str, ...]
) -> None:
    wire = Wire(sites("fastapi-uvicorn", "sqlite").port)
    wire.send(head("POST", "/required%0A", *key, length=0))
    answer = wire.answer()
    wire.close()
    assert answer.status == 400
    assert b"urn:semel:problem:path-malformed" in answer.body


PART = '--X\r\nContent-Disposition: form-data; name="a"\r\n\r\n{}\r\n'
FORM = PART.format(1) + PART.format(2) + "--X--\r\n"
KIND = "multipart/form-data; boundary=X"
FORMS = {
    "text before the first part": ("for old readers\r\n" + FORM, KIND),
    "a part before the first part": (PART.format(0).replace("--X", "--X ") + FORM, KIND),
    "a part behind the last part": (FORM + FORM, KIND),
    "delimiters with line feeds alone": (FORM.replace("1\r\n--X", "1\n--X"), KIND),
    "another boundary behind the first": (FORM, f"{KIND}; boundary=Y"),
    "another boundary before the first": (FORM, "multipart/form-data; boundary=Y; boundary=X"),
    "another charset": (FORM, f"{KIND}; charset=utf-7"),
}
BODIES = {
    **{name: (FORM, KIND, body, kind) for name, (body, kind) in FORMS.items()},
    "JSON in another charset": ('{"a": "+AGE-"}', JSON, '{"a": "+AGE-"}', f"{JSON}; charset=utf-7"),
    "JSON with two charsets": ('{"a": 1}', JSON, '{"a": 1}', f"{JSON}; charset=utf-8; charset=utf-7"),
    "fields in another charset": (
        "a=1",
        "application/x-www-form-urlencoded",
        "a=1",
        "application/x-www-form-urlencoded; charset=utf-7",
    ),
}


@pytest.mark.parametrize("case", BODIES)
def test_what_a_framework_may_read_otherwise_is_another_request(site: Running, send: Send, case: str) -> None:
    first, first_type, second, second_type = BODIES[case]
    key, before = f"Idempotency-Key: {new_key()}", site.effects()
    one = send("POST", "/orders", key, body=first.encode(), content_type=first_type)
    other = send("POST", "/orders", key, body=second.encode(), content_type=second_type)
    assert (one.status, other.status) == (201, 422), f"{case}: the second was taken for the first"
    assert site.effects() == before + 1


def test_a_second_content_type_is_another_request(site: Running, send: Send) -> None:
    key = f"Idempotency-Key: {new_key()}"
    statuses = send("POST", "/orders", key).status, send("POST", "/orders", key, "Content-Type: text/plain").status
    assert statuses[0] == 201
    assert statuses[1] in (400, 422), f"answered {statuses[1]}"


@pytest.mark.parametrize("content_type", [JSON, "text/plain", KIND])
@pytest.mark.parametrize("codings", [("identity", "gzip"), ("gzip", "br"), ("gzip", "gzip, gzip")], ids=" and ".join)
def test_bytes_that_are_said_to_be_packed_in_another_way_are_another_request(
    site: Running, send: Send, codings: tuple[str, str], content_type: str
) -> None:
    key, before = f"Idempotency-Key: {new_key()}", site.effects()
    told = [send("POST", "/orders", key, f"Content-Encoding: {how}", content_type=content_type) for how in codings]
    assert [answer.status for answer in told] == [201, 422], "how the bytes are packed was not compared"
    assert site.effects() == before + 1


def test_a_content_encoding_that_packs_nothing_is_none(site: Running, send: Send) -> None:
    key = f"Idempotency-Key: {new_key()}"
    told = [send("POST", "/orders", key, *lines) for lines in ((), ("Content-Encoding: Identity",))]
    assert [answer.status for answer in told] == [201, 201]


def test_a_key_too_long_to_be_shown_with_its_path_keeps_its_path(site: Running, send: Send) -> None:
    key, before = f"Idempotency-Key: {new_key():x<255}", site.effects()
    told = [send("POST", path, key) for path in ("/orders", "/derived", "/orders", "/derived")]
    assert [answer.status for answer in told] == [201, 200, 201, 200], "one path was answered with another's response"
    assert site.effects() == before + 2


@pytest.mark.parametrize("others", [("/%E9", "/%5Cxe9"), ("/%E9", "/%C3%A9")], ids=" ".join)
def test_paths_of_other_bytes_are_not_one_path(site: Running, send: Send, others: tuple[str, str]) -> None:
    key = f"Idempotency-Key: {new_key()}"
    answers = [send("POST", target, key) for target in others]
    assert [answer.header("idempotency-replayed") for answer in answers] == [[], []], "one was taken for the other"
    assert {answer.status for answer in answers} <= {400, 404}, f"answered {[one.status for one in answers]}"


MARKS = "a" + "\u0301\u0316" * 100_000


@pytest.mark.parametrize(
    "body", [f'"{MARKS}"', f'{{"{MARKS}": 1}}', '"' + "\\u0301\\u0316" * 40_000 + '"'], ids=["text", "name", "escaped"]
)
def test_more_combining_characters_than_any_language_has_are_refused(site: Running, send: Send, body: str) -> None:
    before = site.effects()
    answer = send("POST", "/orders", f"Idempotency-Key: {new_key()}", body=body.encode())
    assert (answer.status, site.effects()) == (400, before)
    assert b"urn:semel:problem:body-ambiguous" in answer.body
    assert b"more than 30 combining characters in a row; nothing ran" in answer.body


def test_a_large_exponent_is_compared_by_value(asker: Asker) -> None:
    key = new_key()
    bodies = (b"[" + number + b"]" for number in (b"1e50", b"10e49", b"1" + b"0" * 50, b"1e51"))
    told = [asker.ask("/orders", key, body=body) for body in bodies]
    assert [answer.status_code for answer in told] == [201, 201, 201, 422]


@pytest.mark.parametrize(("path", "expected"), [("/orders", [201, 201]), ("/derived", [200, 422])])
def test_the_host_is_compared_where_a_route_says_so(asker: Asker, path: str, expected: list[int]) -> None:
    key = new_key()
    told = [asker.ask(path, key, headers=(("Host", host),)) for host in ("a.example", "b.example")]
    assert [answer.status_code for answer in told] == expected
