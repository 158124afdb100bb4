"""Bodies in other words."""

from __future__ import annotations

import json

import pytest

from semel_lab.conform import json_variants

BODIES = [
    b'{"amount": 1250, "currency": "EUR"}',
    b'{"a": {"b": [1, {"c": "x, y"}]}, "d": "\\"}", "e": null}',
    b'{ "only" : true }',
    b'{"text": "12", "deep": {"n": -3.5e2}}',
]


@pytest.mark.parametrize("body", BODIES)
def test_more_white_space_changes_no_value(body: bytes) -> None:
    assert json.loads(json_variants.spaced(body)) == json.loads(body)
    assert json_variants.spaced(body) != body


@pytest.mark.parametrize("body", [BODIES[0], BODIES[1], BODIES[3]])
def test_another_order_changes_no_value(body: bytes) -> None:
    other = json_variants.reordered(body)
    assert other is not None
    assert json.loads(other) == json.loads(body)
    assert list(json.loads(other)) == list(reversed(json.loads(body)))


@pytest.mark.parametrize("body", [b"{}", b'{"one": 1}', b"[1, 2]", b"7"])
def test_what_has_no_two_members_has_no_order(body: bytes) -> None:
    assert json_variants.reordered(body) is None


@pytest.mark.parametrize("body", BODIES)
def test_another_spelling_of_a_number_changes_no_value(body: bytes) -> None:
    for _, other in json_variants.respelled(body):
        assert other != body
        assert json.loads(other) == json.loads(body)


@pytest.mark.parametrize(
    ("number", "spellings"),
    [
        ("100", ["100.0 for 100", "1000e-1 for 100"]),
        ("1e2", ["1.0e2 for 1e2", "1000e-1 for 1e2"]),
        ("0.5", ["0.50 for 0.5", "0.5e0 for 0.5"]),
        ("12345678901234567890123456789012345", None),
    ],
)
def test_numbers_are_respelled_as_letters(number: str, spellings: list[str] | None) -> None:
    body = f'{{"n": {number}}}'.encode()
    told = [what for what, _ in json_variants.respelled(body)]
    assert told == (spellings or [f"{number}.0 for {number}", f"{number}0e-1 for {number}"])


def test_a_number_in_a_string_is_no_number() -> None:
    assert json_variants.numbers(b'{"text": "12 and \\" 13", "1": true}') == []


@pytest.mark.parametrize("body", [*BODIES, b"{}", b'{"a": true}', b"3", b'{"n": 123456789012345678901234567890}'])
def test_a_changed_body_says_something_else(body: bytes) -> None:
    other = json_variants.changed(body)
    assert other is not None
    assert json.loads(other) != json.loads(body)


def test_a_doubled_member_reads_as_before_to_whom_the_last_one_counts() -> None:
    for body in BODIES:
        other = json_variants.doubled(body)
        assert other is not None
        assert json.loads(other) == json.loads(body)
        names = [name for name, _ in json.loads(other, object_pairs_hook=list)]
        assert names[0] == names[1]


@pytest.mark.parametrize(
    ("media", "is_json"),
    [("application/json", True), ("application/vnd.api+json; charset=utf-8", True), ("text/plain", False)],
)
def test_media_types_made_of_json_are_json(media: str, is_json: bool) -> None:
    assert json_variants.is_json(media) == is_json
