"""The search form: what an address says, as restrictions of `records`."""

from datetime import UTC, datetime, timedelta

import pytest

from semel.core.key import SHARED
from semel.engine.engine import RecordFilter, query_of
from semel.server.console.search import FIELDS, SearchForm, read_moment
from semel.server.refusals import Invalid

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_everything_that_records_takes_can_be_asked_for() -> None:
    asked = {field.name: "x" for field in FIELDS} | {"tag": "a=b=c", "after": "2h", "before": "2026-03-01"}
    form = SearchForm.of({**asked, "reference": "ABCDEF", "status": "failed", "order": "oldest", "scan": "1"})
    query = query_of(form.to_filter(NOW))
    assert (query.tag, query.reference, query.scope, query.scan) == (("a", "b=c"), "abcdef", "x", True)
    assert (query.subject, query.requester, query.business_key, query.process_instance) == ("x",) * 4
    assert not query.newest_first
    assert form.to_filter(NOW).keys() == RecordFilter.__annotations__.keys()
    assert query_of(SearchForm.of({}).to_filter(NOW)).newest_first


def test_stuck_is_asked_for_as_a_status_and_the_shared_scope_by_a_box() -> None:
    found = SearchForm.of({"status": "stuck", "shared": "1"}).to_filter(NOW)
    assert (found["stuck"], found["status"], found["scope"]) == (True, None, SHARED)


def test_a_scope_named_shared_is_a_scope_like_any_other() -> None:
    assert SearchForm.of({"scope": "shared"}).to_filter(NOW)["scope"] == "shared"


def test_a_scope_and_that_of_nobody_cannot_be_asked_for_together() -> None:
    with pytest.raises(Invalid, match="that of nobody"):
        SearchForm.of({"scope": "acme", "shared": "1"}).to_filter(NOW)


def test_what_was_asked_for_can_be_an_address_again() -> None:
    form = SearchForm.of({"status": " failed ", "subject": " ann ", "cursor": "x"})
    assert form.pairs == {"status": "failed", "subject": " ann "}  # a subject may have blanks, a status has none
    assert not form.is_empty
    assert SearchForm.of({"order": "oldest", "scan": "1"}).is_empty


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("", None),
        ("90m", NOW - timedelta(minutes=90)),
        ("2026-02-28", datetime(2026, 2, 28, tzinfo=UTC)),
        ("2026-02-28T10:00+02:00", datetime(2026, 2, 28, 8, tzinfo=UTC)),
    ],
)
def test_a_moment_is_written_as_people_write_it(text: str, moment: datetime | None) -> None:
    assert read_moment(text, NOW) == moment


@pytest.mark.parametrize("asked", [{"status": "gone"}, {"tag": "x"}, {"after": "soon"}])
def test_what_cannot_be_read_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="nothing was read"):
        SearchForm.of(asked).to_filter(NOW)
