"""The key: who (scope), what (operation), which (value), and the 32-byte digest that names the record.

- Two keys share a digest only if scope, operation and value are all equal, text byte for byte.
- The digest alone is the identity; the texts are for people and for searching.
- A signed key is a made key with the name of a secret, an expiry and a MAC behind it. It stands for the made key alone:
  signed again, with a later expiry or the next secret, it is still the same operation.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from semel.core.fingerprint import LEAST_SECRET, CannotEncode, encode_canonical
from semel.errors import KeyExpired, KeyInvalid, KeyMissing

MAX_TEXT = 255
_TEXTS = {str}
_FORM = re.compile(r"[0-9a-f]{64}")
_SIGNED_FORM = re.compile(r"([0-9a-f]{64})\.([A-Za-z0-9_-]{1,32})\.(0|[1-9][0-9]{0,11})\.([0-9a-f]{32})")
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_MAC_DIGITS = 32  # 128 bits: nobody guesses one
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)
_BROKEN = re.compile(r"[\ud800-\udfff]")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Shared:
    """The type of `SHARED`: the scope of operations that belong to nobody in particular."""

    def __repr__(self) -> str:
        return "SHARED"

    def __reduce__(self) -> str:
        return "SHARED"


SHARED: Final = Shared()

type_of_part = "str, int, Decimal, bool, None, bytes, UUID, date, datetime or Enum"
KeyValue = str | tuple[object, ...]
Scope = str | tuple[object, ...] | Shared


class Key(msgspec.Struct, frozen=True):
    """Identity of one operation. Made by `Key.of`; stores rebuild it from what they kept."""

    scope: str
    operation: str
    value: str
    digest: bytes

    @staticmethod
    def of(value: object, *, operation: object, scope: object = SHARED) -> Key:
        """The key for `value` under `operation` and `scope`.

        Raises:
            KeyMissing: the key or the scope is None, or the scope is empty.
            KeyInvalid: one of the three is otherwise empty, too long, holds control characters, or is not a string;
                key and scope may also be tuples of plain values.
        """
        scope_text, scope_bytes = ("", b"shared;") if scope is SHARED else _part("scope", scope)
        operation_text, operation_bytes = _operation(operation)
        value_text, value_bytes = _part("key", value)
        tagged = b"semel.key.1%b%b%b" % (scope_bytes, operation_bytes, value_bytes)
        return Key(scope_text, operation_text, value_text, hashlib.sha256(tagged).digest())

    @property
    def reference(self) -> str:
        """The digest in hex: how a record is named in errors, logs and on the command line."""
        return self.digest.hex()

    def derive(self, step: str) -> str:
        """A key for the next service: of this whole key and `step`, the same on every attempt.

        Raises:
            KeyInvalid: the step is not a non-empty string.
        """
        if not isinstance(step, str) or not _is_text(step):
            message = f"derive() needs the name of a step, not {step!r:.100}; no key was made. Give a non-empty string."
            raise KeyInvalid(message)
        return hashlib.sha256(b"semel.derive.1" + self.digest + encode_canonical(step, exact=True)).hexdigest()


def is_internal(operation: str) -> bool:
    """Whether an operation is one of semel's own, which are shown only to those who ask for it."""
    return operation.startswith("semel:")


def make_key(
    *parts: object,
    version: str | int | None = None,
    secret: bytes | str | None = None,
    key_id: str | None = None,
    tenant: KeyValue | None = None,
    expires: datetime | None = None,
) -> str:
    """A key of 64 hex digits made from `parts`; with `secret` it is an HMAC that outsiders cannot compute.

    With `key_id` as well it is a signed key, which `verify_key` checks: the digits, and behind them the name of the
    secret, the expiry and a MAC over all of it and `tenant`. The digits do not depend on the secret then, so that they
    stay the same when secrets change.

    Args:
        parts: what makes the operation this one.
        version: of the way in which keys are made; another version makes other keys.
        secret: makes it an HMAC, or signs it.
        key_id: the name of the secret, by which the service finds it: letters, digits, `-` and `_`.
        tenant: for whom it is signed, as the service's `scope` tells it; no other caller can use it.
        expires: until when it is taken; for ever without it.

    Raises:
        KeyMissing: no part was given.
        KeyInvalid: a part cannot be encoded, the secret is empty or no text or bytes, or a signed key lacks something.
    """
    if not parts:
        message = "make_key() needs at least one part; nothing ran. Give it what makes the operation this one."
        raise KeyMissing(message)
    body = b"semel.make_key.1" + _encoded("key", [version, parts])
    if key_id is not None:
        return _sign(hashlib.sha256(body).hexdigest(), secret, key_id, tenant, expires)
    if tenant is not None or expires is not None:
        message = "tenant= and expires= belong to a signed key; no key was made. Give key_id= and secret= as well."
        raise KeyInvalid(message)
    if secret is None:
        return hashlib.sha256(body).hexdigest()
    return hmac.new(_secret(secret), body, hashlib.sha256).hexdigest()


class KeyRing:
    """The secrets that signed keys are verified with, by their names. Shows none of them.

    Raises:
        KeyInvalid: there is none, or a name or a secret cannot be one.
    """

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Mapping[str, bytes | str]) -> None:
        given: object = secrets
        if not isinstance(given, Mapping) or not given:
            message = "Secrets for signed keys are given as a mapping from their names, with at least one; nothing ran."
            raise KeyInvalid(message)
        self._secrets = {_key_id(name): _long_secret(secret) for name, secret in given.items()}

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(sorted(self._secrets))})"

    def verify(self, text: object, tenant: KeyValue, now: datetime) -> str:
        """As `verify_key`, at the instant `now`."""
        found = _SIGNED_FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise _not_signed()
        made, key_id, expires, mac = found.groups()
        # An unknown name is compared all the same: how long the refusal takes tells nothing.
        secret = self._secrets.get(key_id)
        wanted = _mac(secret or b"unknown", made, key_id, tenant, expires)
        if not hmac.compare_digest(wanted, mac) or secret is None:
            raise _not_signed()
        if expires != "0" and now.timestamp() >= int(expires):
            message = "The signed key has expired; nothing ran. Have it signed again: it stays the same operation."
            raise KeyExpired(message)
        return made


def _sign(made: str, secret: object, key_id: object, tenant: object, expires: datetime | None) -> str:
    if secret is None or tenant is None:
        message = "A signed key needs secret=, key_id= and tenant=; no key was made."
        raise KeyInvalid(message)
    until = "0" if expires is None else str(_whole_seconds(expires))
    name = _key_id(key_id)
    return f"{made}.{name}.{until}.{_mac(_long_secret(secret), made, name, tenant, until)}"


def _whole_seconds(expires: datetime) -> int:
    given: object = expires
    if not isinstance(given, datetime) or given.utcoffset() is None:
        message = "expires= is a datetime with a time zone; no key was made."
        raise KeyInvalid(message)
    seconds = int(min(expires, _LATEST).timestamp())
    if seconds < 1:
        message = "expires= lies before 1970; no key was made."
        raise KeyInvalid(message)
    return seconds


def _long_secret(secret: object) -> bytes:
    """A secret that cannot be found by trying: whoever has a signed key can try as long as they like."""
    found = _secret(secret)
    if len(found) < LEAST_SECRET:
        message = f"A secret that signs keys has at least {LEAST_SECRET} bytes; nothing ran. Make one at random."
        raise KeyInvalid(message)
    return found


def _key_id(name: object) -> str:
    if isinstance(name, str) and _KEY_ID.fullmatch(name):
        return name
    message = "The name of a secret has 1 to 32 letters, digits, - or _; nothing ran."
    raise KeyInvalid(message)


def _mac(secret: bytes, made: str, key_id: str, tenant: object, expires: str) -> str:
    _, who = _part("tenant", tenant)
    signed = b"semel.signed_key.1" + _encoded("key", [made, key_id, expires]) + who
    return hmac.new(secret, signed, hashlib.sha256).hexdigest()[:_MAC_DIGITS]


def _not_signed() -> KeyInvalid:
    """One message for all reasons: whoever tries keys out shall not learn which part was right."""
    return KeyInvalid("The key is not one that was signed for this caller; nothing ran. Send it as it was issued.")


def is_key(text: object) -> bool:
    """Whether `text` has the form that `make_key` gives: 64 lower-case hex digits."""
    return isinstance(text, str) and _FORM.fullmatch(text) is not None


def _secret(secret: object) -> bytes:
    match secret:
        case bytes() | bytearray() if secret:
            return bytes(secret)
        case str() if _is_text(secret):
            return secret.encode()
        case _:
            # The secret itself never enters a message.
            message = "A key needs a secret that is a non-empty str or bytes; nothing ran. Set it or leave it out."
            raise KeyInvalid(message)


def _is_text(text: str) -> bool:
    return bool(text) and not _BROKEN.search(text)


def _operation(operation: object) -> tuple[str, bytes]:
    if isinstance(operation, str):
        return _known_operation(operation if type(operation) is str else _plain(operation))
    message = f"The operation must be a string, not {type(operation).__name__}; nothing ran."
    raise KeyInvalid(message)


@lru_cache(maxsize=1024)
def _known_operation(operation: str) -> tuple[str, bytes]:
    """There are few operations and many calls of each."""
    return _checked("operation", operation), _encoded("operation", operation)


def _part(what: str, value: object) -> tuple[str, bytes]:
    """What people see of a key or scope, and the bytes that enter the digest."""
    if type(value) is str and value.isascii() and value.isprintable() and 0 < len(value) <= MAX_TEXT:
        return value, b"s%d:%b" % (len(value), value.encode())  # as nearly all are; what follows is for the rest
    match value:
        case str():
            text = _checked(what, value if type(value) is str else _plain(value))
            body = text.encode()
            return text, b"s%d:%b" % (len(body), body)
        case tuple() if value:
            is_plain = type(value) is tuple and set(map(type, value)) == _TEXTS
            text = f"({', '.join(value)})" if is_plain else ""
            if text and text.isascii() and text.isprintable() and len(text) <= MAX_TEXT:
                body = b"".join([b"S%d:%b" % (len(part), part.encode()) for part in value])
                return text, b"L%d:%b" % (len(body), body)  # as nearly all are; what follows is the same for the rest
            # Encoded before it is shown: what has no end, in digits or in depth, is refused here.
            encoded = _encoded(what, value)
            return _checked(what, f"({', '.join([_shown(what, part) for part in value])})"), encoded
        case None:
            message = f"The {what} is missing; nothing ran. Give a non-empty string."
            raise KeyMissing(message)
        case _:
            given = "an empty tuple" if value == () else type(value).__name__
            message = (
                f"A {what} must be a non-empty string or a tuple of parts, not {given}; nothing ran. "
                f"Wrap a single value as (value,), or build the key with make_key()."
            )
            raise KeyInvalid(message)


def _plain(text: str) -> str:
    """The text of a subclass (an enum member, say) as a plain string, which is what stores keep."""
    return str.__str__(text)


def _shown(what: str, part: object) -> str:
    match part:
        case str():
            return _plain(part)
        case list() | dict() | set() | frozenset():
            message = f"A part of the {what} is a {type(part).__name__}; nothing ran. Parts are {type_of_part}."
            raise KeyInvalid(message)
        case _:
            return repr(part) if isinstance(part, (bytes, bool)) or part is None else str(part)


def _checked(what: str, text: str) -> str:
    if not text:
        message = f"The {what} is empty; nothing ran. Give a non-empty string."
        raise KeyMissing(message) if what == "scope" else KeyInvalid(message)
    if text.isascii() and text.isprintable() and len(text) <= MAX_TEXT:
        return text  # as nearly all are; what follows is the same for the rest
    if _FORBIDDEN.search(text):
        message = f"The {what} holds control characters or broken text; nothing ran. Use printable characters."
        raise KeyInvalid(message)
    if len(text.encode()) > MAX_TEXT:
        message = (
            f"The {what} takes {len(text.encode())} bytes, more than the {MAX_TEXT} allowed; nothing ran. "
            f"Digest long ones with make_key()."
        )
        raise KeyInvalid(message)
    return text


def _encoded(what: str, value: object) -> bytes:
    try:
        return encode_canonical(value, exact=True)
    except CannotEncode as problem:
        message = f"A part of the {what} cannot be encoded: {problem}. Nothing ran; parts are {type_of_part}."
        raise KeyInvalid(message) from None
