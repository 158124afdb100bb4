"""The calm after the faults: nothing goes wrong any more, and every key must find its end.

What always holds: a fresh process asks for every key until it settles, which it must do within lease + 2 s (and the
quiet time, where a hook has to be asked). What is reported in doubt for somebody to resolve is resolved, and must then
settle too: there is a way out of every state.
"""

from __future__ import annotations

from semel.core.outcome import DidNotHappen, Happened
from semel.engine import administration
from semel.engine.request import Request, Result
from semel.errors import FailedBefore, SemelError
from semel.testing.simulate.process import Worker
from semel.testing.simulate.simulation import Simulation
from semel.testing.simulate.violation import Violation
from semel.testing.simulate.world import (
    FINGERPRINTS,
    KEYS,
    SECOND,
    Asker,
    Broken,
    Declined,
    NothingHappened,
    request_of,
)


def calm_down(sim: Simulation) -> None:
    """Check that nothing is left over, and bring every key to its end."""
    sim.calm = True
    sim.faults.left = 0
    for late in list(sim.late):
        late.go()
    sim.drain()
    for worker in sim.workers:
        what = (worker.keeper.leftover() or worker.leases.leftover()) if worker.alive and worker.up else None
        if what is not None:
            raise Violation("leftover", f"a process whose callers have all left still holds {what}")
    keys = [key for key in sim.setting.keys if not sim.witness.is_final(KEYS[key].digest)]
    if keys:
        sim.workers.append(Worker(sim, len(sim.workers)))
    for key in keys:
        _settle(sim, key)


def _settle(sim: Simulation, key: int) -> None:
    began, resolved = sim.now_us, False
    limit = sim.setting.limit_us + max(0, -sim.jump_us)
    while True:
        request = _request(sim, key)
        caller = sim.add(sim.workers[-1], Asker(key=key), request)
        caller.alone = True
        sim.run()
        answer = caller.answer
        if isinstance(answer, (Result, FailedBefore, Declined)):
            _settled(sim, request)
            return
        if not isinstance(answer, (SemelError, Broken, NothingHappened)):
            raise Violation("broke", f"after the faults a caller got {answer!r}")
        pause = getattr(answer, "retry_after", 0.05)
        if pause is None:
            if resolved:
                raise Violation("I8", "a key that was resolved is still in doubt")
            resolved = True
            _resolve(sim, request)
            pause = 0.0
        if sim.now_us - began > limit:
            raise Violation("I8", f"after the faults {type(answer).__name__} for {(sim.now_us - began) / SECOND:.2f} s")
        sim.advance(sim.now_us + max(1, round(pause * SECOND)))


def _request(sim: Simulation, key: int) -> Request:
    """What the last owner of the key asked for."""
    record = sim.store.table.records.get(KEYS[key].digest)
    fingerprint = FINGERPRINTS.index(record.fingerprint) if record is not None and record.fingerprint else 0
    word = sim.world.in_doubt if record is None else record.in_doubt_policy
    policy = sim.setting.policies.get(word, sim.setting.policies[sim.world.in_doubt])
    return request_of(policy, Asker(key=key, fingerprint=fingerprint))


def _settled(sim: Simulation, request: Request) -> None:
    record = sim.store.table.records.get(request.key.digest)
    if record is None or not record.final:
        raise Violation("I8", "a caller got its answer, and the record is not final")
    sim.seen["settled in the end"] += 1


def _resolve(sim: Simulation, request: Request) -> None:
    """Somebody looks at the ledger and decides."""
    life = sim.store.claims.lives[request.key.digest]
    resolution = Happened(life.effects[0].value) if life.effects else DidNotHappen()
    nonce = b"resolved.%d" % len(sim.callers)
    flow = administration.resolve(request.key, resolution, reason="the ledger says so", by="", nonce=nonce, known=None)
    operation = next(flow)
    try:
        flow.send(sim.store.apply(operation))
    except StopIteration:
        sim.seen["held, then resolved"] += 1
    except SemelError as error:
        raise Violation("I8", f"what was reported in doubt cannot be resolved: {error}") from error
