"""What a body says."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.http.body import BadBody, joined, meaning

JSON = "application/json"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def said(body: str | bytes, content_type: str = JSON, **settings: Any) -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    return meaning(raw, content_type, **settings)


@given(VALUES, VALUES)
def test_two_bodies_are_the_same_only_if_they_are_equal(one: Any, other: Any) -> None:
    try:
        first, second = said(json.dumps(one)), said(json.dumps(other))
    except BadBody:
        return
    assert (first == second) == (normal(one) == normal(other))


def normal(value: Any) -> str:
    import unicodedata

    return unicodedata.normalize("NFC", json.dumps(tagged(value), sort_keys=True, ensure_ascii=False))


def tagged(value: Any) -> Any:
    """JSON with truth told from numbers, as Python's == does not."""
    if isinstance(value, bool):
        return ["truth", value]
    if isinstance(value, list):
        return ["list", [tagged(item) for item in value]]
    return {name: tagged(item) for name, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{"b" : 2, "a" : 1}'),
        ("1", "1.0"),
        ("100", "1e2"),
        ("9223372036854775808", "9223372036854775808.0"),
        ("18446744073709551615", "18446744073709551615.0"),
        ("18446744073709551616", "18446744073709551616.0"),
        ('{"a":[-9223372036854775809]}', '{"a":[-9223372036854775809.0]}'),
        ("1" + "0" * 400, "1e400"),
        ("-25e-1", "-2.50"),
        ("123456789012345678901234567890", "1.2345678901234567890123456789e29"),
        ("0.0", "0e5"),
        ('{"\\u00e9":[{"e\\u0301":1}]}', '{"e\\u0301":[{"\\u00e9":1.0}]}'),
        ("0.1", "0.10"),
        ("-0.0", "0"),
        ('"\\u00e9"', '"e\\u0301"'),
        ('"a"', '"\\u0061"'),
    ],
)
def test_what_is_equal_is_the_same(one: str, other: str) -> None:
    assert said(one) == said(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.1", "0.10000000000000001"),
        ("1e400", "2e400"),
        ("1e400", "1e401"),
        ("9223372036854775807", "9223372036854775808"),
        ("1e-400", "0"),
        ("-1", "1"),
        ("1e18", "1e19"),
        ("1e99999999999999999999", "1e99999999999999999998"),
        ('"1e19"', "1e19"),
        ("1", '"1"'),
        ("1", "true"),
        ("null", '""'),
        ("[1,2]", "[2,1]"),
        ("[[1],2]", "[1,[2]]"),
        ("{}", "[]"),
    ],
)
def test_what_is_not_equal_is_another(one: str, other: str) -> None:
    assert said(one) != said(other)


@pytest.mark.parametrize(
    "body",
    [
        '{"a":1,"a":1}',
        '{"x":{"a":1,"a":2}}',
        "NaN",
        "[Infinity]",
        "-Infinity",
        "{",
        "[1,]",
        b"\xff\xfe",
        "1" * 5000,
        "0." + "1" * 2000,
        "[" * 100_000,
        '"\\ud800"',
        '{"\\ud800": 1}',
        '{"\\u00e9": 1, "e\\u0301": 2}',
    ],
    ids=lambda body: ascii(body)[:20],
)
def test_json_that_does_not_mean_one_thing_is_refused(body: str | bytes) -> None:
    with pytest.raises(BadBody):
        said(body)


def test_a_vendor_s_json_is_json() -> None:
    assert said("1.0", "application/vnd.api+json; charset=utf-8") == said("1", "application/vnd.api+json")


def test_other_bodies_count_byte_for_byte() -> None:
    assert said("a=1&b=2", "application/x-www-form-urlencoded") != said("b=2&a=1", "application/x-www-form-urlencoded")


def test_raw_counts_byte_for_byte() -> None:
    assert said("1", as_bytes=True) != said("1.0", as_bytes=True)


def test_members_can_be_left_out() -> None:
    one, other = '{"a":{"at":1,"b":2},"items":[{"at":1}]}', '{"a":{"at":9,"b":2},"items":[{"at":2}]}'
    assert said(one, ignore_fields=("a.at", "items.at")) == said(other, ignore_fields=("a.at", "items.at"))
    assert said(one) != said(other)


def form(boundary: str, value: str) -> bytes:
    return f'--{boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\n{value}\r\n--{boundary}--\r\n'.encode()


def test_a_form_is_the_same_under_another_boundary() -> None:
    one = said(form("xxx", "1"), "multipart/form-data; boundary=xxx")
    assert one == said(form("yyy", "1"), 'multipart/form-data; boundary="yyy"')
    assert one != said(form("xxx", "2"), "multipart/form-data; boundary=xxx")


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=6) | st.integers().map(Decimal)


@given(NUMBERS, NUMBERS, st.sampled_from(["{:f}", "{:e}", "{}"]), st.sampled_from(["{:f}", "{:e}"]))
def test_numbers_are_the_same_only_if_they_are_equal(one: Decimal, other: Decimal, first: str, second: str) -> None:
    assert (said(first.format(one)) == said(second.format(other))) == (one == other)


@given(NUMBERS, st.sampled_from(["{:f}", "{:e}", "{:E}"]), st.integers(0, 20))
def test_a_number_is_the_same_however_it_is_spelt(number: Decimal, spelling: str, zeros: int) -> None:
    text = spelling.format(number)
    mantissa, sign, exponent = text.lower().partition("e")
    longer = mantissa + ("" if "." in mantissa else ".") + "0" * (zeros + 1) + sign + exponent
    assert said(longer) == said(text)


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_segments_are_the_same_only_if_they_are_equal(one: list[bytes], other: list[bytes]) -> None:
    assert (joined(one) == joined(other)) == (one == other)


def part_of(head: str, content: str) -> str:
    return f"--X\r\n{head}\r\n\r\n{content}\r\n"


NAMED = 'Content-Disposition: form-data; name="a"'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (part_of(NAMED, "1"), part_of(NAMED.replace('"a"', '"A"'), "1")),
        (part_of(NAMED, "1") + part_of(NAMED, "2"), part_of(NAMED, f"1\r\n--X{NAMED}\r\n\r\n2")),
        (part_of(NAMED, "1") + part_of(NAMED, "2"), part_of(NAMED, "2") + part_of(NAMED, "1")),
    ],
    ids=["another name", "what only begins like a boundary", "another order"],
)
def test_other_forms_are_other_requests(one: str, other: str) -> None:
    kind = "multipart/form-data; boundary=X"
    assert said(f"{one}--X--\r\n", kind) != said(f"{other}--X--\r\n", kind)


def test_headers_of_a_part_may_come_in_any_order_and_case() -> None:
    one, other = f"{NAMED}\r\nContent-Type: text/plain", f"content-type: text/plain\r\n{NAMED}"
    kind = "multipart/mixed; boundary=X"
    assert said(part_of(one, "1") + "--X--", kind) == said(part_of(other, "1") + "--X--", kind)


FORM = part_of(NAMED, "1") + part_of(NAMED, "2") + "--X--\r\n"
KIND = "multipart/form-data; boundary=X"

UNUSUAL = {
    "text before the first part": ("for old readers\r\n" + FORM, KIND),
    "an empty line before the first part": ("\r\n" + FORM, KIND),
    "a part before the first part": ("--X \r\n" + NAMED + "\r\n\r\n0\r\n" + FORM, KIND),
    "text behind the last part": (FORM + "for old readers", KIND),
    "a part behind the last part": (FORM + FORM, KIND),
    "spaces behind a delimiter": (FORM.replace("--X\r\n", "--X \r\n"), KIND),
    "a delimiter in a line that ends with a line feed alone": (FORM.replace("1\r\n--X", "1\n--X"), KIND),
    "a delimiter in a line that begins with a carriage return alone": (FORM.replace("1\r\n--X", "1\r--X"), KIND),
    "a delimiter behind which is a line feed alone": (FORM.replace("--X\r\n", "--X\n"), KIND),
    "a delimiter in the middle of a line": (FORM.replace("1\r\n", "1--X\r\n"), KIND),
    "what begins like a delimiter": (FORM.replace("1\r\n", "1\r\n--XY\r\n"), KIND),
    "a header that is there twice": (FORM.replace(NAMED, f"{NAMED}\r\n{NAMED.replace('a', 'b')}"), KIND),
    "a header that is folded": (FORM.replace("; name", ";\r\n name"), KIND),
    "a header behind a line feed alone": (FORM.replace(NAMED, f"A: b\n{NAMED}"), KIND),
    "a header behind a carriage return alone": (FORM.replace(NAMED, f"A: b\r{NAMED}"), KIND),
    "headers that end with two line feeds": (FORM.replace("\r\n\r\n", "\n\n"), KIND),
    "a header without a colon": (FORM.replace(NAMED, f"A\r\n{NAMED}"), KIND),
    "a space before a colon": (FORM.replace(NAMED, NAMED.replace(":", " :")), KIND),
    "a part without headers": (FORM.replace(NAMED, ""), KIND),
    "a part without content": (FORM.replace("\r\n\r\n1", ""), KIND),
    "no end": (FORM.replace("--X--", "--X"), KIND),
    "two boundaries": (FORM, f"{KIND}; boundary=Y"),
    "a boundary in other letters": (FORM, f"{KIND}; Boundary=Y"),
    "a boundary with a charset": (FORM, f"{KIND}; boundary*=utf-8''Y"),
    "a boundary in pieces": (FORM, f"{KIND}; boundary*0=Y"),
    "a boundary in a quoted parameter": (FORM, f'{KIND}; a="; boundary=Y"'),
    "a boundary with a backslash": (FORM.replace("X", "\\X"), 'multipart/form-data; boundary="\\\\X"'),
    "a boundary in angle brackets": (FORM.replace("X", "<X>"), "multipart/form-data; boundary=<X>"),
    "two content types": (FORM, f"{KIND}, multipart/form-data; boundary=Y"),
    "no boundary": (FORM, "multipart/form-data"),
}
"""Forms that some readers take apart in one way and others in another."""


@pytest.mark.parametrize("case", UNUSUAL)
def test_a_form_that_can_be_read_in_two_ways_counts_as_it_stands(case: str) -> None:
    body, kind = UNUSUAL[case]
    assert said(body, kind) == b"raw:" + joined((kind.encode(), body.encode()))


def test_a_form_without_a_line_break_at_its_end_is_the_same() -> None:
    assert said(FORM, KIND) == said(FORM.removesuffix("\r\n"), KIND)


def test_a_form_of_more_parts_than_anybody_sends_counts_as_it_stands() -> None:
    assert said(part_of(NAMED, "1") * 1000 + "--X--", KIND).startswith(b"parts:")
    assert said(part_of(NAMED, "1") * 1001 + "--X--", KIND).startswith(b"raw:")


def test_a_packed_form_counts_with_its_boundary() -> None:
    assert said(b"packed", KIND, as_bytes=True) != said(b"packed", "multipart/form-data; boundary=Y", as_bytes=True)


@pytest.mark.parametrize("charset", ["utf-7", "UTF-16", "latin-1", "unknown"])
def test_json_in_another_charset_counts_byte_for_byte(charset: str) -> None:
    assert said('{"a": 1, "b": 2}', f"application/json; charset={charset}") == b'raw:{"a": 1, "b": 2}'


@pytest.mark.parametrize("parameter", ["", "; charset=utf-8", '; charset="UTF-8"', ";charset=utf8", "; charset=utf-8;"])
def test_json_in_utf_8_is_compared_as_json(parameter: str) -> None:
    assert said("1.0", f"application/json{parameter}") == b"json:1"


@pytest.mark.parametrize(
    "body",
    ["[" + "1e4299," * 1000 + "1]", "[" + "1e-4299," * 1000 + "1]", "[" + "1E+99999999," * 1000 + "1]", "1e999"],
    ids=lambda body: body[:12],
)
def test_a_number_is_not_written_out_as_long_as_its_exponent_says(body: str) -> None:
    assert len(said(body)) <= len(body) + 10


@pytest.mark.parametrize("zeros", [0, 1, 17, 18, 19, 38, 39, 40, 41, 50, 998])
@pytest.mark.parametrize("digits", ["1", "12", "123456789012345678901234567890123456789012"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_large_number_is_the_same_however_it_is_spelt(sign: str, digits: str, zeros: int) -> None:
    spellings = [
        f"{sign}{digits}{'0' * min(zeros, 900)}" if zeros < 900 else f"{sign}{digits}e{zeros}",
        f"{sign}{digits}e{zeros}",
        f"{sign}{digits}0E{zeros - 1}",
        f"{sign}{digits}.000e+{zeros}",
        f"{sign}{digits[0]}.{digits[1:]}0e{zeros + len(digits) - 1}",
    ]
    assert len({said(spelling) for spelling in spellings}) == 1, f"{spellings} are not one number"


@pytest.mark.parametrize(
    "body",
    [
        '"a' + "\u0301" * 31 + '"',
        '{"a' + "\u0301" * 31 + '":1}',
        '["' + "\\u0301" * 31 + '"]',
        '"' + "\u0f73" * 31 + '"',
    ],
    ids=["text", "name", "escaped", "letters made of marks"],
)
def test_text_with_more_marks_in_a_row_than_any_language_has_is_refused(body: str) -> None:
    with pytest.raises(BadBody, match="more than 30 combining characters in a row"):
        said(body)


def test_text_with_as_many_marks_as_may_be_is_compared() -> None:
    assert said('"a' + "\u0316\u0301" * 15 + '"') == said('"\u00e1' + "\u0316" * 15 + "\u0301" * 14 + '"')


def test_a_form_that_is_not_closed_counts_by_its_bytes() -> None:
    assert said(part_of(NAMED, "1"), "multipart/form-data; boundary=X").startswith(b"raw:")


def test_text_json_is_json() -> None:
    assert said("1.0", "text/json") == said("1", "text/json")
