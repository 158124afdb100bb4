"""The key: who (scope), what (operation), which (value), and the 32-byte digest that names the record.

- Two keys share a digest only if scope, operation and value are all equal, text byte for byte.
- The digest alone is the identity; the texts are for people and for searching.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from functools import lru_cache
from typing import Final

import msgspec

from semel.core.fingerprint import CannotEncode, encode_canonical
from semel.errors import KeyInvalid, KeyMissing

MAX_TEXT = 255
_TEXTS = {str}
_FORM = re.compile(r"[0-9a-f]{64}")
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


def make_key(*parts: object, version: str | int | None = None, secret: bytes | str | None = None) -> str:
    """A key of 64 hex digits made from `parts`; with `secret` it is an HMAC that outsiders cannot compute.

    Raises:
        KeyMissing: no part was given.
        KeyInvalid: a part cannot be encoded, or the secret is empty or no text or bytes.
    """
    if not parts:
        message = "make_key() needs at least one part; nothing ran. Give it what makes the operation this one."
        raise KeyMissing(message)
    body = b"semel.make_key.1" + _encoded("key", [version, parts])
    if secret is None:
        return hashlib.sha256(body).hexdigest()
    return hmac.new(_secret(secret), body, hashlib.sha256).hexdigest()


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
            message = "make_key() needs a secret that is a non-empty str or bytes; nothing ran. Set it or leave it out."
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
