"""The table that compares products from outside, out of made-up reports: no server runs and no peer is needed."""

from __future__ import annotations

import pytest
from rich.console import Console

from bench.conform_peers import PAGE
from bench.conform_table import BEGIN, COMMAND, END, Column, markdown, replaced, terminal
from semel_lab.conform import CASES, Failed, NotSeen, Passed, Result, Verdict

FIRST, SECOND = CASES[0], CASES[1]
KEY = "123e4567-e89b-42d3-a456-426614174000"


def column(name: str, *verdicts: Verdict) -> Column:
    """A product of which this was seen, case by case."""
    return Column(name, "1.0", tuple(Result(case, seen, 0.1) for case, seen in zip(CASES, verdicts, strict=False)))


def made(*columns: Column) -> str:
    """The part of the page for these products."""
    return markdown(columns, "a server")


def test_every_case_is_a_row_with_a_verdict_for_each_product() -> None:
    text = made(column("one", Passed("201")), column("other", Failed("201", "404, no body")))
    assert f"| `{FIRST.id}` | must | passed | **failed** (1) |" in text.splitlines()


def test_products_stand_with_their_versions_and_the_command_above() -> None:
    text = made(column("one", Passed("201")), column("other", Passed("201")))
    assert text.startswith(f"Made by `{COMMAND}`, on a server.\n")
    assert "| case | | one 1.0 | other 1.0 |" in text


def test_what_was_seen_is_told_below() -> None:
    text = made(column("one", Failed("201", "404, no body"), NotSeen("there is nothing to see")))
    assert text.endswith("1. Expected `201`, and seen was `404, no body`.\n2. Not seen: there is nothing to see.")


def test_the_same_sight_is_told_once() -> None:
    seen = Failed("400", "201, no body")
    text = made(column("one", seen, seen), column("other", Passed("400"), seen))
    assert (text.count("(1)"), text.count("Expected")) == (3, 1)


def test_failures_are_counted_by_severity() -> None:
    should = next(number for number, case in enumerate(CASES) if case.severity == "should")
    text = made(column("one", Failed("a", "b"), *[Passed("a")] * (should - 1), Failed("a", "b")))
    assert "| all that failed | must | 1 |\n| all that failed | should | 1 |" in text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"409 for '{KEY}'", f"409 for '{KEY.replace('1', '2')}'"),
        ('201 {"order":7}', '201 {"order":71}'),
        ("location: /orders/7", "location: /orders/8"),
        ("3 of 12 without it", "1000 of 1000 without it"),
    ],
)
def test_what_changes_from_run_to_run_does_not_change_the_page(one: str, other: str) -> None:
    assert made(column("one", Failed("400", one))) == made(column("one", Failed("400", other)))


def test_two_orders_of_one_note_are_told_apart() -> None:
    text = made(column("one", Failed('the first answer again: {"order":7}', '{"order":8}')))
    assert 'again: {"order":A}`, and seen was `{"order":B}`' in text


def test_reports_about_different_cases_make_no_table() -> None:
    other = Column("other", "1.0", (Result(SECOND, Passed(""), 0.1),))
    with pytest.raises(ValueError, match="not about the same cases"):
        made(column("one", Passed("")), other)


def test_a_terminal_shows_the_same() -> None:
    console = Console(width=120)
    table, notes = terminal([column("one", Passed("201")), column("other", Failed("201", "404, no body"))])
    with console.capture() as shown:
        console.print(table, *notes, sep="\n")
    assert "failed (1)" in shown.get()
    assert "(1) Expected `201`, and seen was `404, no body`." in shown.get()


def test_only_what_is_between_the_markers_is_replaced() -> None:
    assert replaced(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_not_written_to(page: str) -> None:
    with pytest.raises(ValueError, match="both markers"):
        replaced(page, "new")


def test_the_page_holds_a_table_about_every_case() -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = text.partition(BEGIN)[2].partition(END)[0]
    assert replaced(text, part.strip("\n")) == text
    assert [case.id for case in CASES if f"\n| `{case.id}` | {case.severity} |" not in part] == []
