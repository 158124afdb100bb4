"""The key: what may be one, what may not, and that two share a digest only if all three parts are equal."""

import copy
import hashlib
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel import errors
from semel.core.key import MAX_TEXT, SHARED, Key
from tests.unit.core.values import NFC, NFD, Colour, Number, Size, Word, encodable_leaves

printable = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
# Separators of every kind, so that an encoding that joins would soon be caught.
joining = st.text(st.sampled_from(":;,|/()[]'s1 \\"), min_size=1, max_size=5)
texts = st.one_of(printable, joining)
parts = st.lists(st.one_of(texts, st.none(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=3).map(tuple)
values = st.one_of(texts, parts)
scopes = st.one_of(st.just(SHARED), values)


def _told_apart(part: object) -> object:
    """In Python 1 equals True; as parts of a key they are two."""
    return tuple((type(item), item) for item in part) if isinstance(part, tuple) else part


@given(st.tuples(scopes, texts, values), st.tuples(scopes, texts, values))
def test_keys_are_one_only_if_scope_operation_and_value_are(one: tuple[Any, ...], two: tuple[Any, ...]) -> None:
    left, right = (Key.of(value, operation=operation, scope=scope) for scope, operation, value in (one, two))
    assert (left.digest == right.digest) == ([*map(_told_apart, one)] == [*map(_told_apart, two)])


@given(st.permutations(["a:b", "c", "a", "b:c", "S1:a"]))
def test_scope_operation_and_value_do_not_bleed_into_each_other(words: list[str]) -> None:
    scope, operation, value, *rest = words
    key = Key.of(value, operation=operation, scope=scope)
    assert key.digest != Key.of(operation, operation=value, scope=scope).digest
    assert key.digest != Key.of(value, operation=scope, scope=operation).digest
    assert key.digest != Key.of(value + rest[0], operation=operation, scope=scope).digest


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("acme", None, "pay"), ("acme", "pay", None)),
        (("acme:eu", "pay", "k1"), ("acme", "eu:pay", "k1")),
        (("t", "", "k"), ("t", None, ":k")),
        (("t", 1, "k"), ("t", "1", "k")),
        (("t", True, "k"), ("t", "True", "k")),
    ],
)
def test_what_joining_would_confuse_is_told_apart(left: tuple[object, ...], right: tuple[object, ...]) -> None:
    assert Key.of(left, operation="pay").digest != Key.of(right, operation="pay").digest
    assert Key.of("k", operation="pay", scope=left).digest != Key.of("k", operation="pay", scope=right).digest


@pytest.mark.parametrize("other", ["shared", "SHARED", "", "s"])
def test_the_shared_scope_is_no_text(other: str) -> None:
    shared = Key.of("k", operation="pay", scope=SHARED)
    assert shared.scope == ""
    if other:
        assert shared.digest != Key.of("k", operation="pay", scope=other).digest


def test_the_shared_scope_is_the_default() -> None:
    assert Key.of("k", operation="pay") == Key.of("k", operation="pay", scope=SHARED)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("1",), (1,)),
        ((1,), (True,)),
        (("k",), "k"),
        ((("k",),), ("k",)),
        ((NFC,), (NFD,)),
        (NFC, NFD),
        (("pay", NFC, 1), ("pay", NFD, 1)),
        ((b"k",), ("k",)),
        ((date(2030, 1, 1),), ("2030-01-01",)),
        ((UUID(int=1),), (str(UUID(int=1)),)),
        ((Colour.RED,), (Size.SMALL,)),
        ("(k)", ("k",)),
        (("a, b",), ("a", "b")),
    ],
)
def test_parts_that_look_alike_are_other_keys(left: object, right: object) -> None:
    assert Key.of(left, operation="pay").digest != Key.of(right, operation="pay").digest


@pytest.mark.parametrize(
    ("left", "right"),
    [(("pay",), (Word.PAY,)), ("pay", Word.PAY), ((1,), (Number.ONE,)), ((1,), (1.0,)), ((1,), (Decimal("1.0"),))],
)
def test_parts_that_are_equal_are_one_key(left: object, right: object) -> None:
    assert Key.of(left, operation="pay").digest == Key.of(right, operation="pay").digest


def test_an_operation_is_exact_text_too() -> None:
    assert Key.of("k", operation=NFC).digest != Key.of("k", operation=NFD).digest


@given(encodable_leaves)
def test_every_plain_value_can_be_a_part(part: object) -> None:
    key = Key.of((part,), operation="pay") if len(str(part)) < 80 and str(part).isprintable() else None
    assert key is None or len(key.digest) == 32


def test_a_key_shows_what_it_was_made_of() -> None:
    key = Key.of(("o-1", 2, None, b"x", True, datetime(2030, 1, 1, tzinfo=UTC)), operation="charge", scope="acme")
    assert key.value == "(o-1, 2, None, b'x', True, 2030-01-01 00:00:00+00:00)"
    assert (key.scope, key.operation) == ("acme", "charge")


def test_an_enum_is_kept_as_plain_text() -> None:
    key = Key.of(Word.PAY, operation=Word.PAY, scope=Word.PAY)
    assert [type(text) for text in (key.value, key.operation, key.scope)] == [str, str, str]


def test_the_reference_is_the_digest_in_hex() -> None:
    key = Key.of("k", operation="pay")
    assert bytes.fromhex(key.reference) == key.digest


def test_a_digest_never_changes() -> None:
    # Stored records are found by it: should this fail, the name "semel.key.1" has to change.
    key = Key.of(("o-1", 7), operation="charge", scope="acme")
    assert key.digest == hashlib.sha256(b"semel.key.1s4:acmeS6:chargeL10:S3:o-1D1:7").digest()


def test_a_digest_in_the_shared_scope_never_changes() -> None:
    key = Key.of("o-1", operation="charge")
    assert key.digest == hashlib.sha256(b"semel.key.1shared;S6:charges3:o-1").digest()


def test_a_derived_key_never_changes() -> None:
    key = Key.of("o-1", operation="charge")
    assert key.derive("pay") == hashlib.sha256(b"semel.derive.1" + key.digest + b"S3:pay").hexdigest()


@pytest.mark.parametrize("length", [1, MAX_TEXT])
@pytest.mark.parametrize("what", ["key", "operation", "scope"])
def test_text_up_to_the_limit_is_taken(what: str, length: int) -> None:
    assert len(_with(what, "x" * length).digest) == 32


@pytest.mark.parametrize(
    "text",
    [
        "x" * (MAX_TEXT + 1),
        "é" * 128,
        "a\nb",
        "a\x00",
        "\x1b[2J",
        "a\x7f",
        "a\x85b",
        "a\x9b2J",
        "\ud800",
        "\t",
    ],
    ids=lambda text: ascii(text)[:12],
)
@pytest.mark.parametrize("what", ["key", "operation", "scope"])
def test_text_that_is_too_long_or_unprintable_is_invalid(what: str, text: str) -> None:
    with pytest.raises(errors.KeyInvalid, match="nothing ran"):
        _with(what, text)


@pytest.mark.parametrize(
    ("what", "value", "error"),
    [
        ("key", None, errors.KeyMissing),
        ("key", "", errors.KeyInvalid),
        ("key", (), errors.KeyInvalid),
        ("key", 7, errors.KeyInvalid),
        ("key", True, errors.KeyInvalid),
        ("key", b"k", errors.KeyInvalid),
        ("key", ["k"], errors.KeyInvalid),
        ("key", {"k": 1}, errors.KeyInvalid),
        ("key", SHARED, errors.KeyInvalid),
        ("scope", None, errors.KeyMissing),
        ("scope", "", errors.KeyMissing),
        ("scope", (), errors.KeyInvalid),
        ("scope", 7, errors.KeyInvalid),
        ("scope", b"acme", errors.KeyInvalid),
        ("operation", None, errors.KeyInvalid),
        ("operation", "", errors.KeyInvalid),
        ("operation", ("pay",), errors.KeyInvalid),
        ("operation", 7, errors.KeyInvalid),
    ],
)
def test_what_is_no_text_is_refused_by_name(what: str, value: object, error: type[errors.SemelError]) -> None:
    with pytest.raises(error, match=f"{what}.*nothing ran") as caught:
        _with(what, value)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    "part",
    [
        ["a"],
        {"a": 1},
        {"a"},
        frozenset({"a"}),
        object(),
        float("nan"),
        datetime(2030, 1, 1),  # noqa: DTZ001 - naive is the point
        "\ud800",
        "a\nb",
        10**5000,
        tuple("x" * MAX_TEXT),
    ],
    ids=lambda part: type(part).__name__,
)
@pytest.mark.parametrize("what", ["key", "scope"])
def test_parts_that_cannot_name_anything_are_invalid(what: str, part: object) -> None:
    with pytest.raises(errors.KeyInvalid, match=r"[Nn]othing ran"):
        _with(what, ("a", part))


def test_endless_nesting_in_a_part_is_invalid() -> None:
    part: tuple[object, ...] = ()
    for _ in range(100_000):
        part = (part,)
    with pytest.raises(errors.KeyInvalid, match=r"[Nn]othing ran"):
        Key.of(part, operation="pay")


def test_a_long_tuple_is_invalid_and_says_what_to_do() -> None:
    with pytest.raises(errors.KeyInvalid, match=r"make_key\(\)"):
        Key.of(tuple(range(100_000)), operation="pay")


@given(texts, texts)
def test_derived_keys_differ_by_step(left: str, right: str) -> None:
    key = Key.of("k", operation="pay")
    assert (key.derive(left) == key.derive(right)) == (left == right)


def test_derived_keys_differ_by_key_and_repeat_themselves() -> None:
    one, two = (Key.of(value, operation="pay") for value in ("k1", "k2"))
    assert one.derive("charge") == Key.of("k1", operation="pay").derive("charge")
    assert one.derive("charge") != two.derive("charge")


@pytest.mark.parametrize("step", ["", None, 1, b"charge", "\ud800"])
def test_deriving_needs_the_name_of_a_step(step: Any) -> None:
    with pytest.raises(errors.KeyInvalid, match="no key was made"):
        Key.of("k", operation="pay").derive(step)


def test_keys_are_frozen_and_survive_pickling() -> None:
    key = Key.of("k", operation="pay")
    with pytest.raises(AttributeError):
        key.value = "other"  # type: ignore[misc]  # that it cannot be is the point
    assert pickle.loads(pickle.dumps(key)) == key  # noqa: S301 - our own bytes


def test_the_shared_scope_stays_itself_when_copied() -> None:
    assert copy.deepcopy(SHARED) is SHARED
    assert pickle.loads(pickle.dumps(SHARED)) is SHARED  # noqa: S301 - our own bytes
    assert repr(SHARED) == "SHARED"


def _with(what: str, value: object) -> Key:
    given: dict[str, Any] = {"key": "k", "operation": "pay", "scope": "acme", what: value}
    return Key.of(given["key"], operation=given["operation"], scope=given["scope"])


@given(st.lists(st.text(st.characters(codec="ascii"), max_size=5), min_size=1, max_size=4))
def test_plain_texts_enter_a_key_as_every_other_tuple_does(texts: list[str]) -> None:
    class Text(str):
        """Takes the long way."""

        __slots__ = ()

    plain, other = tuple(texts), tuple(map(Text, texts))
    try:
        key = Key.of(plain, operation="pay")
    except errors.KeyInvalid:
        with pytest.raises(errors.KeyInvalid):
            Key.of(other, operation="pay")
    else:
        assert key == Key.of(other, operation="pay")
