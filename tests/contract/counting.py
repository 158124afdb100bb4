"""Runs the contract on memory and counts, topic by topic, how the engine is entered: by `run`, or a decorated function.

An entry that a topic was seen to use is not looked for again: further scenarios are skipped. The report is one line of
JSON at the end of the run.
"""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from tests.styles import Case, case_of, choose

MARK = "entries: "


class Entries:
    """How often the engine was entered: by topic, by colour and style of calling, and by method."""

    def __init__(self) -> None:
        self.entered: Counter[tuple[str, str, str]] = Counter()
        self.topic = ""
        self.cases: dict[str, Case] = {}

    def watch(self, owner: type, name: str, style: str) -> None:
        """Count every call of a method; whoever calls it sees no difference."""
        method: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(method)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.entered[self.topic, style, f"{owner.__name__}.{name}"] += 1
            return method(*args, **kwargs)

        setattr(owner, name, counted)

    def pytest_configure(self) -> None:
        def charge(key: str) -> None: ...
        async def charge_async(key: str) -> None: ...

        sync_function = Semel("memory://").once(key="key")(charge)
        async_function = AsyncSemel("memory://").once(key="key")(charge_async)
        for colour, engine, function in (("sync", Semel, sync_function), ("async", AsyncSemel, async_function)):
            self.watch(engine, "run", f"{colour} run")
            for kind in (type(function), type(function.__get__(object(), object))):
                self.watch(kind, "result", f"{colour} decorated")
                self.watch(kind, "__call__", f"{colour} decorated")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        cases = {item.nodeid: case for item in items if (case := case_of(item)) is not None}
        styles = Counter(case._replace(style="") for case in cases.values())
        self.cases = {name: case for name, case in cases.items() if styles[case._replace(style="")] > 1}
        items[:] = [item for item in items if item.nodeid in self.cases]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        case = self.cases[item.nodeid]
        self.topic = case.topic
        if any(self.entered[key] for key in self.entered if key[:2] == (case.topic, f"{case.colour} {case.style}")):
            pytest.skip("this topic was seen to call in this style")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        chosen = sorted({(case.topic, f"{case.colour} {case.style}") for case in choose(self.cases.values())})
        report = {"entered": [[*key, count] for key, count in self.entered.items()], "chosen": chosen}
        terminalreporter.write_line(MARK + json.dumps(report))


if __name__ == "__main__":
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main([*quiet, "tests/contract/test_memory.py"], plugins=[Entries()]))
