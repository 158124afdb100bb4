"""How the key of a record is spelt in Redis, and back.

What always holds: two digests never share a key. Braces of an operation are written as escapes: in a cluster what
stands in braces alone decides about the place, and a whole operation would be kept by one node.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from semel.errors import UsageError

DEFAULT: Final = "semel:{operation}:{digest}"

_PLACES: Final = re.compile(r"\{(\w*)\}")
_ESCAPES: Final = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_GLOB: Final = re.compile(r"([*?\[\]\\^])")


class Pattern:
    """A pattern with the places {operation}, which may be missing, and {digest}."""

    def __init__(self, text: str) -> None:
        self.text = text
        places = _PLACES.findall(text)
        if sorted(places) not in (["digest"], ["digest", "operation"]) or set(_PLACES.sub("", text)) & set("{}"):
            message = (
                f"The pattern of a key holds {{digest}} once and {{operation}} at most once, and no other braces, not "
                f"{text!r}; nothing was opened. Write for example myapp:{{operation}}:{{digest}}."
            )
            raise UsageError(message)
        self.names_operation = "operation" in places
        self.channel = f"{_PLACES.split(text)[0]}ended"
        """Where ends are told, to whoever waits."""
        self._literal = text.replace("{operation}", "\0operation").replace("{digest}", "\0digest")
        shape = re.escape(self._literal)
        shape = shape.replace(re.escape("\0operation"), "(?P<operation>.*)")
        self._shape = re.compile(shape.replace(re.escape("\0digest"), "(?P<digest>[0-9a-f]{64})"), re.DOTALL)

    def key(self, operation: str, digest: bytes) -> str:
        """The key of a record."""
        before, after = _around(self._literal, operation)
        return f"{before}{digest.hex()}{after}"

    def match(self, operation: str | None = None, reference: str = "") -> str:
        """A glob for the keys of an operation, or of all; `reference` is how the digest in hex begins."""
        wanted = "*" if operation is None else _GLOB.sub(r"\\\1", operation.translate(_ESCAPES))
        literal = _GLOB.sub(r"\\\1", self._literal)
        digest = reference if len(reference) == 64 else f"{reference}*"  # noqa: PLR2004 - digits of a digest
        return literal.replace("\0operation", wanted).replace("\0digest", digest)

    def digest(self, key: str) -> bytes | None:
        """The digest in a key; None where it is no key of this pattern."""
        found = self._shape.fullmatch(key)
        return None if found is None else bytes.fromhex(found["digest"])


@lru_cache(maxsize=1024)
def _around(literal: str, operation: str) -> tuple[str, str]:
    """What stands before and after the digest in the keys of an operation: there are few of these, and many keys."""
    before, _, after = literal.replace("\0operation", operation.translate(_ESCAPES)).partition("\0digest")
    return before, after
