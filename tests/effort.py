"""How hard the tests try: `SEMEL_EFFORT` is small in `make test` and full in `make verify`.

What always holds: what the small effort leaves out is run by the full one. Of a table of cases that multiply, and that
is marked with `covering`, the small effort still tries every value of every column.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

FULL: Final = os.environ.get("SEMEL_EFFORT") == "full"

Row = Mapping[str, Hashable]

_LEFT_OUT: Final = pytest.StashKey[int]()
_WORD: Final = "semel_left_out"

# Small runs give the same verdict every time; only the full effort looks for new examples.
settings.register_profile(
    "small", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("full" if FULL else "small")


def cover(rows: Sequence[Row], name: str = "") -> list[int]:
    """The numbers of a few rows in which every value of every column occurs that occurs in any row at all.

    This promises every single value, not every pair of values: a mistake that shows only where two certain values
    meet may be in a row that was left out, and only the full effort is sure to find it. The same rows under the same
    name always give the same choice; another name pairs the values otherwise, so that many tables of the same columns
    try more pairs together than one of them does.
    """
    first = zlib.crc32(name.encode()) % len(rows) if rows else 0
    waiting = [(number, set(rows[number].items())) for number in [*range(first, len(rows)), *range(first)]]
    missing = set().union(*(cells for _, cells in waiting))
    used = Counter[tuple[str, Hashable]]()
    chosen = []
    while missing:
        # The most values that are missing; among equals the values used least so far, so that all are used evenly.
        best = max(waiting, key=lambda row: (len(row[1] & missing), -sum(used[cell] for cell in row[1])))
        waiting.remove(best)
        chosen.append(best[0])
        missing -= best[1]
        used.update(best[1])
    return sorted(chosen)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and listen to workers."""
    config.pluginmanager.register(_Listener(config))
    config.pluginmanager.register(_SlowRows())
    config.addinivalue_line(
        "markers",
        "covering(across_classes=False, shared=(), spread=(), whole=None, at_most=None): at the small effort, run only "
        "as many rows of a test as it takes for each value of each parameter to occur. across_classes: the classes of "
        "the module are one more parameter. shared: each value of these parameters occurs in some test of a group, not "
        "in every test of it. spread: the names of tests for which the classes of all modules that say so are one more "
        "parameter. whole: with `shared`, only tests that these classes define run all their rows, others one row. "
        "at_most: with `whole`, of a class that defines others only about so many tests run, one row of each.",
    )
    config.addinivalue_line(
        "markers",
        "fast_rows(...): the same choice, of the rows that `make check` runs; the others are marked slow, and run at "
        "either effort.",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the small effort leaves out; last, so that whoever asks for one row by its id gets that row."""
    if FULL:
        return
    left_out = _left_out(items, "covering")
    config.stash[_LEFT_OUT] = len(left_out)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


class _SlowRows:
    """Marks the rows of a table that are not chosen for the fast tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before anybody looks for the mark."""
        slow = _left_out(items, "fast_rows")
        for item in items if slow else ():
            if item.nodeid in slow:
                item.add_marker(pytest.mark.slow)


def _left_out(items: Iterable[pytest.Item], mark: str) -> set[str]:
    """The ids of the tests that are marked, and not chosen."""
    tables: dict[tuple[str, ...], list[tuple[str, Row]]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker(mark)
        if marker is not None and isinstance(item, pytest.Function):
            name, row = _place(item, **marker.kwargs)
            tables[name].append((item.nodeid, row))
    left_out: set[str] = set()
    for name, table in tables.items():
        left_out.update(node for node, _ in table)
        left_out.difference_update(table[number][0] for number in cover([row for _, row in table], "::".join(name)))
    return left_out


def _place(
    item: pytest.Function,
    *,
    across_classes: bool = False,
    shared: Sequence[str] = (),
    spread: Collection[str] = (),
    whole: Collection[str] | None = None,
    at_most: int | None = None,
) -> tuple[tuple[str, ...], Row]:
    """The name of the table that a test is in, and its row there."""
    cls = item.cls.__name__ if item.cls else ""
    row: dict[str, Hashable] = {"test": item.originalname, **_parameters(item)}
    if item.originalname in spread:
        return (item.originalname,), {**row, "class": cls}
    module = item.nodeid.partition("::")[0]
    if across_classes:
        return (module, item.originalname), {**row, "class": cls}
    if not shared:
        return (module, cls, item.originalname), row
    rest = tuple(sorted((name, value) for name, value in row.items() if name not in ("test", *shared)))
    topic, _, _ = item.function.__qualname__.rpartition(".")
    case: Hashable = (item.originalname, rest)
    if whole is not None and topic not in whole:
        case = zlib.crc32(item.originalname.encode()) % at_most if at_most else item.originalname
    return (module, cls, topic), {"case": case, **{name: row.get(name) for name in shared}}


def _parameters(item: pytest.Function) -> dict[str, Hashable]:
    """The parameters of a row, with one column for all names that one mark gives their values to.

    Values are told apart by identity, because they need not be hashable: all rows of a test hold the same objects.
    """
    callspec = getattr(item, "callspec", None)
    values: dict[str, Hashable] = {name: id(value) for name, value in callspec.params.items()} if callspec else {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        if len(names) > 1:
            values[",".join(names)] = tuple(values.pop(name) for name in names)
    return values


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: tell the process that reports how much was left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_WORD] = session.config.stash.get(_LEFT_OUT, 0)


class _Listener:
    """Where tests run side by side, hears how much the workers left out, which is the same for each."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended."""
        told = getattr(node, "workeroutput", None) or {}  # nothing where it died
        self._config.stash[_LEFT_OUT] = max(told.get(_WORD, 0), self._config.stash.get(_LEFT_OUT, 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how hard this run tried."""
    left_out = config.stash.get(_LEFT_OUT, 0)
    if FULL:
        terminalreporter.write_line("effort: full; nothing was left out")
    elif left_out:
        terminalreporter.write_line(
            f"effort: small; {left_out:,} rows of tables are left to the full one, `make verify`"
        )
