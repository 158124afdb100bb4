"""Whatever reads a request or an argument takes time with its length, and not with the square of it.

Each case is a text made of a pattern, told by its size. Reading sixteen times as much may take sixteen times as long;
a reader that is quadratic takes 256 times as long. What is measured is the processor time of this thread, the
shortest of several runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from decimal import Decimal
from itertools import islice, product
from string import ascii_letters
from typing import Any

import pytest

from semel.core.fingerprint import fingerprint
from semel.core.key import Key
from semel.errors import SemelError
from semel.http import Route
from semel.http.exchange import check_first_sent, fingerprint_of, identity_of, key_in
from semel.http.problem import Refused
from semel.http.request import Headers, Request, State

SMALL = 4_000
TIMES = 16
MOST = 64
"""Linear is 16 and quadratic is 256: in between lies room for a machine that has other work to do."""

ANY = Route("/**")
PATTERN = Route("/orders/*/items/**")
OASIS = Route("/**", profile="oasis")
UNSORTED = "\u0301\u0316"  # of two combining classes, the higher one first: the normaliser has to move each of them


def fill(pattern: str, size: int) -> str:
    """The pattern again and again, up to this length."""
    return (pattern * (size // len(pattern) + 1))[:size]


def asking(body: bytes = b"", content_type: str = "", *, path: str = "/orders", query: str = "", key: str = "k") -> Any:
    lines = [("Content-Type", content_type), ("Idempotency-Key", key), ("Repeatability-First-Sent", key)]
    return Request("POST", path, query, Headers(lines), State({}), None, body)


def json_of(text: str) -> Any:
    return lambda: fingerprint_of(asking(text.encode(), "application/json"), ANY)


def form_of(body: str, content_type: str = "multipart/form-data; boundary=X") -> Any:
    return lambda: fingerprint_of(asking(body.encode(), content_type), ANY)


def header_of(key: str) -> Any:
    return lambda: key_in(asking(key=key), ANY)


def path_of(path: str) -> Any:
    def read() -> None:
        if PATTERN.fits(path):
            identity_of(asking(path=path), PATTERN, "k")
        fingerprint_of(asking(path=path), PATTERN)

    return read


def type_of(content_type: str) -> Any:
    return lambda: fingerprint_of(asking(b"--X\r\n\r\n\r\n--X--", content_type), ANY)


def argument(value: object) -> Any:
    return lambda: fingerprint({"value": value})


def names(count: int) -> list[str]:
    return ["".join(letters) for letters in islice(product(ascii_letters, repeat=4), count)]


READERS: dict[str, Callable[[int], Callable[[], object]]] = {
    "json: one list in another": lambda n: json_of("[" * n + "]" * n),
    "json: lists beside each other": lambda n: json_of("[" + fill("[[[[]]]],", n) + "1]"),
    "json: many members": lambda n: json_of("{" + ",".join(f'"{name}":1' for name in names(n // 8)) + "}"),
    "json: one long number": lambda n: json_of("1" * n),
    "json: one long fraction": lambda n: json_of("0." + "1" * n),
    "json: one long exponent": lambda n: json_of("1e" + "1" * n),
    "json: long numbers": lambda n: json_of("[" + fill("9" * 999 + ",", n).rstrip(",") + "]"),
    "json: large exponents": lambda n: json_of("[" + "1e4299," * (n // 7) + "1]"),
    "json: larger exponents": lambda n: json_of("[" + "1e999999999," * (n // 12) + "1]"),
    "json: small numbers": lambda n: json_of("[" + "1e-999," * (n // 7) + "1]"),
    "json: escapes": lambda n: json_of('"' + "\\u0041" * (n // 6) + '"'),
    "json: halves of characters": lambda n: json_of('"' + "\\ud83d\\ude00" * (n // 12) + '"'),
    "json: backslashes": lambda n: json_of('"' + "\\\\" * (n // 2) + '"'),
    "json: a text without an end": lambda n: json_of('"' + "a" * n),
    "json: spaces": lambda n: json_of(" " * n + "1" + " " * n),
    "json: spaces and no value": lambda n: json_of("[" + " " * n),
    "json: one run of marks": lambda n: json_of('"a' + fill(UNSORTED, n) + '"'),
    "json: one run of marks, escaped": lambda n: json_of('"a' + "\\u0301\\u0316" * (n // 12) + '"'),
    "json: one run of marks as a name": lambda n: json_of('{"a' + fill(UNSORTED, n) + '": 1}'),
    "json: one run of letters made of marks": lambda n: json_of('"' + fill("\u0f73", n) + '"'),
    "json: runs of marks, as long as they may be": lambda n: json_of('"' + fill("a" + UNSORTED * 15, n) + '"'),
    "json: marks that are two": lambda n: json_of('"' + fill("a" + "\u0344" * 30, n) + '"'),
    "json: signs between marks": lambda n: json_of('"' + fill(UNSORTED * 15 + "\u037e", n) + '"'),
    "json: Hangul letter by letter": lambda n: json_of('"' + fill("\u1112\u1161\u11ab", n) + '"'),
    "json: vowels that are put together": lambda n: json_of('"' + fill("\u09c7\u09be", n) + '"'),
    "form: fields": lambda n: form_of(fill("a=1&", n), "application/x-www-form-urlencoded"),
    "form: marks": lambda n: form_of(fill("%CC%81%CC%96", n), "application/x-www-form-urlencoded"),
    "multipart: parts": lambda n: form_of(fill('--X\r\nA: form-data; name="a"\r\n\r\n1\r\n', n) + "--X--"),
    "multipart: delimiters": lambda n: form_of(fill("--X\r\n", n) + "--X--"),
    "multipart: what begins like a delimiter": lambda n: form_of("--X\r\n\r\n\r\n" + fill("\r\n--", n) + "\r\n--X--"),
    "multipart: spaces behind a delimiter": lambda n: form_of("--X\r\n\r\n\r\n--X" + " " * n + "1\r\n--X--"),
    "multipart: empty lines": lambda n: form_of(fill("\r\n", n) + "--X\r\n\r\n\r\n--X--"),
    "multipart: headers": lambda n: form_of("--X\r\n" + fill("A: b\r\n", n) + "\r\n\r\n1\r\n--X--"),
    "multipart: a header": lambda n: form_of("--X\r\nA: " + fill(" ;", n) + "\r\n\r\n1\r\n--X--"),
    "multipart: marks in a name": lambda n: form_of(f"--X\r\nA: {fill(UNSORTED, n)}\r\n\r\n1\r\n--X--"),
    "key: bare": lambda n: header_of("k" * n),
    "key: quotes": lambda n: header_of('"' * n),
    "key: escapes": lambda n: header_of('"' + fill('\\"', n) + '"'),
    "key: not closed": lambda n: header_of('"' + "k" * n),
    "key: parameters": lambda n: header_of('"k"' + fill(";a=1", n)),
    "key: parameters that do not end": lambda n: header_of('"k"' + fill(';a="1"', n) + ";"),
    "key: a long parameter": lambda n: header_of('"k";' + "a" * n + "!"),
    "key: a long text in a parameter": lambda n: header_of('"k";a="' + fill('\\"', n)),
    "key: spaces": lambda n: header_of('"k"' + " " * n + "!"),
    "key: semicolons and spaces": lambda n: header_of('"k"' + fill(";   ", n)),
    "query: fields": lambda n: lambda: fingerprint_of(asking(query=fill("a=1&", n)), ANY),
    "path: slashes": lambda n: path_of("/orders/1/items/" + "/" * n + "a"),
    "path: only slashes": lambda n: path_of("/" * n),
    "path: segments": lambda n: path_of("/orders/1/items" + fill("/a", n)),
    "path: one segment": lambda n: path_of("/orders/" + "a" * n),
    "path: marks": lambda n: path_of("/orders/1/items/" + fill(UNSORTED, n)),
    "path: dots": lambda n: path_of("/orders/1/items" + fill("/..", n)),
    "content type: semicolons": lambda n: type_of("multipart/form-data" + ";" * n),
    "content type: spaces": lambda n: type_of("multipart/form-data;" + " " * n),
    "content type: semicolons and spaces": lambda n: type_of("multipart/form-data" + fill("; ", n)),
    "content type: parameters": lambda n: type_of("multipart/form-data" + fill("; a=1", n)),
    "content type: quotes": lambda n: type_of("multipart/form-data; boundary=" + '"' * n),
    "content type: a quote that is not closed": lambda n: type_of('multipart/form-data; a="' + fill('\\"', n)),
    "content type: boundaries": lambda n: type_of("multipart/form-data" + fill("; boundary=X", n)),
    "content type: a long name": lambda n: type_of("application/" + fill("a+json", n)),
    "content type: other characters": lambda n: type_of("application/json; charset=" + fill("\xe9", n)),
    "date: letters": lambda n: lambda: check_first_sent(asking(key="a" * n), OASIS),
    "date: spaces and commas": lambda n: lambda: check_first_sent(asking(key=fill(", ", n)), OASIS),
    "date: digits": lambda n: lambda: check_first_sent(asking(key="Sun, 06 Nov " + "1" * n + " 08:49:37 GMT"), OASIS),
    "date: brackets": lambda n: lambda: check_first_sent(asking(key="(" * n), OASIS),
    "argument: one run of marks": lambda n: argument("a" + fill(UNSORTED, n)),
    "argument: one run of letters made of marks": lambda n: argument(fill("\u0f73", n)),
    "argument: runs of marks, as long as they may be": lambda n: argument(fill("a" + UNSORTED * 15, n)),
    "argument: a name of marks": lambda n: argument({"a" + fill(UNSORTED, n): 1}),
    "argument: large exponents": lambda n: argument([Decimal("1e999")] * (n // 5)),
    "argument: larger exponents": lambda n: argument([Decimal("1e999999")] * (n // 8)),
    "argument: a long decimal": lambda n: argument(Decimal("1" * n)),
    "argument: a long integer": lambda n: argument(1 << (n * 3)),
    "argument: many members": lambda n: argument(dict.fromkeys(names(n // 8), 1)),
    "argument: one list in another": lambda n: argument(_nested(n)),
    "key of a function: marks": lambda n: lambda: Key.of(fill(UNSORTED, n), operation="pay"),
    "key of a function: parts": lambda n: lambda: Key.of(("a",) * (n // 8), operation="pay"),
    "scope: marks": lambda n: lambda: Key.of("k", operation="pay", scope=(fill(UNSORTED, n),)),
}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(min(depth, 900)):
        value = [value]
    return value


def seconds(read: Callable[[], object], runs: int) -> float:
    """How long one run takes, at best; what is refused was read too."""
    taken = []
    for _ in range(runs):
        start = time.thread_time()
        with contextlib.suppress(Refused, SemelError):
            read()
        taken.append(time.thread_time() - start)
    return min(taken)


@pytest.mark.parametrize("case", READERS)
def test_reading_takes_time_with_the_length(case: str) -> None:
    little, much = READERS[case](SMALL), READERS[case](SMALL * TIMES)
    seconds(little, 1)  # what is made on first use
    few, many = seconds(little, 20), seconds(much, 3)
    # Below some microseconds the clock counts more than the reader.
    longer = many / max(few, 20e-6)
    assert longer < MOST, f"{case}: {TIMES} times as much took {longer:.0f} times as long, {many:.4f} s"


@pytest.mark.parametrize("case", READERS)
def test_no_pattern_costs_much_more_than_ordinary_json(case: str) -> None:
    size = SMALL * TIMES
    # The least of many runs, of both: what other processes disturb takes longer.
    ordinary = seconds(json_of("[" + fill('{"amount": 10, "to": "bob"},', size).rpartition(",")[0] + "]"), 10)
    spent = seconds(READERS[case](size), 10)
    assert spent < 20 * ordinary, f"{case}: {size} characters took {spent:.4f} s, ordinary ones {ordinary:.4f} s"
