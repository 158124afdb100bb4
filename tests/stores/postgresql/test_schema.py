"""The schema on PostgreSQL refuses what no statement of ours writes, and says what everything in it is."""

import psycopg
import pytest

from semel.stores.postgresql import PostgresStore
from semel.stores.rows import RECORD_COLUMNS
from tests.stores.postgresql.kit import Asker, claim, rows

CHECKS = """
SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid IN ('semel_record'::regclass, 'semel_step'::regclass)
"""
STEP = "INSERT INTO semel_step (life, position, digest, name, outcome) VALUES ({}, 'reserve', '\\x01')"
BAD = {
    "status = 'paused'": "semel_record_status",
    "status = 'completed'": "semel_record_outcome",
    "outcome = '\\x00'": "semel_record_outcome",
    "retryable = true": "semel_record_retryable",
    "digest = '\\x00'": "semel_record_digest",
    "nonce = '\\x00'": "semel_record_lease",
    "fence = 0": "semel_record_lease",
    "in_doubt_policy = 'guess'": "semel_record_policy",
    "attempts = -1": "semel_record_counts",
    "steps = -1": "semel_record_counts",
    "keep_us = 0": "semel_record_counts",
    "reconcile_after_us = -1": "semel_record_counts",
    "error_type = 'app.Broke'": "semel_record_error",
    "error_message = 'broke'": "semel_record_error",
    "status = 'in_doubt'": "semel_record_doubt",
    "doubt_us = 1": "semel_record_doubt",
}
INVALIDATION = "INSERT INTO semel_invalidation (noted_us, digest, operation) VALUES (1, '\\x00', 'charge')"
BAD_STEPS = {
    "1, -1, decode(repeat('00', 32), 'hex')": "semel_step_position_check",
    "1, 0, '\\x00'": "semel_step_digest_check",
}
DERIVED = {"completed_us"}
OURS = {"wanted", "doubt_us"}


@pytest.mark.parametrize(("change", "constraint"), BAD.items(), ids=BAD)
def test_a_row_of_the_wrong_shape_is_refused(url: str, asker: Asker, change: str, constraint: str) -> None:
    asker.lease(claim())
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        rows(url, f"UPDATE semel_record SET {change}")  # noqa: S608 - the texts above
    assert refused.value.diag.constraint_name == constraint


@pytest.mark.parametrize("column", ["lease_us", "created_us", "expires_us", "fingerprint", "scope", "value"])
def test_what_every_record_has_may_not_be_missing(url: str, asker: Asker, column: str) -> None:
    asker.lease(claim())
    with pytest.raises(psycopg.errors.NotNullViolation):
        rows(url, f"UPDATE semel_record SET {column} = NULL")  # noqa: S608 - the texts above


@pytest.mark.parametrize(("values", "constraint"), BAD_STEPS.items(), ids=BAD_STEPS)
def test_a_step_of_the_wrong_shape_is_refused(url: str, values: str, constraint: str) -> None:
    PostgresStore(url).admin().migrate()
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        rows(url, STEP.format(values))
    assert refused.value.diag.constraint_name == constraint


def test_an_invalidation_of_the_wrong_shape_is_refused(url: str) -> None:
    PostgresStore(url).admin().migrate()
    with pytest.raises(psycopg.errors.CheckViolation):
        rows(url, INVALIDATION)


def test_every_check_is_tried_here(url: str) -> None:
    PostgresStore(url).admin().migrate()
    assert {name for (name,) in rows(url, CHECKS)} == {*BAD.values(), *BAD_STEPS.values()}


def test_a_second_row_of_a_key_is_refused(url: str, asker: Asker) -> None:
    asker.lease(claim())
    with pytest.raises(psycopg.errors.UniqueViolation):
        rows(url, "INSERT INTO semel_record SELECT * FROM semel_record")


def test_every_table_and_column_says_what_it_is(url: str) -> None:
    PostgresStore(url).admin().migrate()
    text = """
        SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE starts_with(c.relname, 'semel_') AND c.relkind = 'r' AND NOT a.attisdropped
            AND (a.attnum > 0 AND col_description(c.oid, a.attnum) IS NULL
                OR a.attname = 'tableoid' AND obj_description(c.oid, 'pg_class') IS NULL)
    """
    assert rows(url, text) == []


def test_the_table_has_the_columns_of_a_record_that_do_not_follow_from_others(url: str) -> None:
    PostgresStore(url).admin().migrate()
    text = "SELECT column_name FROM information_schema.columns WHERE table_name = 'semel_record'"
    assert {name for (name,) in rows(url, text)} == {*RECORD_COLUMNS} - DERIVED | OURS


def test_no_text_is_compared_by_a_collation(url: str) -> None:
    PostgresStore(url).admin().migrate()
    text = """
        SELECT attname FROM pg_attribute
        WHERE attrelid IN ('semel_record'::regclass, 'semel_step'::regclass, 'semel_invalidation'::regclass)
        AND attcollation <> 0 AND attcollation <> 'pg_catalog."C"'::regcollation
    """
    assert rows(url, text) == []
