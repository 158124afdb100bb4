"""The list of cases, as a list."""

from __future__ import annotations

import pytest

from semel_lab.conform import CASES, Case
from tests.docs.pages import page, table


def test_every_case_has_a_name_of_its_own() -> None:
    ids = [case.id for case in CASES]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_stands_behind_those_it_rests_on(case: Case) -> None:
    before = [each.id for each in CASES[: CASES.index(case)]]
    assert set(case.rests_on) <= set(before)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_says_what_it_checks_and_why_in_sentences(case: Case) -> None:
    assert case.checks.endswith(".")
    assert case.why.endswith(".")


def test_the_page_lists_every_case() -> None:
    told = [tuple(row[:3]) for row in table(page("docs/how-to/test-any-service.md"), "case")]
    assert told == [(case.id, case.severity, case.rule) for case in CASES]


def test_the_page_says_what_a_case_checks() -> None:
    told = [row[3] for row in table(page("docs/how-to/test-any-service.md"), "case")]
    assert told == [case.checks for case in CASES]
