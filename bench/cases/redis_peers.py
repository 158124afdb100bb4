"""Redis, 64 callers in one process: semel beside idemkit and beside aws-lambda-powertools, at function level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.callers import Numbers, in_threads, keys_of
from bench.cases.served_idemkit import Fill, ServedIdemkit
from bench.cases.served_many import ServedMany
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.machine import version_of
from bench.redis_server import address, database, server
from bench.workload import AMOUNT, OPERATION, TENANT, Receipt, charge, order

CALLERS = 64
FIRST = 3_200
REPLAY = 6_400
KEYS = 500
_SEMEL = ServedMany(database, CALLERS, keys=2_000)
_BESIDE_POWERTOOLS = Comparison("faster", 7.0)
_ON_THE_SAME = "The same server for all; the records that it holds before are semel's."


@contextmanager
def _backend(folder: Path, effort: Effort, name: str) -> Iterator[tuple[Any, Fill]]:
    from idemkit.backends.redis import RedisBackend

    yield RedisBackend.from_url(address(folder), namespace=name), lambda: None


_IDEMKIT = ServedIdemkit(_backend, CALLERS, KEYS)

REDIS_IDEMKIT = Case(
    "redis-idemkit",
    f"Redis, 64 callers in one process, beside idemkit {version_of('idemkit') or '(not installed)'}",
    _IDEMKIT.variants(_SEMEL, (FIRST, REPLAY), Comparison("faster", 4.0), Comparison("faster", 5.0)),
    notes=(
        "idemkit: its own decorator and Redis backend, with the connections that its client opens by itself.",
        "idemkit's sync decorator runs its async core on a loop in another thread.",
        _ON_THE_SAME,
    ),
    needs="idemkit",
    site=server,
)


class _Invocation:
    """What a function of AWS Lambda is given beside its event."""

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


def _powertools(url: str, prefix: str) -> Callable[[int], Receipt]:
    """`charge` under the decorator of powertools, asked for scope and key.

    Other arguments under the same key are not refused: its layer for Redis forgets their digest when it completes a
    record, and would refuse every replay.
    """
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

    config = IdempotencyConfig(event_key_jmespath="[tenant, order_id]", lambda_context=_Invocation())

    @idempotent_function(  # type: ignore[untyped-decorator]
        data_keyword_argument="asked",
        persistence_store=CachePersistenceLayer(url=url),
        config=config,
        key_prefix=f"{prefix}.{OPERATION}",
    )
    def charged(*, asked: dict[str, Any]) -> Receipt:
        return charge(**asked)

    def call(number: int) -> Receipt:
        receipt: Receipt = charged(asked={"tenant": TENANT, "order_id": order(number), "amount": AMOUNT})
        return receipt

    return call


@contextmanager
def _first(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers, call = Numbers(), _powertools(address(folder), "powertools-first")
    yield lambda calls: in_threads(CALLERS, numbers.take(calls), call)


@contextmanager
def _replay(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys, call = effort.keys(KEYS), _powertools(address(folder), "powertools-replay")
    in_threads(CALLERS, list(range(keys)), call)
    yield lambda calls: in_threads(CALLERS, keys_of(calls, keys), call)


REDIS_POWERTOOLS = Case(
    "redis-powertools",
    f"Redis, 64 callers in one process, beside aws-lambda-powertools {version_of('aws-lambda-powertools') or ''}",
    (
        Variant("powertools, threads, first run", _first, 320),
        Variant("semel, threads, first run", _SEMEL.first, FIRST, "powertools, threads, first run", _BESIDE_POWERTOOLS),
        Variant(
            "semel, tasks, first run", _SEMEL.first_async, FIRST, "powertools, threads, first run", _BESIDE_POWERTOOLS
        ),
        Variant("powertools, threads, replay", _replay, 640),
        Variant("semel, threads, replay", _SEMEL.replay, REPLAY, "powertools, threads, replay", _BESIDE_POWERTOOLS),
        Variant("semel, tasks, replay", _SEMEL.replay_async, REPLAY, "powertools, threads, replay", _BESIDE_POWERTOOLS),
    ),
    notes=(
        "powertools: its decorator for functions and its cache persistence layer on redis-py; it has threads alone.",
        "powertools does not refuse other arguments here: with its validation on, every replay from Redis is refused.",
        _ON_THE_SAME,
    ),
    needs="aws-lambda-powertools",
    site=server,
)
