"""Times as people write them, and texts made harmless."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.cli.exit_codes import Refused
from semel.cli.timefmt import duration, local, moment, now
from semel.texts import clean, relative, span


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("15m", 900),
        ("1h", 3600),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1.5h", 5400),
        ("500ms", 0.5),
        ("1w", 604800),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "0s", "15", "m", "-5m", "5 minutes", "1h foo", "9" * 400 + "w", "15min"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        duration(text)


def test_moments_are_read_in_the_zone_of_the_machine_or_their_own() -> None:
    assert moment("2026-03-01T14:30Z") == datetime(2026, 3, 1, 14, 30, tzinfo=UTC)
    assert moment("2026-03-01T14:30+02:00") == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    assert moment("2026-03-01") == datetime(2026, 3, 1).astimezone()
    assert abs(now() - timedelta(hours=2) - moment("2h")) < timedelta(seconds=5)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00-20:00x", "5 apples"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        moment(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250ms"), (1, "1s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span(timedelta(seconds=seconds)) == text


def test_times_are_told_from_now() -> None:
    today = now()
    assert relative(today - timedelta(hours=3), today) == "3h ago"
    assert relative(today + timedelta(minutes=5), today) == "in 5m"
    assert local(today).startswith(str(today.astimezone().year))


@given(st.text())
def test_a_washed_text_is_only_printable(text: str) -> None:
    washed = clean(text)
    assert not any(
        letter < " " or "\x7f" <= letter <= "\x9f" or letter in "\u202e\u2066\u2028\ufeff" for letter in washed
    )
    washed.encode()


def test_ordinary_texts_are_left_alone() -> None:
    assert clean("Zoë · 東京 · 100 € [bold]") == "Zoë · 東京 · 100 € [bold]"
