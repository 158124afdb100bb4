"""One schedule of a world of transactions: who goes next, what goes wrong, and whether the key can be used afterwards.

What always holds: nobody loses a turn, and nothing goes wrong, but by a choice that is written down.
"""

from __future__ import annotations

from typing import Any, Final

from semel.core.operations import Operation, Purge, Resolve
from semel.core.record import Status
from semel_lab.simulate.checks.violation import SeenBefore
from semel_lab.simulate.loop import Dice, Script
from semel_lab.simulate.models import MysqlModel, PostgresModel, Server, Session
from semel_lab.simulate.within.caller import LANE, WithinCaller
from semel_lab.simulate.within.checker import Checker
from semel_lab.simulate.within.signature import signature
from semel_lab.simulate.within.world import LEASE, Kind, WithinWorld, request_of
from semel_lab.simulate.world import SECOND

_SERVERS: Final[dict[str, type[Server]]] = {"postgresql": PostgresModel, "mysql": MysqlModel}
_AT_EFFECT: Final = ("crash", "commit early", "rollback early", "retry", "doubt")
_START: Final = 1_000 * SECOND


class _Time:
    """The move that nobody makes: time passes."""

    actor = -1


class WithinSimulation:
    """One schedule."""

    def __init__(
        self, world: WithinWorld, choices: Script | Dice, seen: dict[str, int], trace: list[str] | None = None
    ) -> None:
        self.world = world
        self.choices = choices
        self.seen = seen
        self.trace = trace
        self.server = _SERVERS[world.server]()
        self.now_us = _START
        self.left = world.budget
        self.slow = world.slow
        self.moves = 0
        self.key = request_of(world).key
        self.checker = Checker(self)
        self.callers = [WithinCaller(self, kind, actor) for actor, kind in enumerate(world.callers)]

    def run(self) -> None:
        """Let everybody go on until all have ended, and then see whether the key can still be used."""
        while self._move():
            pass
        self._afterwards()

    def _move(self) -> bool:
        self._know()
        ready = [caller for caller in self.callers if not caller.ended and caller.until_us is None]
        asleep = [caller.until_us for caller in self.callers if not caller.ended and caller.until_us is not None]
        if not ready and not asleep:
            return False
        self.moves += 1
        if not ready:
            self._pass_time(min(asleep))
            return True
        moves: list[WithinCaller | _Time] = [*ready, _Time()] if self.slow else [*ready]
        chosen = moves[self.choices.move(moves) if len(moves) > 1 else 0]
        if isinstance(chosen, _Time):
            self.slow -= 1
            self._pass_time(self.now_us + round(LEASE * SECOND))
        else:
            self._go(chosen)
        return True

    def _know(self) -> None:
        """Go no further where this very state, with the same choices left, was explored before."""
        known = self.choices.seen
        if known is None or not self.choices.new():
            return
        number = signature(self)
        if number in known:
            raise SeenBefore
        known.add(number)

    def _pass_time(self, until_us: int) -> None:
        self.note("", f"{(until_us - self.now_us) / SECOND:.2f} s pass")
        self.now_us = until_us
        for caller in self.callers:
            if caller.until_us is not None and caller.until_us <= until_us:
                caller.until_us = None

    def _go(self, caller: WithinCaller) -> None:
        menu = self._menu(caller)
        choice = self.choices.fault(len(menu) + 1) if menu else 0
        fault = menu[choice - 1] if choice else ""
        self.note(f"{caller.kind} {caller.actor}", f"{caller.point}{fault and ': ' + fault}")
        if fault:
            self.left -= 1
            self.seen[f"within fault: {fault}"] += 1
            self.checker.blame(caller, fault)
        caller.go(fault)
        self.checker.check()

    def _menu(self, caller: WithinCaller) -> list[str]:
        """What may go wrong at the point where a caller stands."""
        outside = caller.kind in ("neighbour", "eraser") or (caller.kind == "lane" and not self.world.steps)
        if not self.left or outside or caller.point in ("start", "begin"):
            return []
        wanted: tuple[str, ...] = ("crash",)
        if caller.level is not None and caller.point == "effect":
            wanted = _AT_EFFECT
        elif caller.point == "give up":
            wanted = ("crash", "swallow")
        elif caller.point == "commit":
            wanted = ("crash", "rollback") if caller.level is not None else ("crash",)
        menu: list[str] = [fault for fault in wanted if fault in self.world.faults]
        return [*menu, "crash after commit"] if caller.point == "commit" and "crash" in menu else menu

    def note(self, who: str, what: str) -> None:
        """A line for people."""
        if self.trace is not None:
            self.trace.append(f"{(self.now_us - _START) / SECOND:8.2f}  {who:<18} {what}")

    def operate(self, session: Session, operation: Operation) -> Any:
        """Have the server carry out one operation."""
        answer = self.server.apply(session, operation, self.now_us)
        if self.trace is not None:
            self.note("", f"  {type(operation).__name__} on {session.name}: {type(answer).__name__}")
        return answer

    def _afterwards(self) -> None:
        """Whoever comes next is given an answer: all transactions have ended by now, and all leases."""
        self.left = self.slow = 0
        self.now_us += round(2 * LEASE * SECOND)
        kinds: tuple[Kind, ...] = ("read committed", "lane")
        for kind in kinds:
            last = WithinCaller(self, kind, len(self.callers))
            self.callers.append(last)
            while not last.ended and last.until_us is None:
                self._go(last)
            self.checker.check_last(last)
        if self.world.searched:
            self._sweep()

    def _sweep(self) -> None:
        """Once its time is over the record is deleted, and nothing that led to it is left."""
        resolve = Resolve(self.key.digest, b"ended", Status.CANCELLED, None, "looked", force=True)
        self.server.apply(LANE, resolve, self.now_us)
        row = self.server.committed.get(self.key.digest)
        self.now_us = self.now_us if row is None else max(self.now_us, row.record.expires_us)
        self.server.apply(LANE, Purge(10), self.now_us)
        self.checker.check_search()
        self.seen["within: swept in the end"] += not self.server.committed

    def untie(self) -> None:
        """Let go of what points in circles."""
        for caller in self.callers:
            caller.untie()
        self.callers.clear()
        del self.checker
