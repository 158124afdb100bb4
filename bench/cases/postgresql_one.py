"""PostgreSQL, one caller: what semel adds to the bare statements."""

from __future__ import annotations

from bench.by_hand_postgresql import AsyncHand, Hand
from bench.cases.served_one import ServedOne
from bench.harness import Case, Comparison
from bench.postgresql_server import database, server

_ONE = ServedOne(database, Hand, AsyncHand.open, keys=500)

POSTGRESQL_ONE = Case(
    "postgresql-one",
    "PostgreSQL, one caller: two statements and two commits for a first run, one look-up for a replay",
    _ONE.variants(100, 1000, Comparison("slower", 1.3), Comparison("slower", 1.7)),
    notes=(
        "By hand: a plain insert and a plain update, prepared, in autocommit, through psycopg; async through asyncpg.",
        "The bare read fetches the whole row by its primary key and does nothing with it.",
    ),
    site=server,
)
