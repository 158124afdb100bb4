"""How long a service remembers, by its policy document."""

import json
from datetime import timedelta
from urllib.parse import quote

import pytest

from semel.client.retention import address_of, is_old, retention_in
from semel.core.policy import Policy
from semel.http.policy_document import document as described
from semel.http.route import Route, Routes


def document(*routes: tuple[str, float], methods: tuple[str, ...] = ("POST",)) -> bytes:
    listed = [{"path": path, "methods": methods, "retentionSeconds": seconds, "more": 1} for path, seconds in routes]
    return json.dumps({"version": 1, "routes": listed}).encode()


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/pay", "/pay", True),
        ("/pay", "/pay/1", False),
        ("/pay/*", "/pay/1", True),
        ("/pay/*", "/pay/1/2", False),
        ("/pay/*", "/pay/", False),
        ("/pay/*/refund", "/pay/1/refund", True),
        ("/**", "/pay/1/2", True),
        ("/pay/**", "/pay/1/2", True),
        ("/pay/**", "/refund", False),
        ("/p.y", "/pay", False),
        ("/**", "/", True),
    ],
)
def test_a_route_is_found_by_its_pattern(pattern: str, path: str, *, fits: bool) -> None:
    found = retention_in(document((pattern, 60)), "POST", f"https://api.example{path}?q=/else")
    assert found == (60 if fits else None)


def test_the_first_route_that_fits_counts() -> None:
    assert retention_in(document(("/pay", 60), ("/**", 5)), "POST", "https://api.example/pay") == 60


def test_another_method_is_another_route() -> None:
    assert retention_in(document(("/pay", 60)), "PUT", "https://api.example/pay") is None


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"<html>", b"[]", b"{}", b'{"routes": 7}', b'{"routes": [{"path": "/pay"}]}', b"\xff"],
)
def test_what_cannot_be_read_is_no_answer(rubbish: bytes) -> None:
    assert retention_in(rubbish, "POST", "https://api.example/pay") is None


def test_the_document_lies_at_a_known_place_of_the_same_origin() -> None:
    found = address_of("https://api.example:8443/pay/1?q=1")
    assert found == "https://api.example:8443/.well-known/idempotency-policy"


@pytest.mark.parametrize(
    ("age", "retention", "old"),
    [
        (0, 60, False),
        (58.7, 60, False),
        (58.8, 60, True),
        (98, 100, True),
        (97, 100, False),
        (0, 1, True),
        (-5, 60, False),
    ],
)
def test_a_key_is_old_a_little_before_it_is_forgotten(age: float, retention: float, *, old: bool) -> None:
    assert is_old(age, retention) is old


@pytest.mark.parametrize("pattern", ["/", "/**", "/pay", "/pay/", "/pay/*", "/pay/*/refund", "/pay/**", "/a b"])
@pytest.mark.parametrize(
    "path", ["/", "/pay", "/pay/", "//pay", "/pay/1", "/pay/1/", "/pay//1", "/pay/1/refund", "/pay/a b", "/a b", "/x"]
)
def test_a_document_of_semel_itself_is_read_as_it_is_meant(pattern: str, path: str) -> None:
    policy = Policy(keep_for=timedelta(minutes=7))
    routes = Routes.of([Route(pattern)], {}, policy, None)
    found = retention_in(described(routes).body, "POST", f"https://api.example{quote(path)}?q=1")
    assert found == (420 if routes.find("POST", path) else None)
