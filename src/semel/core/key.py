"""The key: who (scope), what (operation), which (value), and the 32-byte digest that names the record.

What always holds: two keys share a digest only if scope, operation and value are all equal. The digest alone is the
identity; the texts beside it are for people and for searching.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from functools import lru_cache
from typing import Final

import msgspec

from semel.core import canonical
from semel.errors import KeyInvalid, KeyMissing

MAX_TEXT = 255
_FORM = re.compile(r"[0-9a-f]{64}")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


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
            KeyMissing: a part is None or empty.
            KeyInvalid: a part is too long, holds control characters, or is not a string or a tuple of plain values.
        """
        scope_text = "" if scope is SHARED else _text("scope", scope)
        operation_text = _operation(operation)
        value_text = _text("key", value)
        tagged = b"semel.key.1%b%b%b" % (
            b"shared;" if scope is SHARED else b"scope;" + _encoded("scope", scope),
            _encoded_operation(operation_text),
            _encoded("key", value),
        )
        return Key(scope_text, operation_text, value_text, hashlib.sha256(tagged).digest())

    @property
    def reference(self) -> str:
        """The digest in hex: how a record is named in errors, logs and on the command line."""
        return self.digest.hex()

    def derive(self, step: str) -> str:
        """A key for the next service: of this whole key and `step`, the same on every attempt."""
        return hashlib.sha256(b"semel.derive.1" + self.digest + canonical.encode(step)).hexdigest()


def make_key(*parts: object, version: str | int | None = None, secret: bytes | str | None = None) -> str:
    """A key of 64 hex digits made from `parts`; with `secret` it is an HMAC that outsiders cannot compute.

    Raises:
        KeyMissing: no part was given.
        KeyInvalid: a part cannot be encoded, or the secret is empty.
    """
    if not parts:
        message = "make_key() needs at least one part; nothing ran. Give it what makes the operation this one."
        raise KeyMissing(message)
    if secret is not None and not secret:
        message = "make_key() was given an empty secret, which protects nothing; nothing ran. Leave it out or set it."
        raise KeyInvalid(message)
    try:
        body = b"semel.make_key.1" + canonical.encode([version, list(parts)])
    except canonical.CannotEncode as problem:
        message = f"A part of the key cannot be encoded: {problem}. Nothing ran; use {type_of_part}."
        raise KeyInvalid(message) from None
    if secret is None:
        return hashlib.sha256(body).hexdigest()
    return hmac.new(secret.encode() if isinstance(secret, str) else secret, body, hashlib.sha256).hexdigest()


def is_key(text: object) -> bool:
    """Whether `text` has the form that `make_key` gives: 64 lower-case hex digits."""
    return isinstance(text, str) and _FORM.fullmatch(text) is not None


def _operation(operation: object) -> str:
    if isinstance(operation, str):
        return _checked("operation", operation)
    message = f"The operation must be a string, not {type(operation).__name__}; nothing ran."
    raise KeyInvalid(message)


@lru_cache(maxsize=1024)
def _encoded_operation(operation: str) -> bytes:
    return canonical.encode(operation)


def _text(what: str, value: object) -> str:
    """What people see of `value`: the string itself, or the parts of a tuple in brackets."""
    match value:
        case str():
            return _checked(what, value)
        case tuple() if value:
            return _checked(what, f"({', '.join(_shown(what, part) for part in value)})")
        case None:
            message = f"The {what} is missing; nothing ran. Give a non-empty string."
            raise KeyMissing(message)
        case _:
            message = (
                f"A {what} must be a non-empty string or a tuple of parts, not {type(value).__name__}; nothing ran. "
                f"Wrap a single value as (value,), or build the key with make_key()."
            )
            raise KeyInvalid(message)


def _shown(what: str, part: object) -> str:
    match part:
        case str():
            return part
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
        # Exact text, not its normal form: a key names one thing byte for byte.
        if isinstance(value, str):
            text = value.encode()
            return b"s%d:%b" % (len(text), text)
        return canonical.encode(value)
    except canonical.CannotEncode as problem:
        message = f"A part of the {what} cannot be encoded: {problem}. Nothing ran; parts are {type_of_part}."
        raise KeyInvalid(message) from None
