"""Text in one Unicode form, in time that grows with its length alone.

What always holds: no more than 30 combining characters in a row reach the normaliser, which takes time with the square
of such a run and holds the interpreter meanwhile, so that nothing else of the process moves. 30 is the bound of the
Stream-Safe Text Format (UAX #15); no language comes near it.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import combining, normalize

MAX_MARKS: Final = 30
# Every combining character is in this class, and nearly no text has so many of its members in a row.
_MAY_BE_MARKS: Final = re.compile(rf"[^\w\x00-\u02ff]{{{MAX_MARKS + 1},}}")
# Starters by their own class that are taken apart into combining characters alone.
_MADE_OF_MARKS: Final = frozenset("\u0f73\u0f75\u0f81")


class TooManyMarks(Exception):
    """The text has no form to compare; the message is a clause that says why."""


def normalized(text: str) -> str:
    """The text in Unicode form NFC.

    Raises:
        TooManyMarks: it holds more than 30 combining characters in a row.
    """
    if text.isascii():
        return text
    for run in _MAY_BE_MARKS.finditer(text):
        _check(run.group())
    return normalize("NFC", text)


def _check(run: str) -> None:
    marks = 0
    for letter in run:
        marks = marks + 1 if combining(letter) or letter in _MADE_OF_MARKS else 0
        if marks > MAX_MARKS:
            message = f"its text holds more than {MAX_MARKS} combining characters in a row"
            raise TooManyMarks(message)
