"""Every case by its name."""

from __future__ import annotations

from bench.cases.aws_lambda import AWS_LAMBDA
from bench.cases.batch import BATCH, BATCH_PEERS
from bench.cases.celery import CELERY_RABBITMQ, CELERY_REDIS
from bench.cases.client import CLIENT
from bench.cases.events import EVENTS_EVENTBRIDGE, EVENTS_NATS, EVENTS_RABBITMQ, EVENTS_REDIS, EVENTS_SQS
from bench.cases.faststream import FASTSTREAM_NATS, FASTSTREAM_RABBITMQ, FASTSTREAM_REDIS
from bench.cases.http import HTTP, HTTP_IDEMKIT, HTTP_REDIS
from bench.cases.latency import LATENCY
from bench.cases.mariadb_many import MARIADB_64
from bench.cases.memory import ENGINE
from bench.cases.outbox import OUTBOX
from bench.cases.peers import IDEMKIT
from bench.cases.postgresql_many import POSTGRESQL_64
from bench.cases.postgresql_one import POSTGRESQL_ONE
from bench.cases.postgresql_peers import POSTGRESQL_IDEMKIT
from bench.cases.postgresql_pools import POSTGRESQL_POOLS
from bench.cases.redis_one import REDIS_ONE
from bench.cases.redis_peers import REDIS_IDEMKIT, REDIS_POWERTOOLS
from bench.cases.round_trips import REDIS_ROUND_TRIPS, ROUND_TRIPS
from bench.cases.rows import ROWS
from bench.cases.sealing import SEALING
from bench.cases.sqlite_many import SQLITE_64
from bench.cases.sqlite_one import SQLITE_ONE, SQLITE_REPLAY
from bench.cases.sweep import SWEEP
from bench.cases.telemetry import TELEMETRY
from bench.cases.tiered import TIERED
from bench.cases.within import WITHIN
from bench.cases.workflow import WORKFLOW
from bench.harness import Case
from bench.machine import version_of

CASES = {
    case.name: case
    for case in (
        SQLITE_64,
        SQLITE_ONE,
        SQLITE_REPLAY,
        ENGINE,
        IDEMKIT,
        POSTGRESQL_64,
        POSTGRESQL_IDEMKIT,
        POSTGRESQL_ONE,
        POSTGRESQL_POOLS,
        MARIADB_64,
        REDIS_IDEMKIT,
        REDIS_POWERTOOLS,
        REDIS_ONE,
        TIERED,
        TELEMETRY,
        WITHIN,
        BATCH,
        BATCH_PEERS,
        WORKFLOW,
        OUTBOX,
        EVENTS_RABBITMQ,
        EVENTS_NATS,
        EVENTS_REDIS,
        CELERY_RABBITMQ,
        CELERY_REDIS,
        EVENTS_SQS,
        EVENTS_EVENTBRIDGE,
        AWS_LAMBDA,
        FASTSTREAM_RABBITMQ,
        FASTSTREAM_NATS,
        FASTSTREAM_REDIS,
        HTTP,
        HTTP_IDEMKIT,
        HTTP_REDIS,
        CLIENT,
        ROUND_TRIPS,
        REDIS_ROUND_TRIPS,
        LATENCY,
        ROWS,
        SWEEP,
        SEALING,
    )
}


def chosen(names: list[str]) -> list[Case]:
    """The cases asked for, all of them where none is named.

    Raises:
        LookupError: there is no case of that name.
    """
    unknown = [name for name in names if name not in CASES]
    if unknown:
        message = f"There is no case {unknown[0]!r}. There are: {', '.join(CASES)}."
        raise LookupError(message)
    return [case for case in CASES.values() if not names or case.name in names]


def missing(case: Case) -> str | None:
    """The package that a case needs and that is not installed here."""
    return case.needs if case.needs and version_of(case.needs) is None else None
