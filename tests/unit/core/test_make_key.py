"""`make_key` and `is_key`: 64 hex digits from any parts, kept apart by type, version and secret."""

import hashlib
import hmac
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from semel import errors, is_key, make_key
from tests.unit.core.values import NFC, NFD, Colour, Size, confusable, encodable, meaning


@given(st.lists(encodable, min_size=1, max_size=4))
def test_it_gives_64_hex_digits(parts: list[Any]) -> None:
    try:
        key = make_key(*parts)
    except errors.KeyInvalid:
        assume(False)
        raise
    assert is_key(key)
    assert key == make_key(*parts)


@given(st.lists(confusable, min_size=1, max_size=3), st.lists(confusable, min_size=1, max_size=3))
def test_other_parts_give_another_key(left: list[Any], right: list[Any]) -> None:
    if meaning(left) != meaning(right):
        assert make_key(*left) != make_key(*right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("acme", None, "pay"), ("acme", "pay", None)),
        (("acme:eu", "pay", "k1"), ("acme", "eu:pay", "k1")),
        (("t", "", "k"), ("t", None, ":k")),
        (("t", 1, "k"), ("t", "1", "k")),
        (("t", True, "k"), ("t", "True", "k")),
        ((1,), (True,)),
        ((NFC,), (NFD,)),
        ((Colour.RED,), (Size.SMALL,)),
        (("a", "b"), (("a", "b"),)),
        ((date(2030, 1, 1),), (datetime(2030, 1, 1, tzinfo=UTC),)),
        ((UUID(int=1),), (1,)),
    ],
)
def test_parts_that_look_alike_give_other_keys(left: tuple[object, ...], right: tuple[object, ...]) -> None:
    assert make_key(*left) != make_key(*right)


def test_equal_numbers_give_one_key() -> None:
    assert make_key("o-1", 10) == make_key("o-1", 10.0) == make_key("o-1", Decimal("10.00"))


def test_a_version_makes_another_key() -> None:
    keys = [make_key("o-1"), make_key("o-1", version=1), make_key("o-1", version="1"), make_key("o-1", version=2)]
    assert len(set(keys)) == len(keys)
    assert make_key("o-1", version=None) == make_key("o-1")


def test_a_version_is_no_part() -> None:
    assert make_key("o-1", version=1) != make_key(1, "o-1")


def test_a_secret_makes_a_key_that_others_cannot_compute() -> None:
    keys = [make_key("o-1"), make_key("o-1", secret="one"), make_key("o-1", secret="two")]
    assert len(set(keys)) == len(keys)
    assert all(map(is_key, keys))


@pytest.mark.parametrize("secret", [b"one", bytearray(b"one")])
def test_a_secret_may_be_text_or_its_bytes(secret: Any) -> None:
    assert make_key("o-1", secret=secret) == make_key("o-1", secret="one")


def test_a_secret_may_hold_any_character() -> None:
    assert make_key("o-1", secret="one\n") != make_key("o-1", secret="one")


@pytest.mark.parametrize("secret", ["", b"", bytearray(), 7, ["one"], "\ud800"], ids=repr)
def test_a_secret_that_protects_nothing_is_invalid(secret: Any) -> None:
    with pytest.raises(errors.KeyInvalid, match="nothing ran"):
        make_key("o-1", secret=secret)


def test_a_refused_secret_is_not_told() -> None:
    with pytest.raises(errors.KeyInvalid) as caught:
        make_key("o-1", secret=["hush"])  # type: ignore[arg-type]  # that it is refused is the point
    assert "hush" not in str(caught.value)


def test_no_part_at_all_is_a_missing_key() -> None:
    with pytest.raises(errors.KeyMissing, match="nothing ran"):
        make_key()


def _deep() -> list[Any]:
    part: list[Any] = []
    for _ in range(100_000):
        part = [part]
    return part


@pytest.mark.parametrize(
    "part",
    [object(), float("nan"), "\ud800", 10**5000, datetime(2030, 1, 1), _deep()],  # noqa: DTZ001 - naive is the point
    ids=["object", "nan", "surrogate", "long", "naive", "deep"],
)
def test_a_part_that_cannot_be_encoded_is_invalid(part: object) -> None:
    with pytest.raises(errors.KeyInvalid, match="Nothing ran"):
        make_key("o-1", part)


@pytest.mark.parametrize(
    "text",
    ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n", " " + "0" * 63, "\u0660" * 64, None, 0, b"0" * 64],
)
def test_other_forms_are_no_keys(text: object) -> None:
    assert not is_key(text)


def test_made_keys_never_change() -> None:
    # Callers keep them: should this fail, the name "semel.make_key.1" has to change.
    assert make_key("acme", 7, None) == hashlib.sha256(b"semel.make_key.1L21:N0:L14:S4:acmeD1:7N0:").hexdigest()
    signed = hmac.new(b"s", b"semel.make_key.1L22:D1:1L14:S4:acmeD1:7N0:", hashlib.sha256)
    assert make_key("acme", 7, None, version=1, secret="s") == signed.hexdigest()
