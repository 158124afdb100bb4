"""What goes wrong, and where: every fault of a schedule is chosen here, paid from its budget, and written down.

What always holds: with the budget used up nothing goes wrong any more. A fault is noted for every key it touches, so
that whatever is done twice can be asked for its explanation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from semel.core.operations import Claim, CountFailure, Fail, Operation
from semel.core.store import Answers
from semel_lab.simulate.dynamodb_requests import Exchange
from semel_lab.simulate.process import IDLE, LaneRunner, Worker, unanswered
from semel_lab.simulate.store_model import WatchedDynamo
from semel_lab.simulate.world import SECOND

if TYPE_CHECKING:
    from semel_lab.simulate.caller import Caller
    from semel_lab.simulate.simulation import Simulation


class Late:
    """Operations on their way whose sender no longer waits. Its move: they arrive."""

    __slots__ = ("actor", "operations", "sim")

    def __init__(self, sim: Simulation, operations: list[Operation], actor: int) -> None:
        self.sim = sim
        self.operations = operations
        self.actor = actor

    def go(self) -> None:
        """Arrive."""
        self.sim.late.remove(self)
        self.sim.calm_since_us = self.sim.now_us
        self.sim.seen["arrived late"] += 1
        self.sim.arriving = True
        for operation in self.operations:
            self.sim.store.apply(operation)
        self.sim.arriving = False


class Faults:
    """The faults of one schedule."""

    __slots__ = (
        "_endings",
        "_forgets",
        "_in_handler",
        "_jumps",
        "_menu",
        "_reading",
        "cancels",
        "explained",
        "ghosts",
        "left",
        "sim",
        "unknown",
    )

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.left = sim.world.budget
        self.explained: dict[bytes, int] = {}
        self.unknown: set[bytes] = set()  # nonces of claims whose fate nobody was told
        self.ghosts: set[bytes] = set()  # nonces of claims that may arrive when nobody wants them any more
        self._menu, self._reading, self._in_handler, self._endings = sim.setting.menus
        if sim.world.store == "dynamodb":
            self._menu = self._reading = ()  # it happens to requests, not to rounds
        self._forgets = sim.world.store == "redis"
        self._jumps = "jump" in sim.world.faults
        self.cancels = "cancel" in sim.world.faults

    def note(self, kind: str, digests: Iterable[bytes], who: str) -> None:
        """It was chosen."""
        sim = self.sim
        self.left -= 1
        sim.calm_since_us = sim.now_us
        sim.seen["fault: " + kind] += 1
        for digest in set(digests):
            self.explained[digest] = self.explained.get(digest, 0) + 1
        if sim.trace is not None:
            sim.note(who, f"!! {kind}")

    def overrun(self, digest: bytes) -> None:
        """A handler went on beyond max_runtime, which explains as much as a stall."""
        self.explained[digest] = self.explained.get(digest, 0) + 1

    def decided(self, digest: bytes) -> None:
        """An operator has let a key run again, which explains as much as a fault."""
        self.explained[digest] = self.explained.get(digest, 0) + 1

    def at_round(self, lane: LaneRunner) -> None:
        """A round goes out, or something happens to it."""
        if self.left:
            kinds = self._reading if lane.only_reads() else self._menu
            if self._forgets:
                kinds = (*kinds, *self.sim.quirks.options())
            callers = lane.callers_of(lane.next_tickets()) if self.cancels else []
            targets = [caller for caller in callers if _may_be_cancelled(caller)]
            count = len(kinds) + len(targets)
            choice = self.sim.choices.fault(count + 1) if count else 0
            if choice > len(kinds):
                self._cancel(targets[choice - len(kinds) - 1])
                return
            if choice and self.sim.quirks.strike(kinds[choice - 1]):
                self.at_round(lane)  # and then the round goes out, or something else happens to it too
                return
            if choice:
                self._spoil(lane, kinds[choice - 1])
                return
        if isinstance(self.sim.store, WatchedDynamo):
            lane.begin(Exchange(lane, self.sim.store))
            return
        replies = lane.apply(lane.take())
        if self.left and self.cancels:
            lane.sent(replies)
        else:
            lane.settle(replies)

    def _spoil(self, lane: LaneRunner, kind: str) -> None:
        worker, sim = lane.worker, self.sim
        touched = [digest for pending in lane.next_tickets() if (digest := _digest(pending.operation))]
        whole = kind not in ("refuse", "lose", "late", "half")  # it holds up everybody in the process
        self.note(kind, touched + _keys_of(worker) if whole else touched, f"process {worker.index}")
        if kind == "crash before":
            self.crash(worker)
            return
        if kind == "stall before":
            self.stall(worker)
            return
        plans = lane.take()
        if lane.state == IDLE:
            return  # everybody is gone who had something to send
        replies = self._replies(lane, plans, kind)
        if kind in ("refuse", "lose", "late", "half"):
            self.unanswered(lane, replies)
        if kind == "hang":
            sim.held_up = True
            lane.sent(replies, sim.now_us + round(sim.world.stall * SECOND))
            return
        if kind == "crash after":
            self.crash(worker)
            return
        lane.sent(replies)
        if kind == "stall after":
            self.stall(worker)

    def unanswered(self, lane: LaneRunner, replies: list[Answers | Exception]) -> None:
        """Nobody knows what became of the claims of a round, and of those it gave back."""
        self.unknown.update(_unanswered(lane, replies))

    def _replies(self, lane: LaneRunner, plans: list[Any], kind: str) -> list[Answers | Exception]:
        nothing: list[Answers | Exception] = [unanswered()] * len(plans)
        if kind == "refuse":
            return nothing
        if kind == "late":
            operations = [pending.operation for list_ in lane.round for pending in list_]
            self.ghosts.update(operation.nonce for operation in operations if isinstance(operation, Claim))
            self.sim.late.append(Late(self.sim, operations, 3000 + len(self.sim.late)))
            return nothing
        if kind == "half":
            return [*lane.apply(plans[:1]), *nothing[1:]]
        replies = lane.apply(plans)
        return nothing if kind == "lose" else replies

    def while_out(self, lane: LaneRunner) -> bool:
        """A round is about to come back: a caller may be cancelled now. True where that ended the round."""
        if not self.left or not self.cancels:
            return False
        callers = lane.callers_of([pending for list_ in lane.round for pending in list_])
        targets = [caller for caller in callers if _may_be_cancelled(caller)]
        choice = self.sim.choices.fault(len(targets) + 1) if targets else 0
        if choice:
            self._cancel(targets[choice - 1])
        return not lane.round and choice > 0

    def before_turn(self, caller: Caller) -> bool:
        """A caller is about to go on: it may be cancelled instead."""
        if not self.left or not self.cancels or not _may_be_cancelled(caller) or not self.sim.choices.fault(2):
            return False
        self._cancel(caller)
        return True

    def at_point(self, caller: Caller) -> bool:
        """A caller is about to do what others can see: its process may crash or stall, or it is cancelled."""
        if not self.left:
            return False
        kinds = self._in_handler
        cancels = self.cancels and _may_be_cancelled(caller)
        count = len(kinds) + cancels
        choice = self.sim.choices.fault(count + 1) if count else 0
        if not choice:
            return False
        if choice > len(kinds):
            self._cancel(caller)
            return True
        worker = caller.worker
        self.note(kinds[choice - 1], _keys_of(worker), f"process {worker.index}")
        if kinds[choice - 1] == "crash":
            self.crash(worker)
        else:
            self.stall(worker)
        return True

    def ending(self, caller: Caller) -> str | None:
        """How the handler will end."""
        if not self.left or not self._endings:
            return None
        choice = self.sim.choices.fault(len(self._endings) + 1)
        if not choice:
            return None
        kind = self._endings[choice - 1]
        self.note(kind, _keys_of_caller(caller), f"caller {caller.actor}")
        return kind

    def unsure(self, caller: Caller) -> bool:
        """Whether the reconcile hook cannot tell."""
        if not self.left or "unsure" not in self.sim.world.faults or not self.sim.choices.fault(2):
            return False
        self.note("unsure", _keys_of_caller(caller), f"caller {caller.actor}")
        return True

    def jump(self) -> None:
        """Time passes: the store's clock may jump."""
        if not self.left or not self._jumps:
            return
        choice = self.sim.choices.fault(3)
        if choice:
            sim = self.sim
            by = sim.world.lease_for * 1.5 if choice == 1 else -sim.world.lease_for * 2
            self.note("jump forward" if choice == 1 else "jump back", sim.store.table.records, "store")
            sim.jump_us += round(by * SECOND)
            sim.jumped = sim.held_up = True

    def _cancel(self, caller: Caller) -> None:
        self.note("cancel", _keys_of_caller(caller), f"caller {caller.actor}")
        caller.cancel()

    def crash(self, worker: Worker) -> None:
        """The process is gone, with everybody in it; their callers ask again in a new one."""
        worker.alive = worker.up = False
        worker.thaws_us = None
        self.sim.replace(worker)

    def stall(self, worker: Worker) -> None:
        """The process stands still."""
        self.sim.held_up = True
        worker.up = False
        worker.thaws_us = self.sim.now_us + round(self.sim.world.stall * SECOND)


def _may_be_cancelled(caller: Caller) -> bool:
    return not caller.cancelled and not caller.ended and caller.is_in_call


def _digest(operation: Any) -> bytes | None:
    key = getattr(operation, "key", None) or getattr(getattr(operation, "lease", None), "key", None)
    return key.digest if key is not None else getattr(operation, "digest", None)


def _unanswered(lane: LaneRunner, replies: list[Answers | Exception]) -> list[bytes]:
    """The nonces of claims, and of claims given back, whose sender will not hear what became of them."""
    lost = [list_ for list_, reply in zip(lane.round, replies, strict=True) if isinstance(reply, Exception)]
    operations = [pending.operation for list_ in lost for pending in list_]
    claims = [operation.nonce for operation in operations if isinstance(operation, (Claim, CountFailure))]
    return claims + [operation.lease.nonce for operation in operations if isinstance(operation, Fail)]


def _keys_of(worker: Worker) -> list[bytes]:
    callers = [caller for caller in worker.sim.callers if caller.worker is worker and not caller.ended]
    return [digest for caller in callers for digest in _keys_of_caller(caller)]


def _keys_of_caller(caller: Caller) -> list[bytes]:
    if caller.asker.decides or caller.asker.counts:
        return []  # whatever befalls it, nothing may be done again for that
    if caller.request is None:
        return list(caller.sim.store.table.records)
    return [caller.request.key.digest]
