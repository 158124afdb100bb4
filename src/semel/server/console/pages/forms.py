"""Forms as they arrive: their fields, and whether they are of a page that this browser was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from semel.server.api.protection import read_bounded
from semel.server.console.security import why_foreign
from semel.server.console.view import View
from semel.server.refusals import Forbidden, Invalid
from semel.validation import read_json

MOST: Final = 200
"""How many targets one form can name."""
_DIGITS: Final = 18
"""More would not fit what stores count with."""
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Given:
    """The fields of a form or of an address, in their order."""

    pairs: tuple[tuple[str, str], ...]

    @staticmethod
    def of(pairs: list[tuple[str, str]]) -> Given:
        """These fields."""
        return Given(tuple(pairs))

    def first(self, name: str) -> str:
        """The first value of a name, exactly as it was given; empty where there is none."""
        return next((value for key, value in self.pairs if key == name), "")

    def stripped(self, name: str) -> str:
        """The same for what people type, where blanks around it mean nothing."""
        return self.first(name).strip()

    def all(self, name: str) -> list[str]:
        """Every value of a name, each once."""
        return list(dict.fromkeys(value for key, value in self.pairs if key == name))


def read_number(text: str, because: str) -> int:
    """A position or another whole number, as a page has written it.

    Raises:
        Invalid: it is none, or none that a store could hold.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise Invalid("A position is a number; nothing was done.", because=because)
    return int(text)


def read_value(text: str) -> Any:
    """The value that was stated, as JSON; nothing is None.

    Raises:
        Invalid: it is no JSON, or would not be kept exactly.
    """
    if not text.strip():
        return None
    try:
        return read_json(text)
    except ValueError as problem:
        raise Invalid(
            f'The value is no JSON ({problem}); nothing was changed. A text stands in quotation marks: "paid".',
            because="value",
        ) from None


async def read_form(view: View) -> Given:
    """The fields of a form that was sent, of bounded size.

    Raises:
        Invalid: it is no form, too large, or holds what no store could keep.
    """
    kind = view.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise Invalid("A form is sent as a page sends it; nothing was changed.", because="form")
    text = (await read_bounded(view.request)).decode("utf-8", "replace")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=2 * MOST + 50)
    except ValueError:
        raise Invalid("The form has too many fields; nothing was changed.", because="form") from None
    if any("\0" in text for pair in pairs for text in pair):
        raise Invalid("A field holds a NUL character; nothing was changed.", because="form")
    return Given.of(pairs)


def check_form(view: View, given: Given) -> None:
    """Refuse a form that another site, another browser or another user sends.

    Raises:
        Forbidden: it is one.
    """
    foreign = why_foreign(view.request, view.user.name, given.first("token"))
    if foreign is not None:
        raise Forbidden(f"This form was not taken, because {foreign}; nothing was changed. Open the page again.")
