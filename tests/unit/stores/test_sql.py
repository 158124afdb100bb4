"""What SQL stores share: statements by name, and rows that give back the very record."""

import pytest

from semel.core.record import About, Failure, Status, Step, StoredRecord
from semel.errors import RecordUnreadable
from semel.stores.rows import RECORD_COLUMNS, about_values, claim_values, new_record, record_of, storable
from semel.stores.sqlite.dialect import SQL
from tests.unit.stores.operations import KEYS, START, claim


def row(**changes: object) -> tuple[object, ...]:
    made = claim()
    known = {
        **dict.fromkeys(RECORD_COLUMNS),
        **claim_values(made, lease_us=5),
        "status": "running",
        "retryable": 0,
        "doubtful": 0,
        "fence": 1,
        "lease_us": START + 5,
        "in_doubt_policy": "rerun",
        "attempts": 1,
        "created_us": START,
        "started_us": START,
        "updated_us": START,
        "expires_us": START + made.terms.keep_us,
        "replays": 0,
        "steps": 0,
        **changes,
    }
    return tuple(known[column] for column in RECORD_COLUMNS)


def test_the_record_of_a_first_claim_is_known_without_reading_it_back() -> None:
    assert record_of(row()) == new_record(claim(), START, lease_us=5)


def test_everything_a_row_holds_is_in_the_record() -> None:
    steps = (Step(0, "reserve", b"1"),)
    record = record_of(
        row(
            status="failed",
            retryable=1,
            doubtful=1,
            error_type="app.Broke",
            error_message="why",
            subject="ann",
            tags='{"a":"1"}',
            completed_us=START + 9,
            resolution="because",
            replays=3,
            replayed_us=START + 8,
            steps=1,
        ),
        steps,
    )
    expected = {
        "status": Status.FAILED,
        "retryable": True,
        "doubtful": True,
        "error": Failure("app.Broke", "why"),
        "about": About(subject="ann", tags={"a": "1"}),
        "completed_us": START + 9,
        "resolution": "because",
        "replays": 3,
        "replayed_us": START + 8,
        "steps": steps,
        "key": KEYS[0],
    }
    assert {name: getattr(record, name) for name in expected} == expected


@pytest.mark.parametrize("unknown", [{"status": "paused"}, {"in_doubt_policy": "guess"}])
def test_a_word_of_a_newer_release_is_unreadable(unknown: dict[str, str]) -> None:
    with pytest.raises(RecordUnreadable, match="nothing ran"):
        record_of(row(**unknown))


def test_every_field_of_a_record_has_a_column() -> None:
    derived = {"key", "error", "about"}
    assert set(StoredRecord.__struct_fields__) - derived <= set(RECORD_COLUMNS)


def test_tags_that_are_empty_take_no_room() -> None:
    assert about_values(About())["tags"] is None


@pytest.mark.parametrize(
    ("text", "kept"), [(None, None), ("plain", "plain"), ("schön", "schön"), ("\udcff", "\\udcff")]
)
def test_text_is_kept_as_far_as_it_is_text(text: str | None, kept: str | None) -> None:
    assert storable(text) == kept


def test_statements_are_complete_and_without_comments() -> None:
    made_later = {"scan", "count_records", "skip_r", "skip_s", "scan_letters"}
    left_open = {name: text for name, text in SQL.items() if "--" in text or ("{" in text and name not in made_later)}
    assert left_open == {}
    assert all(text and not text.endswith(";") for text in SQL.values())
