"""From header lines to a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.http.request import LONGEST, BadKey, key_of

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=LONGEST)


def quoted(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@given(PRINTABLE)
def test_every_printable_text_can_be_a_quoted_key(key: str) -> None:
    assert key_of([quoted(key)]) == key


@given(PRINTABLE)
def test_a_bare_key_is_the_quoted_one_or_refused(key: str) -> None:
    try:
        bare = key_of([key])
    except BadKey:
        return
    assert bare in (key.strip(" "), key_of([quoted(bare or "")]))


@pytest.mark.parametrize(
    "line",
    ["k-1", '"k-1"', ' "k-1" ', "\tk-1", '"k-1";v=1', '"k-1"; a; b="x"', '"k-1";t=?1', '"k-1";d=@1', '"k-1";s=%"a"'],
)
def test_spellings_of_one_key(line: str) -> None:
    assert key_of([line]) == "k-1"


def test_no_line_is_no_key() -> None:
    assert key_of([]) is None


@pytest.mark.parametrize(
    "lines",
    [
        ["a", "a"],
        ["a,b"],
        ['"a","b"'],
        ['"a", "b"'],
        [""],
        [" "],
        ['""'],
        ['"a'],
        ['a"'],
        ['"a"b'],
        ['"a\\x"'],
        ['"a\\"'],
        ["a b"],
        ["a;b=1"],
        ['"a";=1'],
        ['"a" ;v=1'],
        ['"a";v=1234567890123.1'],
        ['"ä"'],
        ["ä"],
        ["a\x00"],
        ['"a\x7f"'],
        ["a\\b"],
        ["x" * 256],
        ['"' + "x" * 256 + '"'],
    ],
    ids=lambda lines: f"{len(lines)} {lines[0][:12]!r}",
)
def test_what_gives_no_key_is_refused(lines: list[str]) -> None:
    with pytest.raises(BadKey):
        key_of(lines)


def test_the_longest_key_is_a_key() -> None:
    assert key_of(["x" * LONGEST]) == "x" * LONGEST


def test_a_route_may_ask_for_longer_keys() -> None:
    with pytest.raises(BadKey, match="fewer than the 16"):
        key_of(["short"], min_length=16)
