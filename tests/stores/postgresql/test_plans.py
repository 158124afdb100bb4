"""The statements that callers wait for find their rows by index, on a fresh table and on an analysed one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from semel.core.operations import AddReplays
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.dialect import PostgresDialect
from semel.stores.postgresql.store import POSTGRESQL
from semel.stores.sql.adapter import PlaceholderStyle
from semel.stores.sql.adapters.psycopg import PsycopgAdapter
from semel.stores.sql.dialect import Command
from semel.stores.sql.settings import Settings
from tests.stores.postgresql.kit import DAY, SECOND, Asker, claims, completions, rows

Make = Callable[[PostgresDialect], Command]
LEASES = [(one.key.digest, one.nonce, 1) for one in claims(3)]
HOT: dict[str, Make] = {
    "first claim of one": lambda dialect: dialect.claim(claims(1), joined=False, turn=0),
    "first claim of many": lambda dialect: dialect.claim(claims(3), joined=False, turn=0),
    "claim one": lambda dialect: dialect.claim(claims(1), joined=False, turn=1),
    "claim many": lambda dialect: dialect.claim(claims(3), joined=False, turn=1),
    "claim in the caller's transaction": lambda dialect: next(dialect.claim_short(claims(1)[0])),
    "complete one": lambda dialect: dialect.write("complete", [(*LEASES[0], b"x")], transaction=None),
    "complete many": lambda dialect: dialect.write("complete", [(*one, b"x") for one in LEASES], transaction=None),
    "renew many": lambda dialect: dialect.write("renew", [(*one, SECOND) for one in LEASES], transaction=None),
    "fail one": lambda dialect: dialect.write(
        "fail", [(*LEASES[0], "failed", True, "app.Broke", "", False, 0)], transaction=None
    ),
    "checkpoint one": lambda dialect: dialect.write("checkpoint", [(*LEASES[0], 0, "a", b"x")], transaction=None),
    "read one": lambda dialect: dialect.read([LEASES[0][0]], joined=False),
    "read many": lambda dialect: dialect.read([one[0] for one in LEASES], joined=False),
    "steps": lambda dialect: dialect.steps(LEASES[0][0], 1, joined=False),
    "purge": lambda dialect: next(dialect.purge_kept(DAY, 100, equal=True)),
    "purge the rest": lambda dialect: next(dialect.purge_kept(DAY, 100, equal=False)),
    "next value of keep_us": lambda dialect: dialect.next_keep(0),
    "running since": lambda dialect: dialect.running_kept(DAY, 1, 100, equal=True),
    "running among": lambda dialect: dialect.running_among([one[0] for one in LEASES]),
    "mark lapsed": lambda dialect: next(dialect.mark_lapsed([one[0] for one in LEASES])),
    "tally many": lambda dialect: dialect.tally([AddReplays(one[0], 1) for one in LEASES]),
}
_numbered = PlaceholderStyle("$")


@pytest.fixture(scope="module")
def place(postgresql: Any) -> Iterator[tuple[str, Any]]:
    """A database that was never analysed, and a session as the store's own are."""
    url = postgresql.new_database()
    PostgresStore(url).admin().migrate()
    rows(url, "ALTER TABLE semel_record SET (autovacuum_enabled = false)")
    connection = PsycopgAdapter(POSTGRESQL).connect(Settings.of(url))
    yield url, connection
    connection.close()


@pytest.fixture(scope="module")
def analysed(postgresql: Any) -> Iterator[tuple[str, Any]]:
    """The same with records, which the server has counted."""
    url = postgresql.new_database()
    asker = Asker(PostgresStore(url))
    for _ in range(30):
        asker.all(completions(asker.all(claims(64))))
    asker.close()
    rows(url, "ANALYZE semel_record, semel_step")
    connection = PsycopgAdapter(POSTGRESQL).connect(Settings.of(url))
    yield url, connection
    connection.close()


def scans(connection: Any, command: Command, mode: str) -> list[tuple[str, str]]:
    """How each table of ours is read by the plan that the server keeps for the statement."""
    connection.prepare_threshold = None  # psycopg would not know that its own statements are gone
    connection.execute(f"SET plan_cache_mode = {mode}")
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE asked AS {_numbered(command.text)}".encode())
    marks = ", ".join(["%s"] * len(command.values))
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({marks})".encode(), command.values)
        (told,) = cursor.fetchone() or ("[]",)
    plan = told if isinstance(told, list) else json.loads(told)
    return [
        (node["Relation Name"], node["Node Type"])
        for node in _nodes(plan[0]["Plan"])
        if node["Node Type"] != "ModifyTable" and str(node.get("Relation Name", "")).startswith("semel_")
    ]


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from _nodes(inner)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"], ids=["custom", "generic"])
@pytest.mark.parametrize("make", HOT.values(), ids=HOT)
@pytest.mark.parametrize("state", ["place", "analysed"], ids=["fresh", "analysed"])
def test_rows_are_found_by_index(state: str, make: Make, mode: str, request: pytest.FixtureRequest) -> None:
    url, connection = request.getfixturevalue(state)
    read = scans(connection, make(PostgresDialect(Settings.of(url))), mode)
    assert read
    assert {how for _, how in read} <= {"Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan"}, read


def test_a_plan_without_the_settings_of_the_session_would_be_noticed(place: tuple[str, Any]) -> None:
    url, _ = place
    with psycopg.connect(url, autocommit=True) as plain:
        plain.execute("SET enable_indexscan = off")
        plain.execute("SET enable_bitmapscan = off")
        read = scans(plain, HOT["read one"](PostgresDialect(Settings.of(url))), "force_generic_plan")
    assert ("semel_record", "Seq Scan") in read
