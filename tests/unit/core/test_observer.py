"""Observers: told what happened, never able to disturb it, and never shown a key's value."""

import logging

import pytest

from semel.core.observer import Logging, Signal, is_heard, notify

LOUD = ["in_doubt", "lease_lost", "store_down", "store_open", "store_closed"]
QUIET = ["ran", "replayed", "failed", "waited", "reused"]


def event(kind: str) -> Signal:
    """An event of this kind."""
    return Signal(kind=kind, operation="pay", reference="ab" * 32)  # type: ignore[arg-type]  # a word of the table


class _Broken:
    def observe(self, event: Signal) -> None:
        raise RuntimeError("no")


def test_an_observer_that_fails_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    notify(_Broken(), event("ran"))
    assert "an observer failed" in caplog.text


@pytest.mark.parametrize("kind", LOUD)
def test_what_needs_a_look_is_a_warning(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    notify(Logging(), event(kind))
    assert [entry.levelname for entry in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("kind", QUIET)
def test_everything_else_is_for_debugging(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "semel")
    notify(Logging(), event(kind))
    assert [entry.levelname for entry in caplog.records] == ["DEBUG"]


def test_the_log_names_the_record_by_the_start_of_its_reference(caplog: pytest.LogCaptureFixture) -> None:
    notify(Logging(), event("in_doubt"))
    assert "in_doubt pay abababababababab " in caplog.text
    assert "ab" * 32 not in caplog.text


@pytest.mark.parametrize("kind", [*LOUD, *QUIET])
def test_only_what_nobody_would_hear_is_left_unsaid(kind: str) -> None:
    assert is_heard(_Broken(), kind)
    assert is_heard(Logging(), kind) == (kind in LOUD)
