"""A keyring: AES-256-GCM keys by id, one of which seals; all of them open.

- The key of each field of each subject is derived by HKDF (RFC 5869, SHA-256), so no two records share one, and the
  number of random nonces under one key stays far below what GCM allows.
- Key id, version, field and subject are authenticated with the text: nothing opens anywhere but where it was sealed.
- A key never appears in a printed value, an error or a log.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from struct import Struct
from typing import Final

from semel.core.sealing.values import body_start, missing_key_error, sealed_start, tampered_error, unpack_sealed
from semel.errors import RecordUnreadable, UsageError
from semel.extras import requires

with requires("semel.security", "cryptography"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.hmac import HMAC

Key = bytes | str
"""32 bytes, or a text of them: 64 hexadecimal digits, or base64."""
Fetch = Callable[[str], Key | None]
"""Gives the key of an id, as a key service does; None: there is none."""

VARIABLE: Final = "SEMEL_SEAL_KEYS"
"""The environment variable with keys: `id=key`, several with commas between them."""

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_FIRST_BLOCK: Final = b"\x01"
_LOT: Final = 128
_SPLIT: Final = Struct(f"{_NONCE_BYTES}s" * _LOT).unpack
_MOST_FIELDS: Final = 256
_MOST_CIPHERS: Final = 512
_HEX_DIGITS: Final = 2 * _KEY_BYTES
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_SALT: Final = b"semel.seal"
_VERSION: Final = b"semel.sealed.1"
_NOTHING: Final = "nothing was opened"


class Keyring:
    """Seals with one key, and opens with all of them.

    Args:
        active: the id of the key that seals.
        keys: keys by their ids: 32 bytes, 64 hexadecimal digits, or base64 of 32 bytes.
        accept_plain: whether what is not sealed is read as it is, as records are from before sealing was switched on.
            False, once nothing of that kind is left: then nobody who can write to the store can put an answer there.
        fetch: called with an id that is not among `keys`, as for a key service; what it gives is kept. It is called for
            the active key at once and for any other at most once, by whoever meets it first, who waits for it.

    Raises:
        UsageError: an id or a key is not usable, or there is no active one.
        DependencyMissing: cryptography is not installed.
    """

    def __init__(
        self,
        *,
        active: str,
        keys: Mapping[str, Key] | None = None,
        fetch: Fetch | None = None,
        accept_plain: bool = True,
    ) -> None:
        given: object = {} if keys is None else keys
        if not isinstance(given, Mapping):
            raise UsageError(f"keys= maps ids to keys, and is a {type(given).__name__}; {_NOTHING}.")
        if fetch is not None and not callable(fetch):
            raise UsageError(f"fetch= is called with the id of a key, and is a {type(fetch).__name__}; {_NOTHING}.")
        self._keys = {_check_id(key_id): _DerivingKey(key_id, read_key(key_id, key)) for key_id, key in given.items()}
        self._fetch = fetch
        self._accepts_plain = accept_plain
        self._active = _check_id(active)
        self._sealing = self._active_key()

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, active: str, fetch: Fetch | None = None, accept_plain: bool = True
    ) -> Keyring:
        """A keyring with the keys of a TOML file, one line `id = "key"` for each.

        Raises:
            UsageError: the file cannot be read, or a key is not usable.
        """
        return cls(active=active, keys=read_key_file(path), fetch=fetch, accept_plain=accept_plain)

    @classmethod
    def from_environment(
        cls, *, active: str, variable: str = VARIABLE, fetch: Fetch | None = None, accept_plain: bool = True
    ) -> Keyring:
        """A keyring with the keys of an environment variable: `id=key`, several with commas between them.

        Raises:
            UsageError: the variable is not set, or a key is not usable.
        """
        return cls(
            active=active,
            keys=read_key_text(os.environ.get(variable, ""), variable),
            fetch=fetch,
            accept_plain=accept_plain,
        )

    def __repr__(self) -> str:
        return f"Keyring(active={self._active!r}, keys=<{', '.join(sorted(self._keys))}>)"

    @property
    def active(self) -> str:
        """The id of the key that seals."""
        return self._active

    @property
    def accepts_plain(self) -> bool:
        """Whether what is not sealed is read as it is."""
        return self._accepts_plain

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the keys at hand."""
        return frozenset(self._keys)

    def seal(self, subject: bytes, field: bytes, plain: bytes, *, repeatable: bool = False) -> bytes:
        """`plain`, sealed with the active key for one field of one subject."""
        # All in one function: each call more is a tenth of what the encryption of a short text takes.
        key = self._sealing
        try:
            prefix, expanding = key.fields[field]
        except KeyError:
            prefix, expanding = key.prepare(field)
        expand = expanding.copy()
        expand.update(subject + _FIRST_BLOCK)
        derived = expand.finalize()
        try:
            # A nonce from key and text gives the same text the same bytes, and another text another nonce.
            nonce = _nonce_of(derived, plain) if repeatable else _NONCES.pop()
        except IndexError:
            nonce = _draw_nonces()
        sealed = AESGCM(derived).encrypt(nonce, plain, prefix + subject)
        return b"".join((key.start, body_start(len(sealed) + _NONCE_BYTES), nonce, sealed))

    def open(self, subject: bytes, field: bytes, sealed: bytes) -> bytes:
        """What was sealed there.

        Raises:
            RecordUnreadable: the key is not at hand, or these bytes were not sealed there.
        """
        key_id, body = unpack_sealed(sealed)
        key = self._keys.get(key_id) or self._fetched(key_id)
        try:
            return key.open(subject, field, body)
        except (InvalidTag, ValueError) as problem:
            raise tampered_error(key_id) from problem

    def _active_key(self) -> _DerivingKey:
        """The key that seals.

        Raises:
            UsageError: there is none; found out now and not when a handler has run.
        """
        try:
            return self._keys.get(self._active) or self._fetched(self._active)
        except RecordUnreadable as error:
            known = ", ".join(sorted(self._keys)) or "none"
            message = f"There is no key {self._active!r} to seal with; {_NOTHING}. Keys at hand: {known}."
            raise UsageError(message) from error

    def _fetched(self, key_id: str) -> _DerivingKey:
        if self._fetch is None or not _ID.fullmatch(key_id):
            raise missing_key_error(key_id)
        try:
            found = self._fetch(key_id)
        except Exception as error:
            why = f"which could not be fetched ({type(error).__name__})"
            raise missing_key_error(key_id, why) from error
        if found is None:
            raise missing_key_error(key_id)
        try:
            key = self._keys[key_id] = _DerivingKey(key_id, read_key(key_id, found))
        except UsageError as error:
            raise missing_key_error(key_id, "of which no usable key was fetched") from error
        return key


class _DerivingKey:
    """One key of the ring, prepared to derive from: HKDF-Extract is done once, and of HKDF-Expand what each field has.

    Ciphers that opened something are kept for the next time: what is replayed is most often replayed again.
    """

    __slots__ = ("_ciphers", "_expand", "_name", "fields", "start")

    def __init__(self, key_id: str, key: bytes) -> None:
        self.start = sealed_start(key_id)
        self.fields: dict[bytes, tuple[bytes, HMAC]] = {}
        self._ciphers: dict[bytes, AESGCM] = {}
        self._expand = HMAC(hmac.digest(_SALT, key, "sha256"), SHA256())
        name = key_id.encode()
        self._name = _VERSION + len(name).to_bytes(1, "big") + name

    def open(self, subject: bytes, field: bytes, body: bytes) -> bytes:
        prefix, expanding = self.fields.get(field) or self.prepare(field)
        bound = prefix + subject
        cipher = self._ciphers.get(bound)
        if cipher is None:
            expand = expanding.copy()
            expand.update(subject + _FIRST_BLOCK)
            cipher = AESGCM(expand.finalize())
            if len(self._ciphers) >= _MOST_CIPHERS:
                self._ciphers.clear()
            self._ciphers[bound] = cipher
        return cipher.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], bound)

    def prepare(self, field: bytes) -> tuple[bytes, HMAC]:
        """What all texts of a field are bound to, and HKDF-Expand over it: HMAC-SHA-256 of that, subject and block."""
        prefix = b"%b%c%b" % (self._name, len(field), field)
        expanding = self._expand.copy()
        expanding.update(prefix)
        if len(self.fields) < _MOST_FIELDS:  # each step of a record is a field
            self.fields[field] = prefix, expanding
        return prefix, expanding


_NONCES: Final[list[bytes]] = []
"""Random nonces that nobody has used; one that is taken is gone, whichever thread takes it."""
os.register_at_fork(after_in_child=_NONCES.clear)


def _draw_nonces() -> bytes:
    """A random nonce; others are laid by, because asking the system takes longer than sealing a short text."""
    drawn: tuple[bytes, ...] = _SPLIT(os.urandom(_NONCE_BYTES * _LOT))
    _NONCES.extend(drawn[1:])
    return drawn[0]


def _nonce_of(derived: bytes, plain: bytes) -> bytes:
    return hmac.digest(derived, b"semel.nonce" + plain, "sha256")[:_NONCE_BYTES]


def _check_id(key_id: object) -> str:
    if isinstance(key_id, str) and _ID.fullmatch(key_id):
        return key_id
    shown = repr(key_id) if isinstance(key_id, str) and len(key_id) < _KEY_BYTES else f"a {type(key_id).__name__}"
    message = (
        f"The id of a key has 1 to 64 letters, digits and . _ : -, and begins with a letter or digit, unlike {shown}; "
        f"{_NOTHING}. It is written beside everything that the key seals."
    )
    raise UsageError(message)


def read_key(key_id: str, given: object) -> bytes:
    """The 32 bytes of a key as it was given.

    Raises:
        UsageError: it is none; what was given is not shown.
    """
    key = _decoded(given) if isinstance(given, str) else given
    if not isinstance(key, bytes | bytearray) or len(key) != _KEY_BYTES:
        message = (
            f"The key {key_id!r} is not usable; {_NOTHING}. A key has 32 bytes: as bytes, as 64 hexadecimal digits, or "
            f'as base64. Make one: python -c "import secrets; print(secrets.token_hex(32))".'
        )
        raise UsageError(message)
    if len(set(key)) == 1:
        raise UsageError(f"The key {key_id!r} is one byte 32 times, which is no secret; {_NOTHING}.")
    return bytes(key)


def _decoded(text: str) -> bytes | None:
    text = text.strip()
    try:
        if len(text) == _HEX_DIGITS:
            return bytes.fromhex(text)
        standard = text.replace("-", "+").replace("_", "/")
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None


def read_key_file(path: str | os.PathLike[str]) -> dict[str, Key]:
    """The keys in a TOML file, one line `id = "key"` for each.

    Raises:
        UsageError: it cannot be read.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            found = tomllib.load(file)
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise UsageError(f"The key file {place} cannot be read: {reason}; {_NOTHING}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # What TOML found wrong may show a part of a key.
        raise UsageError(f'The key file {place} is no TOML of lines `"id" = "key"`; {_NOTHING}.') from None
    for key_id, key in found.items():
        if not isinstance(key, str):
            message = f'{place} holds no text for {key_id!r}; {_NOTHING}. Write "id" = "key", the id in quotes.'
            raise UsageError(message)
    return found


def read_key_text(text: str, source: str) -> dict[str, Key]:
    """The keys in a text `id=key,id=key`.

    Raises:
        UsageError: it is empty, or not of that form.
    """
    keys: dict[str, Key] = {}
    for number, part in enumerate(filter(None, re.split(r"[,\s]+", text)), start=1):
        key_id, equals, key = part.partition("=")
        if not (key_id and equals and key):
            raise UsageError(f"Part {number} of {source} is not of the form id=key; {_NOTHING}.")
        keys[key_id] = key
    if not keys:
        raise UsageError(f"{source} holds no key; {_NOTHING}. It is written id=key, several with commas between them.")
    return keys
