"""How values look on a page."""

from datetime import UTC, datetime, timedelta

from semel.server.console.rendering import Look, look_of_state, show_ago

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def test_what_has_happened_is_never_said_to_come() -> None:
    assert show_ago(NOW - timedelta(minutes=5), NOW) == "5m ago"
    assert show_ago(NOW, NOW) == "just now"
    assert show_ago(NOW + timedelta(milliseconds=6), NOW) == "just now"  # by the clock of a store that is ahead


def test_an_outcome_that_nobody_knows_stands_out() -> None:
    assert look_of_state("unknown: unavailable") == Look("unknown: unavailable", "warn", "?")
