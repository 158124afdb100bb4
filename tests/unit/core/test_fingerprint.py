"""The fingerprint: a versioned digest of what was asked, the same for what means the same."""

import hmac
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from hashlib import sha256
from itertools import combinations
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given

from semel import AsyncSemel, Semel, errors
from semel.core.fingerprint import (
    LEAST_SECRET,
    VERSION,
    Digest,
    Fingerprints,
    FixedFields,
    FixedFieldsWithoutDefaults,
    Secrets,
    encode_canonical,
    fingerprint,
)
from semel.engine.engine import engine_of
from tests.unit.core.values import NFC, NFD, confusable, meaning


@given(confusable, confusable)
def test_fingerprints_are_equal_only_for_what_means_the_same(left: Any, right: Any) -> None:
    try:
        one, two = fingerprint(left), fingerprint(right)
    except errors.UsageError:
        assume(False)
        raise
    assert (one == two) == (meaning(left) == meaning(right))


def test_it_starts_with_its_version() -> None:
    assert fingerprint({"amount": 1})[0] == VERSION
    assert len(fingerprint({"amount": 1})) == 33


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"amount": 1}, {"amount": 1.0}),
        ({"amount": 100}, {"amount": 1e2}),
        ({"amount": Decimal("1500.00")}, {"amount": 1500}),
        ({"amount": -0.0}, {"amount": 0}),
        ({"name": NFC}, {"name": NFD}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_the_same_request_written_otherwise_has_the_same_fingerprint(left: object, right: object) -> None:
    assert fingerprint(left) == fingerprint(right)


NOON = time(12)
ZONES = [timezone(timedelta(hours=5)), timezone(timedelta(hours=-5)), UTC, None]
NAMED = [ZoneInfo("Europe/Paris"), ZoneInfo("Asia/Tokyo")]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (NOON, NOON.replace(microsecond=1)),
        (NOON.replace(microsecond=1), NOON.replace(microsecond=2)),
        (NOON, NOON.replace(second=1)),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)),
        (timedelta(seconds=1), timedelta(seconds=1, microseconds=1)),
        *((NOON.replace(tzinfo=one), NOON.replace(tzinfo=two)) for one, two in combinations([*ZONES, *NAMED], 2)),
    ],
    ids=str,
)
def test_microseconds_and_the_zone_of_a_time_are_part_of_what_was_asked(left: object, right: object) -> None:
    assert fingerprint(left) != fingerprint(right)


class _Nowhere(tzinfo):
    """A zone without a name whose offset depends on the day."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None

    def dst(self, _when: datetime | None) -> None:
        return None

    def tzname(self, _when: datetime | None) -> None:
        return None


def test_a_time_in_a_zone_that_cannot_be_named_is_refused() -> None:
    with pytest.raises(errors.UsageError, match=r"zone.*Nothing ran"):
        fingerprint(NOON.replace(tzinfo=_Nowhere()))


def test_encoders_for_known_members_give_the_same() -> None:
    asked = {"amount": Decimal(10), "name": NFD}
    given = {**asked, "session": object(), "note": None}
    assert FixedFields(asked).encode(given) == encode_canonical(asked)
    assert FixedFieldsWithoutDefaults([*asked, "note"], {"note": None}).encode(given) == encode_canonical(asked)


@pytest.mark.parametrize("encode", [encode_canonical, FixedFields(["session"]).encode], ids=["plain", "members"])
def test_what_cannot_be_encoded_is_the_callers_to_change(encode: Any) -> None:
    with pytest.raises(errors.UsageError, match=r"Nothing ran.*ignore=.*fingerprint="):
        Fingerprints(encoders={VERSION: encode}).take({"session": object()})


@pytest.mark.parametrize("stored", [b"", b"\x00" * 33, bytes([VERSION + 1]) * 33, b"\xff" * 37])
def test_another_version_is_never_compared(stored: bytes) -> None:
    with pytest.raises(errors.RecordUnreadable, match="nothing ran"):
        Fingerprints().matches(stored, None)


SECRET = b"not to be seen in any message..."


def test_a_keyed_fingerprint_says_that_it_is_and_names_its_secret() -> None:
    one, two, other = (Fingerprints(Secrets(secret)).take(1) for secret in (SECRET, SECRET.decode(), SECRET * 2))
    assert one == two
    assert (one[0], len(one)) == (VERSION | 0x80, 37)
    assert (one[:1], one[1:5], one[5:]) != (other[:1], other[1:5], other[5:])
    assert one[1:5] != other[1:5]


@pytest.mark.parametrize(
    "secret", [b"", "", b"x" * (LEAST_SECRET - 1), "\ud800" * 20, 5, (SECRET, None), [b"short"], ()]
)
def test_a_secret_that_is_none_is_refused(secret: Any) -> None:
    with pytest.raises(errors.UsageError, match=r"fingerprint_secret=.*nothing ran"):
        Secrets(secret)


@pytest.mark.parametrize("secret", [SECRET[:15], (SECRET, SECRET[:15]), (SECRET, None)])
def test_a_refused_secret_is_not_shown(secret: Any) -> None:
    with pytest.raises(errors.UsageError) as refused:
        Secrets(secret)
    assert "not to be" not in str(refused.value)


@pytest.mark.parametrize("make", [Semel, AsyncSemel])
def test_a_secret_is_in_no_repr(make: Any) -> None:
    engine = make("memory://", fingerprint_secret=(SECRET, SECRET * 2))
    shown = repr([engine, engine_of(engine).secrets, engine_of(engine).fingerprints])
    assert "Secrets(2 known)" in shown
    assert "not to be" not in shown


def test_what_was_asked_is_not_in_the_repr_of_a_request() -> None:
    @Semel("memory://").once(key="order", operation="pay")
    def pay(order: str, pin: str) -> None: ...

    request = pay._rules.request(("o-1", "4711"), {})
    assert repr(request) == f"Request('pay', {request.key.reference})"


@pytest.mark.parametrize("secret", [None, b"s" * 32])
def test_a_digest_is_not_digested_once_more(secret: bytes | None) -> None:
    taker = Fingerprints(Secrets(secret))
    one, two = (Digest(sha256(text).digest()) for text in (b"a", b"b"))
    assert taker.take(one)[-32:] == (one if secret is None else hmac.digest(secret, one, "sha256"))
    assert taker.matches(taker.take(one), one)
    assert not taker.matches(taker.take(one), two)
    assert taker.take(one) != taker.take(bytes(one)), "bytes that somebody asks with are a value like any other"
