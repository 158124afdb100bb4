"""Requests and answers as values: what is kept of them, and what makes two of them the same."""

from typing import Any

import pytest

from semel.client.models import INTENT, Outgoing, Reply, outgoing


def made(**changes: Any) -> Outgoing:
    given: dict[str, Any] = {
        "method": "post",
        "url": "https://user:secret@api.example:8443/pay?q=1#part",
        "headers": [("Authorization", "Bearer s"), ("Content-Type", "application/json"), (INTENT.upper(), "buy")],
        "body": b"{}",
        "header": "Idempotency-Key",
    }
    return outgoing(None, **(given | changes))


def form(boundary: str, field: str = "value", kind: str = "multipart/form-data") -> Outgoing:
    body = f"--{boundary}\r\nContent-Disposition: form-data; name=a\r\n\r\n{field}\r\n--{boundary}--\r\n"
    return made(headers=[("Content-Type", f"{kind}; boundary={boundary}")], body=body.encode())


def test_user_password_and_fragment_are_dropped_from_the_address() -> None:
    assert made().url == "https://api.example:8443/pay?q=1"


def test_the_place_is_without_the_query() -> None:
    assert made().place == "POST https://api.example:8443/pay"


def test_the_intent_is_read_and_taken_out() -> None:
    asked = made()
    assert asked.intent == "buy"
    assert INTENT.lower() not in {name.lower() for name, _ in asked.headers}


def test_no_credentials_are_in_what_is_kept() -> None:
    secrets = ["Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key", "X-CSRF-Token", "Forwarded"]
    asked = made(headers=[*((name, "secret") for name in secrets), ("Content-Type", "text/plain")])
    saved = asked.saved(1.0, frozenset(), body=True)
    assert "secret" not in repr(saved)
    assert saved.headers == (("Content-Type", "text/plain"),)


def test_more_headers_are_kept_by_name() -> None:
    asked = made(headers=[("X-Tenant", "t"), ("X-Other", "o")])
    assert asked.saved(1.0, frozenset({"x-tenant"}), body=True).headers == (("X-Tenant", "t"),)


def test_a_key_that_the_caller_gave_is_kept() -> None:
    asked = made(headers=[("idempotency-key", "mine")])
    assert asked.given_key == "mine"
    assert asked.saved(1.0, frozenset(), body=True).headers == (("idempotency-key", "mine"),)


def test_without_its_body_a_request_keeps_when_it_was_sent() -> None:
    saved = made().saved(7.0, frozenset(), body=False)
    assert (saved.body, saved.first_sent) == (None, 7.0)


def test_a_new_boundary_is_the_same_request() -> None:
    assert form("abc123").fingerprint == form("zzz999").fingerprint


def test_other_parts_are_another_request() -> None:
    assert form("abc123").fingerprint != form("abc123", "other").fingerprint


def test_a_boundary_in_quotes_is_the_same_request() -> None:
    quoted = made(headers=[("Content-Type", 'multipart/form-data; boundary="abc"')], body=b"--abc--")
    plain = made(headers=[("Content-Type", "multipart/form-data; boundary=xyz")], body=b"--xyz--")
    assert quoted.fingerprint == plain.fingerprint


def test_text_that_looks_like_a_boundary_counts() -> None:
    kind = [("Content-Type", "multipart/form-data; boundary=1")]
    assert made(headers=kind, body=b"pay 1").fingerprint != made(headers=kind, body=b"pay 11").fingerprint


def test_only_a_form_has_a_boundary() -> None:
    kind = [("Content-Type", "application/json; boundary=1")]
    assert made(headers=kind, body=b"--1").fingerprint != made(headers=kind, body=b"--").fingerprint


@pytest.mark.parametrize(
    "change", [{"method": "PUT"}, {"url": "https://api.example:8443/pay?q=2"}, {"body": b"[]"}, {"headers": []}]
)
def test_method_address_type_and_body_make_the_fingerprint(change: dict[str, Any]) -> None:
    assert made(**change).fingerprint != made().fingerprint


def test_credentials_do_not_make_the_fingerprint() -> None:
    kind = ("Content-Type", "application/json")
    assert made(headers=[kind]).fingerprint == made(headers=[kind, ("Authorization", "other")]).fingerprint


def test_the_key_header_may_depend_on_method_and_address() -> None:
    asked = made(header=lambda method, url: f"{method}-{url[-1]}", headers=[("post-1", "mine")])
    assert (asked.key_header, asked.given_key) == ("post-1", "mine")


def test_what_is_kept_of_an_answer_is_without_session_and_connection() -> None:
    headers = tuple((name, "v") for name in ("Set-Cookie", "Connection", "Transfer-Encoding", "ETag", "X-A", "X-A"))
    kept = Reply(201, headers, b"x").to_keep()
    assert kept == Reply(201, (("ETag", "v"), ("X-A", "v"), ("X-A", "v")), b"x")
