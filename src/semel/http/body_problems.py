"""Problems with the body of a request under WSGI, where a server may not know where it ends. No I/O.

What always holds: they are told before anything ran, and in the same words whichever framework reads the body. A length
is digits alone: what Python reads as a number besides (`1_0`, `-1`) might be something else to whoever stands before.
"""

from __future__ import annotations

import re
from typing import Final

from semel.http.problem import Problem, Refused

_LENGTH: Final = re.compile(r"[0-9]{1,18}")


def length_of(given: str | None) -> int:
    """How long a body says it is; without a word on it there is none.

    Raises:
        Refused: what it says is no number.
    """
    if given and _LENGTH.fullmatch(given) is None:
        raise Refused(length_malformed())
    return int(given or 0)


def incomplete() -> Problem:
    """It was cut off."""
    detail = "The body ended before it was whole; nothing ran. Send the request again with the same key."
    return Problem("body-incomplete", 400, "The body is incomplete", detail)


def length_malformed() -> Problem:
    """What it says of its length cannot be read."""
    detail = "The header Content-Length is no number; nothing ran. Correct it and send the request again."
    return Problem("length-malformed", 400, "The length cannot be read", detail)


def length_required() -> Problem:
    """It does not say how long it is, and its end cannot be told."""
    detail = "This server cannot tell where the body ends; nothing ran. Send it again with a Content-Length."
    return Problem("length-required", 411, "A length is required", detail)
