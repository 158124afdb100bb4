"""What the director knows at a moment: who asked, who runs, who has an answer. Events in, counts out; no I/O.

What always holds: a call has one answer at most; a call whose worker died is handed out again under the same number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from semel_lab.demo.messages import Answered, Ask, Charged, Event, Ready, Runs, Unanswered
from semel_lab.demo.scenario import Payment, Story


@dataclass(slots=True)
class WorkerView:
    """One worker, as far as its events tell."""

    name: str
    pid: int = 0
    state: Literal["starting", "ready", "killed"] = "starting"
    runs: dict[str, int] = field(default_factory=dict)
    answered: int = 0


@dataclass(slots=True)
class PaymentView:
    """One payment, as far as events tell."""

    payment: Payment
    asked: int = 0
    asked_again: int = 0
    ran_by: list[str] = field(default_factory=list)
    replayed: int = 0
    waited: int = 0
    answers: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    taken_over_by: str = ""
    orphaned: bool = False

    @property
    def answered(self) -> int:
        """How many callers have an answer, good or bad."""
        return len(self.answers) + len(self.errors)

    @property
    def ran(self) -> int:
        """How often the handler was called."""
        return len(self.ran_by)


@dataclass(frozen=True, slots=True)
class Kill:
    """The kill: who was hit, and inside what."""

    worker: str
    pid: int
    payment: str
    attempt: int


class Scene:
    """All of it, kept up to date by what happens."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.workers = {name: WorkerView(name) for name in story.workers}
        self.payments = {payment.name: PaymentView(payment) for payment in story.payments}
        self.kill: Kill | None = None
        self.charges = 0
        self.recognised = 0
        self._open: dict[int, tuple[str, Ask]] = {}
        self._next_call = 0

    @property
    def done(self) -> bool:
        """Whether every caller has an answer."""
        return all(view.asked and view.answered >= self.story.duplicates for view in self.payments.values())

    @property
    def living(self) -> list[str]:
        """The workers that can be asked."""
        return [name for name, view in self.workers.items() if view.state != "killed"]

    def asks(self, payment: Payment) -> list[tuple[str, Ask]]:
        """Every duplicate of a payment, shared out over the workers."""
        view = self.payments[payment.name]
        view.asked += self.story.duplicates
        return [self._handed_out(self._new(payment)) for _ in range(self.story.duplicates)]

    def _new(self, payment: Payment) -> Ask:
        self._next_call += 1
        return Ask(
            self._next_call, payment.name, str(payment.amount), payment.before, payment.after, fateful=payment.fateful
        )

    def _handed_out(self, ask: Ask) -> tuple[str, Ask]:
        living = self.living
        worker = living[ask.call % len(living)]
        self._open[ask.call] = (worker, ask)
        return worker, ask

    def heard(self, worker: str, event: Event) -> None:
        """Take in what a worker said."""
        view = self.workers[worker]
        match event:
            case Ready(pid):
                view.pid, view.state = pid, "ready"
            case Runs(payment, attempt):
                view.runs[payment] = attempt
                self._ran(self.payments[payment], worker, attempt)
            case Charged(recognised=recognised):
                self.charges += not recognised
                self.recognised += recognised
            case Answered():
                view.answered += 1
                self._answered(view, event)
            case Unanswered(call, payment, code, message):
                self._open.pop(call, None)
                self.payments[payment].errors[call] = f"{code}: {message}"

    def _ran(self, view: PaymentView, worker: str, attempt: int) -> None:
        view.ran_by.append(worker)
        view.orphaned = False
        if attempt > 1:
            view.taken_over_by = worker

    def _answered(self, worker: WorkerView, event: Answered) -> None:
        self._open.pop(event.call, None)
        view = self.payments[event.payment]
        view.answers[event.call] = event.charge
        view.replayed += event.replayed
        view.waited += event.waited
        if not event.replayed:
            worker.runs.pop(event.payment, None)

    def struck(self, worker: str, payment: str) -> Kill:
        """A worker is killed now, inside the handler of `payment`."""
        view = self.workers[worker]
        self.kill = Kill(worker, view.pid, payment, view.runs.get(payment, 0))
        view.state = "killed"
        return self.kill

    def orphans(self, worker: str) -> list[tuple[str, Ask]]:
        """The calls a dead worker leaves unanswered, shared out over the others."""
        for payment in self.workers[worker].runs:
            self.payments[payment].orphaned = True
        left = [ask for owner, ask in self._open.values() if owner == worker]
        for ask in left:
            self.payments[ask.payment].asked_again += 1
        return [self._handed_out(ask) for ask in left]
