"""Every framework and client library with `transaction=`: one table of cases.

Whatever goes wrong between the view and the commit, an answer that says that it happened is sent only where rows and
record are committed, and what was asked for again leaves one row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from semel.core.observer import Logging
from semel.stores.unprotected import UnprotectedStore
from tests.http.tills.members import MEMBERS
from tests.http.tills.till import NO, Till
from tests.servers.databases import Databases

pytestmark = [pytest.mark.slow, pytest.mark.covering]

OF_DJANGO = {name for name in MEMBERS if name.startswith(("django", "decorator", "drf"))}


@pytest.fixture(scope="module")
def url(postgresql: Databases) -> str:
    """A database for all of these tests: to make one takes longer than a test."""
    return postgresql.new_database()


@pytest.fixture(params=MEMBERS)
def till(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Till]:
    store, make = MEMBERS[request.param]
    till = make(f"sqlite:///{tmp_path / 'records.db'}" if store == "sqlite" else request.getfixturevalue("url"))
    till.empty()
    yield till
    till.close()


def test_rows_and_record_are_committed_and_a_duplicate_replays(till: Till) -> None:
    first, again = till.ask(), till.ask()
    assert (first.status, again.status, again.replayed) == (201, 201, True), (first, again)
    assert (till.rows(), till.records()) == (1, ["completed"])


@pytest.mark.parametrize("fail", ["ignore", "raise"])
def test_what_was_written_is_taken_back_where_the_completion_cannot_be(till: Till, fail: str) -> None:
    with till.completions_that(fail):
        told = till.ask()
    is_untranslated = fail == "raise" and till.url.startswith("sqlite")  # a constraint of one's own is nothing passing
    assert told.status == (500 if is_untranslated else 503), told
    assert (till.rows(), till.records()) == (0, []), "the row of the view stayed"
    assert till.ask().status == 201
    assert (till.rows(), till.records()) == (1, ["completed"])


def test_work_left_for_later_is_not_done_where_the_completion_cannot_be_written(till: Till) -> None:
    if not till.has_background:
        return
    with till.completions_that("ignore"):
        till.ask()
    assert till.background == 0
    till.ask()
    assert till.background == 1


def test_a_transaction_that_ends_without_a_commit_is_no_success(till: Till, caplog: pytest.LogCaptureFixture) -> None:
    till.commits = False
    told = [till.ask() for _ in range(2)]
    assert [(one.status, one.problem) for one in told] == [(500, "not-committed")] * 2, told
    assert (till.rows(), till.records(), till.background) == (0, [], 0)
    lines = [line for line in caplog.records if line.name == "semel" and line.levelno == logging.ERROR]
    assert len(lines) == 2, caplog.text
    assert "without a commit" in lines[0].getMessage()


def test_after_a_transaction_without_a_commit_the_key_is_free(till: Till) -> None:
    till.commits = False
    till.ask()
    till.commits = True
    assert (till.ask().status, till.rows()) == (201, 1)


@pytest.mark.parametrize(("what", "stays"), [("commits-as-text", True), ("rolls-back", False)])
def test_a_view_that_ends_its_transaction_is_told_what_became_of_it(
    till: Till, what: str, stays: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told = till.ask(what)
    assert (told.status, told.problem) == (500, "transaction-ended"), told
    assert till.rows() == stays
    (line,) = [line for line in caplog.records if line.name == "semel" and line.levelno == logging.ERROR]
    said = "What it wrote before that is committed" if stays else "What it wrote before that is rolled back"
    assert said in line.getMessage()


def test_a_view_that_calls_commit_is_told_what_became_of_it(till: Till, caplog: pytest.LogCaptureFixture) -> None:
    if not till.has_commit:
        return
    told = till.ask("commits")
    assert (told.status, told.problem, till.rows()) == (500, "transaction-ended", 1), told
    assert "What it wrote before that is committed" in caplog.text


@pytest.mark.parametrize("what", ["aborts", "refuses", "raises"])
def test_what_is_rolled_back_is_not_logged_as_a_doubt(till: Till, what: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "semel")
    told = till.ask(what)
    assert told.status == (500 if what == "raises" else told.status) >= 400
    assert (till.rows(), till.records()) == (0, [])
    lines = [line for line in caplog.records if line.name == "semel"]
    assert lines[0].getMessage().startswith("rolled_back"), caplog.text
    assert {line.levelno for line in lines} == {logging.DEBUG}, caplog.text


def test_a_view_that_says_no_is_sent_as_it_is(till: Till) -> None:
    assert (till.ask("refuses").status, till.ask("refuses").replayed) == (NO, False)


@pytest.mark.parametrize("member", MEMBERS)
def test_switched_off_the_rows_are_committed_at_every_request(
    request: pytest.FixtureRequest, member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, make = MEMBERS[member]
    with monkeypatch.context() as patched:
        off = partial(UnprotectedStore, "off", Logging(), time.monotonic)
        patched.setattr("semel.api.open_store", lambda _place, **_settings: off())
        till = make(f"sqlite:///{tmp_path / 'records.db'}" if store == "sqlite" else request.getfixturevalue("url"))
    try:
        before = till.rows()
        told = [till.ask() for _ in range(2)]
        assert [(one.status, one.replayed) for one in told] == [(201, False)] * 2, told
        assert till.rows() - before == 2
    finally:
        till.close()
