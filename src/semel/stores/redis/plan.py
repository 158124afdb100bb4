"""Plans: operations as commands. Without colour and without a connection.

What always holds: a plan answers each operation as the memory store's table would. Each operation on a record is one
script on one key, and all of a list go out together. An error is the answer of the one operation that it befell.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

from semel.core import erasing
from semel.core.arbitration import Winnable, granted, judge
from semel.core.operations import (
    Answer,
    Checkpoint,
    Claim,
    Complete,
    Confirm,
    Enter,
    Erase,
    Erased,
    Fail,
    Found,
    Held,
    Invalidate,
    Lapse,
    Lost,
    Operation,
    Pending,
    Purge,
    Read,
    Recorded,
    Renew,
    Resolve,
    Resolved,
    Scan,
    Tally,
    Unresolvable,
)
from semel.core.record import Lease, Status
from semel.core.store import Answers, Plan
from semel.errors import StoreUnavailable
from semel.stores.redis.commands import Reply, Script, Talk
from semel.stores.redis.fields import (
    instant_told,
    packed_about,
    packed_failure,
    packed_key,
    packed_step,
    record_of,
)
from semel.stores.redis.place import Place
from semel.stores.redis.walks import lapse, purge, scan, walked
from semel.stores.refusals import no_notes
from semel.stores.storable import new_record

Values = tuple[Any, ...]
Many = Callable[[Place, Sequence[Any]], Talk]


def plan(place: Place, operations: Sequence[Operation]) -> Plan:
    """The commands for `operations`, all of one kind."""
    if not operations:
        return []
    try:
        return cast("Answers", (yield from _PLANS[type(operations[0])](place, operations)))
    except Exception as error:  # noqa: BLE001 - it befell all of them
        return [error] * len(operations)


def _each(
    operations: Sequence[Any], replies: Sequence[Reply], answer: Callable[[Any, Reply], Answer | Exception]
) -> Answers:
    """The answer to each operation: what the reply means, or the error that is the reply."""
    answers: Answers = []
    for operation, reply in zip(operations, replies, strict=True):
        if isinstance(reply, Exception):
            answers.append(reply)
            continue
        try:
            answers.append(answer(operation, reply))
        except Exception as error:  # noqa: BLE001 - a record that cannot be read is the answer of who asked for it
            answers.append(error)
    return answers


def _claims(place: Place, claims: Sequence[Claim]) -> Talk:
    replies = yield [Script("claim", place.key(claim.key), _claim_values(claim)) for claim in claims]
    return _each(claims, replies, _claimed)


def _claim_values(claim: Claim) -> Values:
    terms = claim.terms
    return (
        claim.fingerprint,
        claim.nonce,
        terms.lease_us,
        terms.keep_us,
        terms.in_doubt,
        terms.reconcile_after_us,
        packed_key(claim.key),
        packed_about(claim.about),
    )


def _claimed(claim: Claim, reply: Reply) -> Answer | Exception:
    """What a claim met: judged on the very record, and at the very instant, that decided about it."""
    if isinstance(reply, int):
        return granted(new_record(claim, reply, lease_us=claim.terms.lease_us))  # there was none
    record = record_of(claim.key.digest, reply)
    if record.nonce == claim.nonce and record.status is Status.RUNNING:
        return granted(record)
    answer = judge(record, claim, instant_told(reply))
    if isinstance(answer, Winnable):
        return StoreUnavailable("The record could be claimed and was not; nothing ran. Try again.", conflict=True)
    return answer


def _writing(name: str, values: Callable[[Place, Any], Values]) -> Many:
    def many(place: Place, operations: Sequence[Any]) -> Talk:
        scripts = [
            Script(name, place.key(operation.lease.key), (*_shown(operation.lease), *values(place, operation)))
            for operation in operations
        ]
        return _each(operations, (yield scripts), _written)

    return many


def _shown(lease: Lease) -> Values:
    return lease.nonce, lease.fence


def _telling(place: Place, digest: bytes) -> Values:
    return place.pattern.channel, digest.hex()


def _complete_values(place: Place, operation: Complete) -> Values:
    return operation.outcome, *_telling(place, operation.lease.key.digest)


def _fail_values(place: Place, operation: Fail) -> Values:
    return (
        operation.ending,
        packed_failure(operation.error),
        int(operation.doubtful),
        int(not operation.started),
        *_telling(place, operation.lease.key.digest),
    )


def _written(operation: Renew | Complete | Fail | Checkpoint, reply: int) -> Answer:
    if not reply:
        return Lost()
    return Held(reply) if isinstance(operation, Renew) else Recorded(reply)


def _enter(_place: Place, operations: Sequence[Enter]) -> Talk:
    return [Lost()] * len(operations)  # there is no transaction to enter
    yield []


def _located(place: Place, wanted: Sequence[tuple[bytes, str]]) -> Generator[Any, list[Reply], list[str]]:
    """The keys of digests. One whose operation nobody named since this process began is looked for among all."""
    keys: list[str] = []
    for digest, operation in wanted:
        key = place.known_key(digest, operation)
        if key is None:
            found = yield from walked(place.pattern.match(reference=digest.hex()))
            key = next((place.remember(digest, each) for each in found if place.pattern.digest(each) == digest), None)
        keys.append(key or _nobodys(place, digest))
    return keys


def _nobodys(place: Place, digest: bytes) -> str:
    """A key that no record has, because no operation is empty: what is asked of it is asked of nothing."""
    return place.pattern.key("", digest)


def _reads(place: Place, operations: Sequence[Read]) -> Talk:
    keys = yield from _located(place, [(operation.digest, operation.operation) for operation in operations])
    scripts = [Script("read", key, (int(operation.waits),)) for key, operation in zip(keys, operations, strict=True)]
    return _each(operations, (yield scripts), _found)


def _found(operation: Read, reply: Reply) -> Answer:
    if isinstance(reply, int):
        return Found(None, reply)
    return Found(record_of(operation.digest, reply), instant_told(reply))


def _resolves(place: Place, operations: Sequence[Resolve]) -> Talk:
    keys = yield from _located(place, [(operation.digest, operation.operation) for operation in operations])
    scripts = [
        Script("resolve", key, _resolve_values(place, operation))
        for key, operation in zip(keys, operations, strict=True)
    ]
    return _each(operations, (yield scripts), _resolved)


def _resolve_values(place: Place, operation: Resolve) -> Values:
    outcome = (0, b"") if operation.outcome is None else (1, operation.outcome)
    told = _telling(place, operation.digest)
    return operation.nonce, operation.status.value, operation.note, *told, *outcome, operation.corrects or b""


def _resolved(operation: Resolve, reply: Reply) -> Answer:
    if reply is None:
        return Unresolvable(None)
    done, told = reply
    record = record_of(operation.digest, told)
    return Resolved(record) if done else Unresolvable(record)


def _erases(place: Place, operations: Sequence[Erase]) -> Talk:
    keys = yield from _located(place, [(operation.digest, operation.operation) for operation in operations])
    left = (erasing.TOMBSTONE, packed_failure(erasing.FAILURE))
    scripts = [Script("erase", key, (operation.note, *left)) for key, operation in zip(keys, operations, strict=True)]
    return _each(operations, (yield scripts), _erased)


def _erased(operation: Erase, reply: Reply) -> Answer:
    if reply is None:
        return Unresolvable(None)
    done, told = reply
    record = record_of(operation.digest, told)
    return Erased(record) if done else Unresolvable(record)


def _invalidates(_place: Place, operations: Sequence[Invalidate]) -> Talk:
    return [Recorded(0)] * len(operations)  # there is no cache in front of Redis
    yield []


def _no_cache_in_front(_place: Place, operations: Sequence[Pending | Confirm]) -> Talk:
    return [no_notes("Redis")] * len(operations)
    yield []


def _tallies(place: Place, operations: Sequence[Tally]) -> Talk:
    # Whoever counts has claimed here; what was forgotten since is not worth a look among all keys.
    keys = [place.known_key(operation.digest) or _nobodys(place, operation.digest) for operation in operations]
    scripts = [Script("tally", key, (operation.replays,)) for key, operation in zip(keys, operations, strict=True)]
    return _each(operations, (yield scripts), lambda _, now: Recorded(now))


_PLANS: dict[type, Many] = {
    Claim: _claims,
    Renew: _writing("renew", lambda _, operation: (operation.lease_us,)),
    Complete: _writing("complete", _complete_values),
    Fail: _writing("fail", _fail_values),
    Checkpoint: _writing("checkpoint", lambda _, operation: packed_step(operation.step)),
    Enter: _enter,
    Read: _reads,
    Scan: scan,
    Resolve: _resolves,
    Erase: _erases,
    Invalidate: _invalidates,
    Pending: _no_cache_in_front,
    Confirm: _no_cache_in_front,
    Purge: purge,
    Lapse: lapse,
    Tally: _tallies,
}
