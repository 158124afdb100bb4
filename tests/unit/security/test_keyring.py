"""A keyring seals each field of each record under a key of its own, and opens nothing that was changed or moved."""

import base64
import hashlib
import hmac
import os
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core.sealing.values import is_sealed, key_id_of, sealed_start, unpack_sealed
from semel.errors import RecordUnreadable, UsageError
from semel.security import Keyring
from tests.effort import FULL

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))
SUBJECT = hashlib.sha256(b"a record").digest()
RING = Keyring(active="k1", keys={"k1": KEY})


def test_what_is_sealed_is_opened_again() -> None:
    assert RING.open(SUBJECT, b"outcome", RING.seal(SUBJECT, b"outcome", b"plain")) == b"plain"


def test_sealed_bytes_name_key_and_version_and_nothing_else() -> None:
    sealed = RING.seal(SUBJECT, b"outcome", b"canary-value")
    assert is_sealed(sealed)
    assert key_id_of(sealed[:100]) == "k1"
    assert b"canary" not in sealed
    assert sealed[1] == 1  # the version


@pytest.mark.parametrize("place", range(len(RING.seal(SUBJECT, b"outcome", b"plain", repeatable=True))))
def test_any_changed_byte_is_noticed(place: int) -> None:
    sealed = bytearray(RING.seal(SUBJECT, b"outcome", b"plain", repeatable=True))
    sealed[place] ^= 1
    with pytest.raises(RecordUnreadable, match="did run before and nothing ran now"):
        RING.open(SUBJECT, b"outcome", bytes(sealed))


@pytest.mark.parametrize(("subject", "field"), [(bytes(32), b"outcome"), (SUBJECT, b"error"), (SUBJECT, b"outcomes")])
def test_what_was_moved_to_another_place_is_not_opened(subject: bytes, field: bytes) -> None:
    sealed = RING.seal(SUBJECT, b"outcome", b"plain")
    with pytest.raises(RecordUnreadable, match="moved from another place"):
        RING.open(subject, field, sealed)


def test_a_key_under_the_id_of_another_does_not_open() -> None:
    sealed = RING.seal(SUBJECT, b"outcome", b"plain")
    with pytest.raises(RecordUnreadable):
        Keyring(active="k1", keys={"k1": OTHER}).open(SUBJECT, b"outcome", sealed)


def test_a_lost_key_is_named() -> None:
    sealed = RING.seal(SUBJECT, b"outcome", b"plain")
    with pytest.raises(RecordUnreadable, match=r"'k1', which the keyring does not have") as raised:
        Keyring(active="k2", keys={"k2": OTHER}).open(SUBJECT, b"outcome", sealed)
    assert raised.value.facts["key_id"] == "k1"


def test_every_key_of_the_ring_opens_and_the_active_one_seals() -> None:
    ring = Keyring(active="k2", keys={"k1": KEY, "k2": OTHER})
    assert ring.open(SUBJECT, b"outcome", RING.seal(SUBJECT, b"outcome", b"old")) == b"old"
    assert key_id_of(ring.seal(SUBJECT, b"outcome", b"new")) == "k2"


def test_keys_are_derived_as_hkdf_says() -> None:
    extracted = hmac.digest(b"semel.seal", KEY, "sha256")
    bound = b"semel.sealed.1\x02k1\x07outcome" + SUBJECT
    derived = HKDFExpand(hashes.SHA256(), 32, bound).derive(extracted)
    _, body = unpack_sealed(RING.seal(SUBJECT, b"outcome", b"plain"))
    assert AESGCM(derived).decrypt(body[:12], body[12:], bound) == b"plain"


def test_a_repeatable_seal_gives_the_same_bytes_and_any_other_gives_others() -> None:
    once, again = (RING.seal(SUBJECT, b"step.0", b"plain", repeatable=True) for _ in range(2))
    assert once == again
    assert RING.seal(SUBJECT, b"outcome", b"plain") != RING.seal(SUBJECT, b"outcome", b"plain")


def test_nonces_of_one_key_never_repeat() -> None:
    count = 1_000_000 if FULL else 10_000
    nonces = {unpack_sealed(RING.seal(SUBJECT, b"outcome", b""))[1][:12] for _ in range(count)}
    repeated = {unpack_sealed(RING.seal(SUBJECT, b"x", b"%d" % n, repeatable=True))[1][:12] for n in range(count // 10)}
    assert (len(nonces), len(repeated)) == (count, count // 10)


def test_a_forked_process_draws_nonces_of_its_own() -> None:
    RING.seal(SUBJECT, b"outcome", b"")  # some are laid by
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"".join(unpack_sealed(RING.seal(SUBJECT, b"outcome", b""))[1][:12] for _ in range(300)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    ours = {unpack_sealed(RING.seal(SUBJECT, b"outcome", b""))[1][:12] for _ in range(300)}
    assert len(theirs) == 300 * 12
    assert not ours & {theirs[place : place + 12] for place in range(0, len(theirs), 12)}


@pytest.mark.parametrize("length", [0, 227, 228, 65_507, 65_508, 70_000])
def test_a_text_of_any_length_is_opened(length: int) -> None:
    """Its length is written in one byte, two or four."""
    sealed = RING.seal(SUBJECT, b"outcome", bytes(length))
    assert msgspec.msgpack.decode(sealed)
    assert RING.open(SUBJECT, b"outcome", sealed) == bytes(length)


def test_more_records_than_ciphers_are_kept_are_opened() -> None:
    subjects = [number.to_bytes(32, "big") for number in range(600)]
    sealed = [RING.seal(subject, b"outcome", subject) for subject in subjects]
    for _ in range(2):
        opened = [RING.open(subject, b"outcome", one) for subject, one in zip(subjects, sealed, strict=True)]
        assert opened == subjects


def test_a_kept_cipher_opens_nothing_of_another_field_or_key() -> None:
    sealed = RING.seal(SUBJECT, b"outcome", b"plain")
    assert RING.open(SUBJECT, b"outcome", sealed) == b"plain"
    for subject, field in ((SUBJECT, b"error"), (bytes(32), b"outcome")):
        with pytest.raises(RecordUnreadable):
            RING.open(subject, field, sealed)


@settings(max_examples=1000 if FULL else 50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=1, max_size=40), st.binary(max_size=300), st.booleans())
def test_anything_is_opened_where_it_was_sealed(subject: bytes, field: bytes, plain: bytes, repeatable: bool) -> None:
    assert RING.open(subject, field, RING.seal(subject, field, plain, repeatable=repeatable)) == plain


@pytest.mark.parametrize(
    "text",
    [KEY.hex(), KEY.hex().upper(), base64.b64encode(KEY).decode(), base64.urlsafe_b64encode(KEY).decode().rstrip("=")],
)
def test_a_key_may_be_given_as_text(text: str) -> None:
    sealed = Keyring(active="k1", keys={"k1": text}).seal(SUBJECT, b"outcome", b"plain")
    assert RING.open(SUBJECT, b"outcome", sealed) == b"plain"


@pytest.mark.parametrize(
    "bad", [b"too-short-secret", "too-short-secret", KEY + b"x", KEY.hex()[:-1] + "g", 7, None, bytes(32), "", "ä" * 64]
)
def test_a_bad_key_is_refused_and_not_shown(bad: object) -> None:
    with pytest.raises(UsageError, match="nothing was opened") as raised:
        Keyring(active="k1", keys={"k1": bad})  # type: ignore[dict-item]
    assert "secret-" not in str(raised.value)
    assert "too-short" not in str(raised.value)


@pytest.mark.parametrize("bad", ["", "a b", "x" * 65, "ä", "-k", None, 7])
def test_a_bad_id_is_refused(bad: object) -> None:
    with pytest.raises(UsageError, match="id of a key"):
        Keyring(active=bad, keys={})  # type: ignore[arg-type]


def test_a_ring_without_its_active_key_is_refused() -> None:
    with pytest.raises(UsageError, match="There is no key 'k2' to seal with"):
        Keyring(active="k2", keys={"k1": KEY})


def test_no_key_is_printed() -> None:
    printed = repr(RING) + str(RING)
    assert printed.count("k1") == 4
    assert KEY.hex() not in printed
    assert repr(KEY) not in printed


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'k1 = "{KEY.hex()}"\n"2026-10" = "{OTHER.hex()}"\n')
    assert Keyring.from_file(file, active="k1").ids == {"k1", "2026-10"}


@pytest.mark.parametrize("text", ["k1 = secret-text", "k1 = 7", "\xff"])
def test_a_key_file_that_cannot_be_read_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match="nothing was opened") as raised:
        Keyring.from_file(file, active="k1")
    assert "secret-text" not in str(raised.value)


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Keyring.from_file(tmp_path / "nothing.toml", active="k1")


def test_keys_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMEL_SEAL_KEYS", f"k1={KEY.hex()}, k2={base64.b64encode(OTHER).decode()}")
    assert Keyring.from_environment(active="k2").ids == {"k1", "k2"}


@pytest.mark.parametrize("text", ["", "k1", "=x", "k1="])
def test_an_environment_without_keys_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SEMEL_SEAL_KEYS", text)
    with pytest.raises(UsageError, match="SEMEL_SEAL_KEYS"):
        Keyring.from_environment(active="k1")


def test_a_key_service_is_asked_once_for_each_key() -> None:
    asked: list[str] = []

    def fetch(key_id: str) -> bytes | None:
        asked.append(key_id)
        return {"k1": KEY, "k2": OTHER}.get(key_id)

    ring = Keyring(active="k2", fetch=fetch)
    sealed = RING.seal(SUBJECT, b"outcome", b"old")
    assert [ring.open(SUBJECT, b"outcome", sealed) for _ in range(2)] == [b"old", b"old"]
    assert asked == ["k2", "k1"]


def test_a_key_service_that_fails_leaves_the_record_unreadable_until_it_is_back() -> None:
    is_down = [True]

    def fetch(key_id: str) -> bytes | None:
        if is_down[0]:
            raise OSError("a password in here")
        return KEY if key_id == "k1" else None

    ring = Keyring(active="k2", keys={"k2": OTHER}, fetch=fetch)
    sealed = RING.seal(SUBJECT, b"outcome", b"old")
    with pytest.raises(RecordUnreadable, match=r"could not be fetched \(OSError\)"):
        ring.open(SUBJECT, b"outcome", sealed)
    is_down[0] = False
    assert ring.open(SUBJECT, b"outcome", sealed) == b"old"


def test_a_value_that_was_cut_off_behind_its_version_names_no_key() -> None:
    start = sealed_start("k1")[: -len(b"\xa2k1")]
    assert is_sealed(start)
    assert key_id_of(start) == ""
    with pytest.raises(RecordUnreadable):
        unpack_sealed(start)
