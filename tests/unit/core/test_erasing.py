"""What erasing leaves of a record."""

import pytest
from msgspec.structs import asdict

from semel.core.key import Key
from semel.core.record import (
    ERASED_FAILURE,
    ERASED_OUTCOME,
    NOTHING,
    About,
    Failure,
    Note,
    NotKept,
    Status,
    Step,
    erase_record,
    unpack_outcome,
)
from tests.unit.core.records import claim, record

PERSONAL = "ann"
FULL = record(
    key=Key.of(PERSONAL, operation="pay", scope=PERSONAL),
    outcome=PERSONAL.encode(),
    about=About(subject=PERSONAL, business_key=PERSONAL, tags={PERSONAL: PERSONAL}),
    resolution=Note("Happened", PERSONAL, PERSONAL).text(),
    steps=(Step(0, PERSONAL, PERSONAL.encode()),),
    replays=3,
)
FAILED = record(status=Status.FAILED, outcome=None, error=Failure("app.Declined", PERSONAL), doubtful=True)
KEPT = (
    "status",
    "fence",
    "nonce",
    "lease_us",
    "attempts",
    "created_us",
    "started_us",
    "updated_us",
    "completed_us",
    "expires_us",
    "keep_us",
    "replays",
)


def test_nothing_personal_is_left() -> None:
    assert PERSONAL not in repr(asdict(erase_record(FULL, "note")))


@pytest.mark.parametrize("name", KEPT)
def test_what_shuts_the_key_stays(name: str) -> None:
    assert getattr(erase_record(FULL, "note"), name) == getattr(FULL, name)


def test_digest_and_operation_stay() -> None:
    assert erase_record(FULL, "note").key == Key("", "pay", "", FULL.key.digest)


def test_the_tombstone_says_that_it_was_erased() -> None:
    assert unpack_outcome(ERASED_OUTCOME) == NotKept("it was erased")


def test_the_fingerprint_goes_with_what_it_stands_for() -> None:
    assert (FULL.fingerprint, erase_record(FULL, "note").fingerprint) == (b"\x01", b"")


@pytest.mark.parametrize("asked", [b"\x01", b"\x02"], ids=["the same request", "another request"])
def test_an_erased_record_is_for_every_request_of_its_key(asked: bytes) -> None:
    assert erase_record(FULL, "note").is_for(asked)


def test_a_failure_keeps_no_word_of_its_error() -> None:
    left = erase_record(FAILED, "note")
    assert (left.outcome, left.error, left.about) == (None, ERASED_FAILURE, NOTHING)


def test_a_cancelled_record_keeps_no_error_at_all() -> None:
    left = erase_record(record(status=Status.CANCELLED, outcome=None, error=Failure("app.Broke", PERSONAL)), "note")
    assert (left.outcome, left.error) == (None, None)


def test_a_failure_that_could_be_tried_again_becomes_final() -> None:
    left = erase_record(record(status=Status.FAILED, outcome=None, retryable=True), "note")
    assert left.final


def test_erasing_again_changes_nothing() -> None:
    once = erase_record(FULL, "note")
    assert erase_record(once, "note") == once


def test_another_claim_has_the_digest_of_an_erased_one() -> None:
    assert erase_record(record(), "note").key.digest == claim().key.digest
