"""Redis, one caller: what semel adds to the bare commands."""

from __future__ import annotations

from bench.by_hand_redis import AsyncHand, Hand
from bench.cases.served_one import ServedOne
from bench.harness import Case, Comparison
from bench.redis_server import database, server

_ONE = ServedOne(database, Hand, AsyncHand.open, keys=1000)
_TARGET = Comparison("slower", 1.3)

REDIS_ONE = Case(
    "redis-one",
    "Redis, one caller: two scripts for a first run, one for a replay",
    _ONE.variants(1000, 2000, _TARGET, _TARGET),
    notes=(
        "By hand: the same scripts, called by their digests through redis-py on one connection.",
        "The bare read is the script of a claim that finds the outcome; the reply is thrown away.",
    ),
    site=server,
)
