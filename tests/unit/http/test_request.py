"""A request as rules and the fingerprint see it."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.http import Route
from semel.http.body import joined
from semel.http.exchange import fingerprint_of, identity_of
from semel.http.request import Headers, RawHeaders, Request, State

NAMES = st.sampled_from(["content-type", "Content-Type", "origin", "ORIGIN", "x-1", "X-1", "1", ""])
LINES = st.lists(st.tuples(NAMES, st.text(st.characters(max_codepoint=255), max_size=4)), max_size=6)


def raw(lines: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines]


@given(LINES, NAMES)
def test_headers_as_bytes_are_found_like_headers_as_text(lines: list[tuple[str, str]], name: str) -> None:
    found, wanted = RawHeaders(raw(lines)), Headers(lines)
    assert (found.all(name), found.get(name), name in found) == (wanted.all(name), wanted.get(name), name in wanted)


def test_every_line_of_a_repeated_header_is_found() -> None:
    assert RawHeaders([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]).all("A") == ["1", "3"]


def test_a_header_in_capitals_is_found_as_bytes() -> None:
    assert RawHeaders([(b"Idempotency-Key", b"k")]).all("idempotency-key") == ["k"]


@pytest.mark.parametrize("path", ["/pay", "/pay/é", "/pay/\ud83d", "/pay/" + "0" * 300])
def test_a_fingerprint_is_made_of_lengths_and_bytes(path: str) -> None:
    asked = Request("POST", path, "a=1", Headers([("Content-Type", "Text/Plain; a=b")]), State({}), None, b"\xff")
    parts = (b"1", b"POST", path.encode("utf-8", "surrogatepass"), b"a=1", b'text/plain;a="b"', b"", b"raw:\xff")
    assert fingerprint_of(asked, Route("/**")) == sha256(joined(parts)).digest()


def asked_for(path: str = "/orders/1", **headers: str) -> Request:
    lines = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Request("POST", path, "", Headers(lines), State({}), None, b"1")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=X"])
def test_how_a_body_is_packed_counts(kind: str) -> None:
    codings = ("identity", "gzip", "br", "gzip, br")
    found = {fingerprint_of(asked_for(content_type=kind, content_encoding=how), Route("/**")) for how in codings}
    assert len(found) == len(codings), "two ways of packing are one"


@pytest.mark.parametrize("key", ["k" * 10, "k" * 255, ("a", "k" * 255), "\xe9"], ids=["short", "long", "parts", "text"])
def test_however_long_a_key_is_its_path_belongs_to_it(key: object) -> None:
    paths = ("/orders/1", "/orders/2", "/orders/\xe9", "/orders/\udce9", "/orders/" + "1" * 300)
    found = {identity_of(asked_for(path), Route("/orders/*"), key) for path in paths}
    assert len(found) == len(paths), "two paths share a key"
