"""Text in one Unicode form: what is refused before the normaliser sees it."""

from __future__ import annotations

from unicodedata import combining, normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel import Semel
from semel.core.fingerprint import MAX_MARKS, TooManyMarks, normalize_text
from semel.errors import UsageError

ACUTE = "\u0301"


@given(st.text() | st.text("a\u0301\u0316\u0344\u0f73\u1100\u1161\u037e", max_size=40))
def test_text_is_normalised_or_refused(text: str) -> None:
    try:
        found = normalize_text(text)
    except TooManyMarks:
        assert len(text) > MAX_MARKS, f"{text!r} was refused"
    else:
        assert found == normalize("NFC", text)


def test_every_character_that_the_normaliser_has_to_sort_counts_as_a_mark() -> None:
    letters = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    marks = [letter for letter in letters if combining(normalize("NFD", letter)[0])]
    assert len(marks) > 900, "the Unicode database was not read"
    missed = [f"U+{ord(mark):04X}" for mark in marks if not is_refused(mark * (MAX_MARKS + 1))]
    assert not missed, f"runs of these are not refused: {missed}"


def is_refused(text: str) -> bool:
    try:
        normalize_text(text)
    except TooManyMarks:
        return True
    return False


@pytest.mark.parametrize("before", ["", "a", "a" * 100, "\u037e" * 100, (ACUTE * 30 + "\u037e") * 3])
def test_a_run_that_is_too_long_is_found_wherever_it_stands(before: str) -> None:
    assert not is_refused(f"{before}{ACUTE * 30}")
    assert is_refused(f"{before}a{ACUTE * 31}")
    assert is_refused(f"{before}\u037e{ACUTE * 31}b")


@pytest.mark.parametrize("value", ["a" + ACUTE * 31, {"a" + ACUTE * 31: 1}, ["\u0f73" * 31]], ids=repr)
def test_a_function_is_not_called_with_such_text_and_the_caller_is_told(value: object) -> None:
    with Semel("memory://") as semel:
        calls: list[object] = []

        @semel.once(key="order", operation="note")
        def note(order: str, text: object) -> None:
            calls.append(text)

        with pytest.raises(UsageError, match=r"more than 30 combining characters in a row\. Nothing ran"):
            note("o-1", value)
        assert calls == [], "the function ran"


def test_a_key_is_compared_as_it_is_and_may_hold_any_text() -> None:
    with Semel("memory://") as semel:
        seen: list[str] = []

        @semel.once(key="order", scope="tenant", operation="note")
        def note(tenant: str, order: str) -> None:
            seen.append(order)

        for order in ("a" + ACUTE * 40, "a" + ACUTE * 41, "\u00e1", "a" + ACUTE):
            note("acme" + ACUTE * 40, order)
        assert len(seen) == 4, f"of four keys {len(seen)} ran"
