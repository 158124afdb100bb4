"""Signed keys: only their issuer makes them, for one tenant, up to a moment; what they stand for stays the same."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel import Key, KeyRing, errors, is_key, make_key, verify_key

OLD, NEW = b"o" * 32, b"n" * 32
RING = {"2026-10": OLD, "2026-11": NEW}
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def sign(
    *parts: object, secret: bytes = NEW, key_id: str = "2026-11", tenant: Any = "acme", expires: datetime | None = None
) -> str:
    return make_key(*parts, secret=secret, key_id=key_id, tenant=tenant, expires=expires)


def test_what_was_signed_is_verified() -> None:
    assert verify_key(sign("o-1"), secrets=RING, tenant="acme") == make_key("o-1")


def test_the_key_that_comes_out_can_be_used_as_one() -> None:
    assert is_key(verify_key(sign("o-1"), secrets=RING, tenant="acme"))


def test_both_secrets_hold_while_one_follows_the_other() -> None:
    old = verify_key(sign("o-1", secret=OLD, key_id="2026-10"), secrets=RING, tenant="acme")
    assert old == verify_key(sign("o-1"), secrets=RING, tenant="acme")


def test_a_secret_that_was_taken_out_no_longer_holds() -> None:
    with pytest.raises(errors.KeyInvalid, match="nothing ran"):
        verify_key(sign("o-1", secret=OLD, key_id="2026-10"), secrets={"2026-11": NEW}, tenant="acme")


def test_a_secret_under_the_name_of_another_does_not_hold() -> None:
    with pytest.raises(errors.KeyInvalid, match="signed for this caller"):
        verify_key(sign("o-1", secret=OLD), secrets=RING, tenant="acme")


def test_the_key_of_another_tenant_is_refused() -> None:
    with pytest.raises(errors.KeyInvalid, match="signed for this caller"):
        verify_key(sign("o-1"), secrets=RING, tenant="globex")


def test_a_tenant_in_parts_is_not_its_text() -> None:
    signed = make_key("o-1", secret=NEW, key_id="2026-11", tenant=("acme", "eu"))
    assert verify_key(signed, secrets=RING, tenant=("acme", "eu"))
    with pytest.raises(errors.KeyInvalid, match="signed for this caller"):
        verify_key(signed, secrets=RING, tenant="(acme, eu)")


def test_it_holds_up_to_the_moment_at_which_it_expires() -> None:
    signed = sign("o-1", expires=NOW)
    assert verify_key(signed, secrets=RING, tenant="acme", now=NOW - timedelta(seconds=1))
    with pytest.raises(errors.KeyExpired, match="expired; nothing ran"):
        verify_key(signed, secrets=RING, tenant="acme", now=NOW)


def test_signing_anew_makes_no_other_key_of_it() -> None:
    first = verify_key(sign("o-1", expires=NOW), secrets=RING, tenant="acme", now=NOW - timedelta(days=1))
    again = verify_key(sign("o-1", expires=NOW + timedelta(days=1)), secrets=RING, tenant="acme", now=NOW)
    assert first == again


def test_a_forged_key_that_would_have_expired_is_refused_like_any_other() -> None:
    signed = sign("o-1", secret=OLD, expires=NOW - timedelta(days=1))
    with pytest.raises(errors.KeyInvalid) as refused:
        verify_key(signed, secrets=RING, tenant="acme", now=NOW)
    assert not isinstance(refused.value, errors.KeyExpired)


SIGNED = sign("o-1", expires=NOW)


@given(st.integers(0, len(SIGNED) - 1), st.integers(0, 7))
def test_a_key_with_one_bit_changed_is_refused(position: int, bit: int) -> None:
    changed = SIGNED[:position] + chr(ord(SIGNED[position]) ^ (1 << bit)) + SIGNED[position + 1 :]
    with pytest.raises(errors.KeyInvalid, match="signed for this caller"):
        verify_key(changed, secrets=RING, tenant="acme", now=NOW - timedelta(seconds=1))


@pytest.mark.parametrize(
    "text", ["", "o-1", make_key("o-1"), SIGNED + " ", SIGNED.upper(), SIGNED + "\n", None, 7, b"x"]
)
def test_what_is_no_signed_key_is_refused(text: object) -> None:
    with pytest.raises(errors.KeyInvalid, match="signed for this caller"):
        verify_key(text, secrets=RING, tenant="acme")


def test_it_can_be_a_key_as_it_is() -> None:
    signed = sign("o-1", expires=NOW)
    assert Key.of(signed, operation="charge").value == signed


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"secret": NEW, "key_id": "k"}, "needs secret=, key_id= and tenant="),
        ({"key_id": "k", "tenant": "acme"}, "needs secret=, key_id= and tenant="),
        ({"secret": NEW, "tenant": "acme"}, "belong to a signed key"),
        ({"expires": NOW}, "belong to a signed key"),
        ({"secret": b"short", "key_id": "k", "tenant": "acme"}, "at least"),
        ({"secret": NEW, "key_id": "a.b", "tenant": "acme"}, "letters, digits"),
        ({"secret": NEW, "key_id": "k", "tenant": "acme", "expires": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001
    ],
)
def test_a_signed_key_that_lacks_something_is_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(errors.KeyInvalid, match=why):
        make_key("o-1", **settings)  # type: ignore[arg-type]


def test_a_ring_shows_names_and_no_secrets() -> None:
    assert repr(KeyRing({"2026-11": "s" * 32})) == "KeyRing(2026-11)"


@pytest.mark.parametrize("secrets", [{}, None, {"k": b""}, {"a b": NEW}])
def test_a_ring_without_a_usable_secret_is_refused(secrets: dict[str, bytes]) -> None:
    with pytest.raises(errors.KeyInvalid, match="nothing ran"):
        KeyRing(secrets)
