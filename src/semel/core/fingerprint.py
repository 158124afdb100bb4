"""The fingerprint: a digest of what was asked, so that one key cannot stand for two requests.

What always holds: the first byte is the version of the algorithm. A stored fingerprint of an unknown version is never
compared; the record is unreadable to this version, and nothing runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from semel.core import canonical
from semel.errors import RecordUnreadable, UsageError

VERSION = 1
_PREFIX = bytes([VERSION])


def fingerprint(asked: object, encode: Callable[[Any], bytes] = canonical.encode) -> bytes:
    """The fingerprint of `asked`, a value or a mapping of names to values.

    `encode` may be that of `canonical.Members`, where every call names the same members.

    Raises:
        UsageError: something in it has no canonical form.
    """
    try:
        return _PREFIX + hashlib.sha256(encode(asked)).digest()
    except canonical.CannotEncode as problem:
        message = f"The fingerprint cannot be taken: {problem}. Nothing ran; leave that argument out with ignore=(…)."
        raise UsageError(message) from None


def check_version(stored: bytes) -> None:
    """Refuse to compare with a fingerprint made by an algorithm this version does not know."""
    if stored[:1] != _PREFIX:
        message = (
            f"The record's fingerprint is of version {stored[0] if stored else 'none'}, and this release knows only "
            f"{VERSION}; nothing ran. Upgrade semel here before using this key again."
        )
        raise RecordUnreadable(message)
