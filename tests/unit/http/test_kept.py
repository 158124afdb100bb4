"""What is kept of an answer, and whether it is whole by what it says of its length."""

from __future__ import annotations

import pytest

from semel.http.response import ResponseBuffer, kept_whole

TEN = b"1234567890"


@pytest.mark.parametrize(
    ("status", "lengths", "body", "is_whole"),
    [
        (200, [], TEN, True),
        (200, ["10"], TEN, True),
        (200, [" 10 "], TEN, True),
        (200, ["010"], TEN, True),
        (200, ["10", "10"], TEN, True),
        (200, ["0"], b"", True),
        (200, ["11"], TEN, False),
        (200, ["9"], TEN, False),
        (200, ["0"], TEN, False),
        (200, ["10", "11"], TEN, False),
        (200, ["ten"], TEN, False),
        (200, ["-10"], TEN, False),
        (200, ["9" * 5000], TEN, False),
        (422, ["11"], TEN, False),
        (204, ["10"], b"", True),
        (304, ["10"], b"", True),
        (103, ["10"], b"", True),
    ],
)
def test_an_answer_is_whole_if_its_length_is_the_one_it_says(
    status: int, lengths: list[str], body: bytes, *, is_whole: bool
) -> None:
    answer = kept_whole(100, status, [("Content-Length", length) for length in lengths], body)
    assert (answer.contradiction is None) is is_whole, answer.contradiction


def test_of_a_status_without_a_body_no_body_is_kept() -> None:
    assert kept_whole(100, 204, [], b"ignored by servers").body == b""


def test_over_the_limit_nothing_of_the_body_is_kept() -> None:
    buffer = ResponseBuffer(9)
    buffer.begin(200, [])
    buffer.add(TEN)
    assert (buffer.is_over_limit, buffer.whole().body) == (True, None)


def test_of_an_answer_that_is_cut_off_nothing_of_the_body_is_kept_and_its_length_is_no_matter() -> None:
    buffer = ResponseBuffer(100)
    buffer.begin(200, [("Content-Length", "20")])
    buffer.add(TEN)
    assert (buffer.cut_off().body, buffer.cut_off().contradiction) == (None, None)
