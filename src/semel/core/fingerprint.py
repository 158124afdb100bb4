"""The fingerprint: a digest of what was asked, so that one key cannot stand for two requests.

What always holds: a fingerprint says by itself how it was made, so that a request can be compared with a record of an
earlier release, or one made under another secret, by taking its fingerprint in the same way again. One made in a way
that is unknown here is never compared; the record is unreadable, and nothing runs.

Layout: one byte for the version, with its highest bit set where the digest is keyed; where it is, four bytes that name
the secret; 32 bytes of digest.

| first byte | what is read | digest |
|---|---|---|
| `01` | every argument and every field | SHA-256 |
| `02` | arguments and fields that do not equal their default | SHA-256 |
| `82` | the same | HMAC-SHA-256 with the secret named |
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from semel.core import canonical
from semel.errors import RecordUnreadable, UsageError

VERSION = 2
LEAST_SECRET = 16
_KEYED = 0x80
_PLAIN_PREFIX = bytes([VERSION])
_NAME_BYTES = 4

Secret = bytes | str
Encoders = Mapping[int, Callable[[Any], bytes]]
"""How what was asked becomes bytes, by version."""
ENCODERS: Encoders = {1: canonical.encode, 2: canonical.encode_without_defaults}


class Secrets:
    """The secrets of an engine: the first makes fingerprints, all of them compare. Without one, digests are plain.

    Args:
        given: a secret, or several. None as the first of several: plain digests are made, and all secrets compare.

    Raises:
        UsageError: a secret is no text or bytes, or too short to be one.
    """

    __slots__ = ("_by_name", "current")

    def __init__(self, given: Secret | Sequence[Secret | None] | None = None) -> None:
        several = list(given) if isinstance(given, (tuple, list)) else [given]
        keys = [None if secret is None else _key(secret) for secret in several]
        if not keys or None in keys[1:]:
            raise _bad_secrets()
        self._by_name = {_name(key): key for key in keys if key is not None}
        self.current: tuple[bytes, bytes] | None = None if keys[0] is None else (_name(keys[0]), keys[0])

    def __repr__(self) -> str:
        return f"Secrets({len(self._by_name)} known)"

    def find(self, name: bytes) -> bytes | None:
        """The secret of this name, if it is known here."""
        return self._by_name.get(name)


NO_SECRETS = Secrets()


class Fingerprints:
    """Takes the fingerprints of one kind of request, and takes them again as somebody else did."""

    __slots__ = ("_encode", "_encoders", "_key", "_prefix", "_secrets")

    def __init__(self, secrets: Secrets = NO_SECRETS, encoders: Encoders = ENCODERS) -> None:
        self._secrets = secrets
        self._encoders = encoders
        self._encode = encoders[VERSION]
        self._key: bytes | None
        name, self._key = secrets.current or (b"", None)
        self._prefix = _PLAIN_PREFIX if self._key is None else bytes([VERSION | _KEYED]) + name

    def take(self, asked: Any) -> bytes:
        """The fingerprint of `asked`, by the newest version and under the current secret.

        Raises:
            UsageError: something in it has no canonical form.
        """
        try:
            encoded = self._encode(asked)
        except canonical.CannotEncode as problem:
            raise _cannot_take(problem) from None
        key = self._key
        return self._prefix + (sha256(encoded).digest() if key is None else hmac.digest(key, encoded, "sha256"))

    def matches(self, stored: bytes, asked: Any) -> bool:
        """Whether `stored` is the fingerprint of `asked`, taken in the way that `stored` was.

        Raises:
            RecordUnreadable: it was made by a version, or under a secret, that is not known here.
        """
        version, key, digest = self._read(stored)
        try:
            encoded = self._encoders[version](asked)
        except canonical.CannotEncode:
            return False  # an earlier version had no form for it, so it was not asked then
        return hmac.compare_digest(
            digest, sha256(encoded).digest() if key is None else hmac.digest(key, encoded, "sha256")
        )

    def _read(self, stored: bytes) -> tuple[int, bytes | None, bytes]:
        """The version, the secret and the digest of a stored fingerprint."""
        first = stored[0] if stored else 0
        version = first & ~_KEYED
        if version not in self._encoders:
            raise _unknown_version(version)
        if not first & _KEYED:
            return version, None, stored[1:]
        key = self._secrets.find(stored[1 : 1 + _NAME_BYTES])
        if key is None:
            raise _unknown_secret()
        return version, key, stored[1 + _NAME_BYTES :]


PLAIN = Fingerprints()


def fingerprint(asked: object) -> bytes:
    """The fingerprint of `asked`, a value or a mapping of names to values, without a secret.

    Raises:
        UsageError: something in it has no canonical form.
    """
    return PLAIN.take(asked)


def _key(secret: object) -> bytes:
    match secret:
        case bytes() | bytearray() if len(secret) >= LEAST_SECRET:
            return bytes(secret)
        case str():
            try:
                return _key(secret.encode())
            except UnicodeEncodeError:
                raise _bad_secrets() from None
    raise _bad_secrets()


def _name(key: bytes) -> bytes:
    """The name of a secret in fingerprints: no encoding begins as this text does, so it is no fingerprint itself."""
    return hmac.digest(key, b"semel.fingerprint.secret", "sha256")[:_NAME_BYTES]


def _bad_secrets() -> UsageError:
    # The secret itself never enters a message.
    return UsageError(
        f"fingerprint_secret= takes a str or bytes of at least {LEAST_SECRET} bytes, or several of them of which only "
        f"the first may be None; nothing ran. Make one with secrets.token_bytes(32)."
    )


def _cannot_take(problem: Exception) -> UsageError:
    return UsageError(
        f"The fingerprint cannot be taken: {problem}. Nothing ran; leave that argument out with ignore=(…), or say "
        f"what is compared with fingerprint=."
    )


def _unknown_version(version: int) -> RecordUnreadable:
    return RecordUnreadable(
        f"The record's fingerprint is of version {version or 'none'}, and this release knows those up to {VERSION}; "
        f"nothing ran. Upgrade semel here before using this key again."
    )


def _unknown_secret() -> RecordUnreadable:
    return RecordUnreadable(
        "The record's fingerprint was made under a secret that is not known here; nothing ran. Give that secret to "
        "fingerprint_secret= as well, after the current one, for as long as its records are kept."
    )
