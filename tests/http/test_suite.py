"""The same request gets the same verdict everywhere: every application, on its server, over each store."""

from __future__ import annotations

import json

import pytest

from tests.http.asking import ALICE, BOB, Asker, new_key
from tests.http.shop import LARGE
from tests.http.sites import Running

pytestmark = [pytest.mark.slow, pytest.mark.covering]

REPLAYED = "idempotency-replayed"


def test_a_request_runs_once_and_is_replayed(asker: Asker) -> None:
    key = new_key()
    assert asker.effects_of(("/orders", key), ("/orders", key), ("/orders", key)) == 1


def test_the_first_answer_is_not_marked(asker: Asker) -> None:
    assert REPLAYED not in asker.ask("/orders", new_key()).headers


def test_a_replay_is_marked_and_says_how_long_it_is_kept(asker: Asker) -> None:
    key = new_key()
    asker.ask("/orders", key)
    again = asker.ask("/orders", key)
    assert again.headers[REPLAYED] == "true"
    assert again.headers["idempotency-expires"].endswith("GMT")
    assert again.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/orders", "/binary", "/gzip", "/empty", "/null", "/headers", "/stream"])
def test_a_replay_has_the_same_status_and_bytes(asker: Asker, path: str) -> None:
    key = new_key()
    with asker.running.client.stream("POST", path, headers=_head(key)) as response:
        first = response.status_code, b"".join(response.iter_raw())
    with asker.running.client.stream("POST", path, headers=_head(key)) as response:
        assert response.headers[REPLAYED] == "true"
        assert (response.status_code, b"".join(response.iter_raw())) == first


def _head(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key, "Authorization": ALICE}


def test_a_replay_carries_location_and_etag(asker: Asker) -> None:
    key = new_key()
    first, again = asker.ask("/orders", key), asker.ask("/orders", key)
    assert first.status_code == again.status_code == 201
    for name in ("location", "etag", "content-type"):
        assert again.headers[name] == first.headers[name]


def test_a_replay_carries_repeated_headers_in_order(asker: Asker) -> None:
    key = new_key()
    first, again = asker.ask("/headers", key), asker.ask("/headers", key)
    assert again.headers["link"] == first.headers["link"] == "</a>; rel=first, </b>; rel=second"


@pytest.mark.parametrize("name", ["set-cookie", "x-trace"])
def test_a_replay_carries_nothing_that_belongs_to_one_moment(asker: Asker, name: str) -> None:
    key = new_key()
    assert name in asker.ask("/headers", key).headers
    assert name not in asker.ask("/headers", key).headers


def test_quoted_and_bare_keys_are_one(asker: Asker) -> None:
    key = new_key()
    assert asker.effects_of(("/orders", key), ("/orders", f'"{key}"'), ("/orders", f'"{key}";v=1')) == 1


@pytest.mark.parametrize(
    "value",
    ['"a", "b"', "a,b", '"a\\b"', '"open', "", '""', "x" * 256, "a b", "a;b", "käy"],
    ids=["list", "bare list", "bad escape", "open", "empty", "empty string", "long", "space", "parameter", "non-ascii"],
)
def test_a_key_that_cannot_be_read_is_400_and_nothing_runs(asker: Asker, value: str) -> None:
    before = asker.running.effects()
    answer = asker.ask("/orders", headers=(("Idempotency-Key", value.encode()),))
    assert answer.status_code == 400
    assert asker.running.effects() == before


def test_a_key_of_255_characters_is_a_key(asker: Asker) -> None:
    assert asker.ask("/orders", new_key().ljust(255, "x")).status_code == 201


def test_two_header_lines_are_400_and_nothing_runs(asker: Asker) -> None:
    before, key = asker.running.effects(), new_key()
    assert asker.ask("/orders", key, headers=(("Idempotency-Key", key),)).status_code == 400
    assert asker.running.effects() == before


def test_a_missing_key_is_400_where_it_is_required(asker: Asker) -> None:
    answer = asker.ask("/required")
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:semel:problem:key-missing"


def test_without_a_key_every_request_runs(asker: Asker) -> None:
    assert asker.effects_of(("/orders", None), ("/orders", None)) == 2


def test_another_body_under_the_same_key_is_422(asker: Asker) -> None:
    key, before = new_key(), asker.running.effects()
    asker.ask("/orders", key)
    answer = asker.ask("/orders", key, body=b'{"amount": 11}')
    assert answer.status_code == 422
    assert asker.running.effects() == before + 1


@pytest.mark.parametrize(
    ("one", "other"),
    [('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'), ('{"a":1}', '{"a":1.0}'), ('{"a":100}', '{"a":1e2}')],
)
def test_the_same_json_spelt_otherwise_is_the_same_request(asker: Asker, one: str, other: str) -> None:
    key = new_key()
    asker.ask("/orders", key, body=one.encode())
    assert asker.ask("/orders", key, body=other.encode()).headers[REPLAYED] == "true"


def test_numbers_that_floats_cannot_tell_apart_are_told_apart(asker: Asker) -> None:
    key = new_key()
    asker.ask("/orders", key, body=b'{"a": 0.1}')
    assert asker.ask("/orders", key, body=b'{"a": 0.10000000000000001}').status_code == 422


def test_json_that_names_a_member_twice_is_400_and_nothing_runs(asker: Asker) -> None:
    before = asker.running.effects()
    assert asker.ask("/orders", new_key(), body=b'{"a": 1, "a": 2}').status_code == 400
    assert asker.running.effects() == before


def test_another_query_is_another_request(asker: Asker) -> None:
    key = new_key()
    asker.ask("/status?code=200", key)
    assert asker.ask("/status?code=201", key).status_code == 422


def test_the_same_key_on_another_path_is_another_operation(asker: Asker) -> None:
    key = new_key()
    assert asker.effects_of(("/orders", key), ("/null", key)) == 2


def test_the_same_key_with_another_method_is_another_operation(asker: Asker) -> None:
    key, before = new_key(), asker.running.effects()
    asker.ask("/orders", key)
    asker.ask("/orders", key, method="PATCH")
    assert asker.running.effects() == before + 2


def test_the_same_key_of_another_caller_is_another_operation(asker: Asker) -> None:
    key, before = new_key(), asker.running.effects()
    first = asker.ask("/orders", key)
    asker.caller = BOB
    second = asker.ask("/orders", key)
    assert REPLAYED not in second.headers
    assert first.content != second.content
    assert asker.running.effects() == before + 2


def test_who_has_lost_the_right_gets_403_and_no_replay(asker: Asker) -> None:
    key = new_key()
    asker.ask("/orders", key)
    asker.running.revoke(["alice"])
    answer = asker.ask("/orders", key)
    assert answer.status_code == 403
    assert REPLAYED not in answer.headers


def test_nobody_is_401_and_nothing_runs(asker: Asker) -> None:
    before = asker.running.effects()
    asker.caller = None
    assert asker.ask("/orders", new_key()).status_code == 401
    assert asker.running.effects() == before


@pytest.mark.parametrize("code", [400, 401, 403, 422, 429, 503])
def test_an_answer_that_says_nothing_happened_is_not_kept(asker: Asker, code: int) -> None:
    key = new_key()
    path = f"/status?code={code}"
    assert asker.effects_of((path, key), (path, key)) == 2


def test_a_corrected_request_takes_a_new_key(asker: Asker) -> None:
    """The key stands for the request it first came with, also where that was refused."""
    key = new_key()
    asker.ask("/status?code=422", key)
    assert asker.ask("/status?code=422", key, body=b"{}").json()["type"] == "urn:semel:problem:key-reused"


@pytest.mark.parametrize("code", [200, 202, 302, 402, 404, 409, 410])
def test_an_answer_is_kept(asker: Asker, code: int) -> None:
    key = new_key()
    path = f"/status?code={code}"
    assert asker.effects_of((path, key), (path, key)) == 1
    assert asker.ask(path, key).status_code == code


def test_a_server_error_reaches_the_client_and_runs_again(asker: Asker) -> None:
    key = new_key()
    assert asker.effects_of(("/status?code=500", key), ("/status?code=500", key)) == 2
    assert asker.ask("/status?code=500", key).text.startswith("effect")


@pytest.mark.parametrize(("error", "times"), [("retryable", 2), ("final", 1), ("other", 2)])
def test_an_exception_follows_the_policy_by_its_class(asker: Asker, error: str, times: int) -> None:
    key, before = new_key(), asker.running.effects()
    path = f"/raises?error={error}"
    assert [asker.ask(path, key).status_code for _ in range(2)] == [500, 500]
    assert asker.running.effects() == before + times


def test_a_large_response_reaches_the_client_whole_and_leaves_a_tombstone(asker: Asker) -> None:
    key, before = new_key(), asker.running.effects()
    assert asker.ask("/large", key).content == LARGE
    again = asker.ask("/large", key)
    assert (again.status_code, again.json()["type"]) == (409, "urn:semel:problem:response-not-kept")
    assert asker.running.effects() == before + 1


def test_of_a_secret_nothing_is_kept_but_that_it_was_given(asker: Asker) -> None:
    key = new_key()
    assert asker.ask("/secret", key).status_code == 201
    assert asker.ask("/secret", key).json()["type"] == "urn:semel:problem:response-not-kept"


def test_the_body_reaches_the_application_as_it_came(asker: Asker) -> None:
    body = bytes(range(256)) * 100
    assert asker.ask("/echo", new_key(), body=body, content_type="application/octet-stream").content == body


def test_a_chunked_body_is_a_body(asker: Asker) -> None:
    headers = {**_head(new_key()), "Content-Type": "application/octet-stream"}
    answer = asker.running.client.post("/echo", content=iter([b"one", b"two"]), headers=headers)
    assert answer.content == b"onetwo"


def test_derive_gives_the_same_key_for_the_next_service(asker: Asker) -> None:
    one, other = new_key(), new_key()
    assert len(asker.ask("/derived", one).text) > 20
    assert asker.ask("/derived", one).text != asker.ask("/derived", other).text


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_method_that_changes_nothing_passes_untouched(asker: Asker, method: str) -> None:
    with_key = asker.ask("/effects", '"not a key', method=method, body=b"")
    without = asker.ask("/effects", method=method, body=b"")
    assert with_key.status_code == without.status_code
    assert with_key.content == without.content


def test_put_and_delete_pass_unless_chosen(asker: Asker) -> None:
    key, before = new_key(), asker.running.effects()
    for method in ("PUT", "PUT", "DELETE", "DELETE"):
        asker.ask("/orders", key, method=method)
    assert asker.running.effects() == before + 4


def test_a_problem_is_problem_json_with_a_link_to_the_policy(asker: Asker) -> None:
    answer = asker.ask("/required")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["content-language"] == "en"
    assert set(answer.json()) == {"type", "title", "status", "detail"}
    assert answer.headers["link"] == '</.well-known/idempotency-policy>; rel="describedby"'


def test_the_policy_is_published(asker: Asker) -> None:
    answer = asker.running.client.get("/.well-known/idempotency-policy", headers={"Authorization": ALICE})
    assert answer.status_code == 200
    required = {route["path"]: route["required"] for route in answer.json()["routes"]}
    assert any(known for path, known in required.items() if "required" in path)


def test_a_duplicate_waits_for_the_first_and_gets_its_answer(asker: Asker) -> None:
    key, before = new_key(), asker.running.effects()
    first = asker.later("/slow", key)
    visitor = asker.running.gate.visitor()
    others = [asker.later("/slow", key) for _ in range(5)]
    visitor.go()
    answers = [first.result(), *(other.result() for other in others)]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert asker.running.effects() == before + 1


def test_another_body_is_422_at_once_while_the_first_runs(asker: Asker) -> None:
    key = new_key()
    first = asker.later("/slow", key)
    visitor = asker.running.gate.visitor()
    assert asker.ask("/slow", key, body=b'{"amount": 11}').status_code == 422
    visitor.go()
    assert first.result().status_code == 201


def test_events_flow_while_the_handler_runs(asker: Asker) -> None:
    with asker.running.client.stream("POST", "/events", headers=_head(new_key())) as response:
        chunks = response.iter_raw()
        seen = next(chunks)
        while b"two" not in seen:
            seen += next(chunks)
        asker.running.gate.visitor().go()
        assert seen + b"".join(chunks) == b"data: one\n\ndata: two\n\ndata: three\n\n"


def test_events_flow_without_a_key(asker: Asker) -> None:
    with asker.running.client.stream("GET", "/events", headers={"Authorization": ALICE}) as response:
        chunks = response.iter_raw()
        seen = next(chunks)
        asker.running.gate.visitor().go()
        assert seen + b"".join(chunks) == b"data: one\n\ndata: two\n\ndata: three\n\n"


def test_what_is_refused_says_that_nothing_ran(asker: Asker) -> None:
    assert "nothing ran" in json.loads(asker.ask("/required").content)["detail"]


def test_the_log_holds_no_key(site: Running, asker: Asker) -> None:
    key = new_key()
    asker.ask("/orders", key)
    asker.ask("/orders", f'"{key}')
    assert key not in site.log
