"""The fingerprint: a versioned digest of what was asked, the same for what means the same."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given

from semel import errors
from semel.core.canonical import Members
from semel.core.fingerprint import VERSION, check_version, fingerprint
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


def test_an_encoder_for_known_members_gives_the_same() -> None:
    asked = {"amount": Decimal(10), "name": NFD}
    assert fingerprint({**asked, "session": object()}, Members(asked).encode) == fingerprint(asked)


@pytest.mark.parametrize("encode", ["plain", "members"])
def test_what_cannot_be_encoded_is_the_callers_to_change(encode: str) -> None:
    asked = {"session": object()}
    with pytest.raises(errors.UsageError, match=r"Nothing ran.*ignore="):
        fingerprint(asked, Members(asked).encode) if encode == "members" else fingerprint(asked)


@pytest.mark.parametrize("stored", [b"", b"\x00" * 33, bytes([VERSION + 1]) * 33])
def test_another_version_is_never_compared(stored: bytes) -> None:
    with pytest.raises(errors.RecordUnreadable, match="nothing ran"):
        check_version(stored)


def test_the_own_version_is_compared() -> None:
    check_version(fingerprint(None))
