"""The small effort leaves out only what other rows of the same table try, value by value; the full effort nothing."""

import os
import re
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import Row, cover
from tests.processes import run_bounded

ROOT = Path(__file__).parents[2]
LONGEST = 90.0
TABLES = """
import pytest

pytestmark = pytest.mark.{mark}{arguments}


@pytest.fixture(params=["sync", "async"])
def colour(request):
    return request.param


class Cases:
    @pytest.mark.parametrize(("one", "other"), [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")])
    def test_pairs(self, colour, one, other):
        pass

    def test_plain(self, colour):
        pass

    def test_alone(self):
        pass


class TestFirst(Cases):
    pass


class TestSecond(Cases):
    pass
"""
MARKED = {
    "each": "",
    "classes": "(across_classes=True)",
    "shared": '(shared=("colour",))',
    "spread": '(spread={"test_pairs"})',
    "one_row": '(shared=("colour",), whole=())',
    "part": '(shared=("colour",), whole=(), at_most=1)',
}
"""The ways to mark a module: the arguments of `covering`."""
COLOURS = {"sync", "async"}
PAIRS = {"a-x", "a-y", "b-x", "b-y"}

tables = st.lists(st.fixed_dictionaries({name: st.integers(0, 4) for name in "abc"}), max_size=40)


def cells(rows: list[Row]) -> set[tuple[str, object]]:
    return {cell for row in rows for cell in row.items()}


@given(rows=tables, name=st.text())
def test_every_value_of_every_column_is_in_a_chosen_row(rows: list[Row], name: str) -> None:
    chosen = cover(rows, name)
    assert chosen == sorted(set(chosen))
    assert cells([rows[number] for number in chosen]) == cells(rows)


@given(rows=tables, name=st.text())
def test_the_choice_is_the_same_every_time(rows: list[Row], name: str) -> None:
    assert cover(rows, name) == cover(rows, name)


@pytest.mark.parametrize("name", ["", "a", "b", "c"])
def test_a_product_takes_as_many_rows_as_its_longest_column(name: str) -> None:
    rows: list[Row] = [{"site": site, "store": store} for site, store in product(range(9), range(2))]
    assert len(cover(rows, name)) == 9


def test_another_name_pairs_the_values_otherwise() -> None:
    rows: list[Row] = [{"site": site, "store": store} for site, store in product(range(9), range(2))]
    assert {number for name in "abcdef" for number in cover(rows, name)} == set(range(len(rows)))


def tables_of(arguments: str, mark: str = "covering") -> str:
    """A module of tables that are marked so."""
    return TABLES.replace("{mark}", mark).replace("{arguments}", arguments)


def collect(folder: Path, *options: str, effort: str = "small") -> dict[str, set[str]]:
    """The ids of the tests that a run with this effort takes from the tables of each module in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "tests.effort", "-p", "no:cacheprovider"]
    environment = {**os.environ, "SEMEL_EFFORT": effort, "PYTHONPATH": str(ROOT)}
    ran = run_bounded(
        [*command, *options, "-c", os.devnull, "--rootdir", str(folder), str(folder)], LONGEST, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ids: dict[str, set[str]] = defaultdict(set)
    for module, test in re.findall(r"^test_(\w+)\.py::(.*)$", ran.stdout, re.MULTILINE):
        ids[module].add(test)
    return ids


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What the small effort takes of modules that are marked in every way; one run collects them all."""
    folder = tmp_path_factory.mktemp("tables")
    for module, arguments in MARKED.items():
        (folder / f"test_{module}.py").write_text(tables_of(arguments))
    others = (
        (folder / "test_spread.py").read_text().replace("TestFirst", "TestThird").replace("TestSecond", "TestFourth")
    )
    (folder / "test_spread_too.py").write_text(others)
    return collect(folder)


def columns(ids: set[str], cls: str, test: str) -> tuple[set[str], set[str]]:
    """Which colours a test of a class runs in, and which pairs it tries."""
    rows = [found[1].partition("-") for one in ids if (found := re.fullmatch(rf"{cls}::{test}\[(.*)\]", one))]
    return {colour for colour, _, _ in rows}, {pair for _, _, pair in rows}


@pytest.mark.slow
def test_the_full_effort_takes_every_row(tmp_path: Path) -> None:
    (tmp_path / "test_each.py").write_text(tables_of(""))
    assert len(collect(tmp_path, effort="full")["each"]) == 2 * (8 + 2 + 1)


@pytest.mark.slow
def test_each_test_is_tried_with_every_value(chosen: dict[str, set[str]]) -> None:
    ids = chosen["each"]
    for cls in ("TestFirst", "TestSecond"):
        assert columns(ids, cls, "test_pairs") == (COLOURS, PAIRS)
        assert columns(ids, cls, "test_plain") == (COLOURS, {""})
        assert f"{cls}::test_alone" in ids
    assert len(ids) == 2 * (4 + 2 + 1)


@pytest.mark.slow
def test_classes_can_be_a_column(chosen: dict[str, set[str]]) -> None:
    ids = chosen["classes"]
    for test, pairs in (("test_pairs", PAIRS), ("test_plain", {""})):
        assert columns(ids, "Test.*", test) == (COLOURS, pairs)
        assert {one.partition("::")[0] for one in ids if f"::{test}[" in one} == {"TestFirst", "TestSecond"}
    assert len(ids) == 4 + 2 + 2


@pytest.mark.slow
def test_a_column_can_be_shared_by_the_tests_of_a_class(chosen: dict[str, set[str]]) -> None:
    ids = chosen["shared"]
    for cls in ("TestFirst", "TestSecond"):
        assert columns(ids, cls, "test_pairs")[1] == PAIRS
        assert columns(ids, cls, "test_plain")[1] == {""}
        assert columns(ids, cls, ".*")[0] == COLOURS
        assert f"{cls}::test_alone" in ids
    assert len(ids) == 2 * (4 + 1 + 1)


@pytest.mark.slow
def test_the_rows_of_a_test_can_be_spread_over_the_classes_of_all_modules(chosen: dict[str, set[str]]) -> None:
    ids = chosen["spread"] | chosen["spread_too"]
    classes = {"TestFirst", "TestSecond", "TestThird", "TestFourth"}
    assert columns(ids, "Test.*", "test_pairs") == (COLOURS, PAIRS)
    assert {one.partition("::")[0] for one in ids if "::test_pairs[" in one} == classes
    assert len(ids) == 4 + 4 * (2 + 1)


@pytest.mark.slow
def test_every_test_can_run_one_row_but_those_of_a_class(tmp_path: Path, chosen: dict[str, set[str]]) -> None:
    ids = chosen["one_row"]
    for cls in ("TestFirst", "TestSecond"):
        assert columns(ids, cls, ".*")[0] == COLOURS
        assert len(columns(ids, cls, "test_pairs")[1]) <= len(COLOURS)
    assert len(ids) == 2 * 3
    (tmp_path / "test_shared.py").write_text(tables_of('(shared=("colour",), whole={"Cases"})'))
    assert collect(tmp_path)["shared"] == chosen["shared"]


@pytest.mark.slow
def test_a_class_can_run_a_part_of_its_tests(tmp_path: Path, chosen: dict[str, set[str]]) -> None:
    ids = chosen["part"]
    for cls in ("TestFirst", "TestSecond"):
        assert columns(ids, cls, ".*")[0] == COLOURS
    assert len(ids) == 2 * 3, "a test in each colour, and the one without a colour"
    (tmp_path / "test_shared.py").write_text(tables_of('(shared=("colour",), whole={"Cases"}, at_most=1)'))
    assert collect(tmp_path)["shared"] == chosen["shared"]


@pytest.mark.slow
def test_rows_that_are_not_fast_are_left_to_runs_of_slow_tests(tmp_path: Path, chosen: dict[str, set[str]]) -> None:
    (tmp_path / "test_shared.py").write_text(tables_of(MARKED["shared"], "fast_rows"))
    assert collect(tmp_path, "-m", "not slow")["shared"] == chosen["shared"]
    assert len(collect(tmp_path)["shared"]) == 2 * (8 + 2 + 1)
