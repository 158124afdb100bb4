"""`within` on PostgreSQL: a business transaction of three statements, bare and with its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench.callers import Numbers, alone, alone_async, event_loop, keys_of
from bench.cases.memory import Prepare
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, execute, server
from bench.shop import TABLES, asked, place, place_async
from bench.site import Fact
from bench.statement_log import StatementLog
from bench.workload import OPERATION, TENANT, AsyncCall, Call
from semel import AsyncSemel, Semel

KEYS = 200
_FIRST = Comparison("slower", 1.5)
_COUNTED = 10
Work = Callable[[list[int]], float]


class Opened(Protocol):
    """Opens one connection and gives what makes calls on it, bare or inside `within`."""

    def __call__(self, url: str, *, joined: bool) -> AbstractContextManager[Work]: ...


@contextmanager
def _shop(folder: Path, name: str) -> Iterator[str]:
    with database(folder, name) as url:
        execute(url, *TABLES)
        yield url


def _bare(connection: Any) -> Call:
    def call(number: int) -> Any:
        with connection.transaction():
            return place(TENANT, *asked(number), connection)

    return call


def _joined(semel: Semel, connection: Any) -> Call:
    placed = semel.once(key="order_id", scope="tenant", operation=OPERATION, ignore=("connection",))(place)

    def call(number: int) -> Any:
        with connection.transaction(), semel.within(connection):
            return placed(TENANT, *asked(number), connection)

    return call


def _bare_async(connection: Any) -> AsyncCall:
    async def call(number: int) -> Any:
        async with connection.transaction():
            return await place_async(TENANT, *asked(number), connection)

    return call


def _joined_async(semel: AsyncSemel, connection: Any) -> AsyncCall:
    placed = semel.once(key="order_id", scope="tenant", operation=OPERATION, ignore=("connection",))(place_async)

    async def call(number: int) -> Any:
        async with connection.transaction(), semel.within(connection):
            return await placed(TENANT, *asked(number), connection)

    return call


@contextmanager
def _sync(url: str, *, joined: bool) -> Iterator[Work]:
    import psycopg

    with Semel(url) as semel, psycopg.connect(url) as connection:
        call = _joined(semel, connection) if joined else _bare(connection)
        yield lambda numbers: alone(numbers, call)


@contextmanager
def _async(url: str, *, joined: bool) -> Iterator[Work]:
    import asyncpg

    with event_loop() as loop:
        semel, connection = AsyncSemel(url), loop.run(asyncpg.connect(url))
        call = _joined_async(semel, connection) if joined else _bare_async(connection)
        yield lambda numbers: loop.run(alone_async(numbers, call))
        loop.run(connection.close())
        loop.run(semel.close())


_LIBRARIES: dict[str, Opened] = {"psycopg": _sync, "asyncpg": _async}


def _first(name: str, opened: Opened, *, joined: bool) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        numbers = Numbers()
        numbers.take(1)  # the template was filled with the first
        with _shop(folder, name) as url, opened(url, joined=joined) as work:
            yield lambda calls: work(numbers.take(calls))

    return prepare


def _replay(name: str, opened: Opened) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(KEYS)
        with _shop(folder, name) as url, opened(url, joined=True) as work:
            work(list(range(1, keys + 1)))
            yield lambda calls: work([1 + number for number in keys_of(calls, keys)])

    return prepare


def _facts(folder: Path, effort: Effort) -> Sequence[Fact]:
    facts: list[Fact] = []
    for library, opened in _LIBRARIES.items():
        bare, bare_commits, _ = _counted(folder, f"counted_{library}_bare", opened, joined=False)
        joined, commits, again = _counted(folder, f"counted_{library}", opened, joined=True)
        facts += [
            Fact(f"{library}, first run: statements added", joined - bare, "", 2, "exactly"),
            Fact(f"{library}, first run: commits added", commits - bare_commits, "", 0, "exactly"),
            Fact(f"{library}, replay: statements beside begin and commit", again, "", 1, "exactly"),
        ]
    return facts


def _counted(folder: Path, name: str, opened: Opened, *, joined: bool) -> tuple[float, float, float]:
    """What the server's log says of each call: statements and commits of a first run, statements of a replay."""
    with _shop(folder, name) as url:
        log = StatementLog.of(folder, url)
        with opened(url, joined=joined) as work:
            work(list(range(1, 21)))  # until everything is prepared
            numbers = list(range(100, 100 + _COUNTED))
            first = log.during(lambda: work(numbers))
            again = log.during(lambda: work(numbers)) if joined else []
    commits = sum(text.upper().startswith("COMMIT") for text in first)
    return _own(first) / _COUNTED, commits / _COUNTED, _own(again) / _COUNTED


def _own(texts: list[str]) -> int:
    """How many statements there are beside begin and commit."""
    return sum(not text.upper().startswith(("BEGIN", "COMMIT")) for text in texts)


def _variants(library: str, opened: Opened) -> tuple[Variant, ...]:
    bare = f"bare, {library}"
    return (
        Variant(bare, _first(f"within_bare_{library}", opened, joined=False), 100),
        Variant(
            f"within, {library}, first run",
            _first(f"within_first_{library}", opened, joined=True),
            100,
            against=bare,
            by=_FIRST,
        ),
        Variant(f"within, {library}, replay", _replay(f"within_replay_{library}", opened), 300, against=bare),
    )


WITHIN = Case(
    "within",
    "within on PostgreSQL: a transaction of three statements and a commit, and the same with its record",
    tuple(variant for library, opened in _LIBRARIES.items() for variant in _variants(library, opened)),
    notes=("An order, its line, an update of the stock; one caller on one connection of its own.",),
    site=server,
    facts=_facts,
)
