"""The instances of the process in the database: their saved states, who runs them, and what became of each task.

What always holds: every method is one or a few statements that each commit by themselves. What a worker did between two
of them is lost when it dies, and found again in the records of semel.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa

DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
NAME: Final = "hospitalInstance"
"""The variable of a process that says which instance it is."""

State = Literal["open", "ended", "stopped"]
Became = Literal["running", "ran", "replayed", "in-doubt", "waiting", "refused"]

_tables = sa.MetaData()
_instance = sa.Table(
    "hospital_instance",
    _tables,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("variables", sa.Text, nullable=False),
    sa.Column("saved", sa.Text),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("worker", sa.String(40)),
    sa.Column("not_before", sa.Float, nullable=False),
    sa.Column("ended_at", sa.String(40)),
    sa.Column("why", sa.Text, nullable=False),
)
_run = sa.Table(
    "hospital_task_run",
    _tables,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("instance", sa.String(32), nullable=False, index=True),
    sa.Column("activity", sa.String(40), nullable=False),
    sa.Column("became", sa.String(10), nullable=False),
    sa.Column("reference", sa.String(80), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
)
_claim = sa.Table("hospital_claim", _tables, sa.Column("number", sa.Integer, primary_key=True))
_kill = sa.Table("hospital_kill", _tables, sa.Column("worker", sa.String(40), primary_key=True))


@dataclass(frozen=True)
class Instance:
    """An instance of the process.

    Attributes:
        variables: its data, as last saved.
        saved: the process as the engine saves it; None before the first task.
        worker: who runs it at the moment.
        ended_at: the end event that it came to.
        why: why it stopped, or waits.
    """

    id: str
    started: float
    variables: dict[str, Any]
    saved: str | None
    state: State
    worker: str | None
    ended_at: str | None
    why: str


@dataclass(frozen=True)
class TaskRun:
    """One time that the engine asked for a task."""

    number: int
    activity: str
    became: Became
    reference: str
    attempts: int
    note: str


class Instances:
    """All of them, in the database at `url`."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        if scheme not in DRIVERS:
            raise ValueError(f"the hospital runs on {' or '.join(DRIVERS)}, not on {scheme!r:.20}")
        patience = {"timeout": 30} if scheme == "sqlite" else {}
        self._engine = sa.create_engine(
            f"{DRIVERS[scheme]}://{rest}", isolation_level="AUTOCOMMIT", connect_args=patience
        )

    def create_tables(self) -> None:
        """Make the tables that are not there."""
        _tables.create_all(self._engine)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def add(self, variables: Mapping[str, Any]) -> str:
        """A new instance, which a worker finds."""
        instance = uuid.uuid4().hex
        data = {**variables, NAME: instance}
        values = {"id": instance, "started": time.time(), "variables": json.dumps(data), "state": "open"}
        self._write(_instance.insert().values(**values, not_before=0.0, why=""))
        return instance

    def next_number(self) -> int:
        """A number for a claim that nobody else gets."""
        with self._engine.connect() as connection:
            made = connection.execute(_claim.insert()).inserted_primary_key
        assert made is not None
        return int(made[0])

    def get(self, instance: str) -> Instance | None:
        """One instance; None where there is none."""
        found = self._read(_select().where(_instance.c.id == instance))
        return _as_instance(found[0]) if found else None

    def latest(self, most: int = 20) -> list[Instance]:
        """The newest first."""
        return [_as_instance(row) for row in self._read(_select().order_by(_instance.c.started.desc()).limit(most))]

    def count(self) -> int:
        """How many there are."""
        return int(self._read(sa.select(sa.func.count()).select_from(_instance))[0][0])

    def take(self, worker: str) -> Instance | None:
        """An instance to be run now, which is this worker's until it is given back; None where there is none."""
        due = (_instance.c.state == "open") & _instance.c.worker.is_(None) & (_instance.c.not_before <= time.time())
        for row in self._read(_select().where(due).order_by(_instance.c.not_before, _instance.c.started).limit(5)):
            # Closes the race with another worker that found the same row.
            taken = _instance.update().where(_instance.c.id == row.id, _instance.c.worker.is_(None))
            if self._write(taken.values(worker=worker)):
                return _as_instance(row)
        return None

    def save(self, instance: str, saved: str, variables: Mapping[str, Any]) -> None:
        """Keep how far an instance is."""
        self._change(instance, saved=saved, variables=json.dumps(dict(variables)))

    def give_back(
        self, instance: str, state: State = "open", *, after: float = 0.0, ended_at: str | None = None, why: str = ""
    ) -> None:
        """The worker is done with it, for now or for ever."""
        self._change(
            instance, state=state, worker=None, not_before=time.time() + after, ended_at=ended_at, why=why[:500]
        )

    def give_all_back(self, worker: str) -> None:
        """A worker of this name begins: what one before it had is open again, and its tasks are in doubt."""
        own = sa.select(_instance.c.id).where(_instance.c.worker == worker)
        cut = _run.update().where(_run.c.instance.in_(own), _run.c.became == "running")
        self._write(cut.values(became="in-doubt", note="The worker died here."))
        self._write(_instance.update().where(_instance.c.worker == worker).values(worker=None))

    def begin_task(self, instance: str, activity: str) -> int:
        """Write down that a task is asked for; one that only waited goes on with its row."""
        runs = self.runs(instance)
        if runs and (runs[-1].activity, runs[-1].became) == (activity, "waiting"):
            self._write(_run.update().where(_run.c.number == runs[-1].number).values(became="running"))
            return runs[-1].number
        row = {"instance": instance, "activity": activity, "became": "running", "reference": "", "note": ""}
        with self._engine.connect() as connection:
            made = connection.execute(_run.insert().values(**row, attempts=0)).inserted_primary_key
        assert made is not None
        return int(made[0])

    def end_task(self, number: int, became: Became, *, reference: str, attempts: int, note: str) -> None:
        """Write down what became of it."""
        values = {"became": became, "reference": reference, "attempts": attempts, "note": note[:500]}
        self._write(_run.update().where(_run.c.number == number).values(**values))

    def runs(self, instance: str) -> list[TaskRun]:
        """What the engine asked for in an instance, the oldest first."""
        columns = [_run.c[name] for name in ("number", "activity", "became", "reference", "attempts", "note")]
        chosen = sa.select(*columns).where(_run.c.instance == instance).order_by(_run.c.number)
        return [TaskRun(*row) for row in self._read(chosen)]

    def ask_to_die(self, worker: str) -> None:
        """Have a worker kill itself; asking twice before it does is once."""
        if not self._read(_kill.select().where(_kill.c.worker == worker)):
            self._write(_kill.insert().values(worker=worker))

    def shall_die(self, worker: str) -> bool:
        """Whether it was asked for; it is not from now on, so that the next worker of this name lives."""
        return bool(self._write(_kill.delete().where(_kill.c.worker == worker)))

    def _change(self, instance: str, **values: Any) -> None:
        self._write(_instance.update().where(_instance.c.id == instance).values(**values))

    def _write(self, statement: Any) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(statement).rowcount)

    def _read(self, statement: Any) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(statement))


def _select() -> Any:
    names = ("id", "started", "variables", "saved", "state", "worker", "ended_at", "why")
    return sa.select(*(_instance.c[name] for name in names))


def _as_instance(row: Any) -> Instance:
    return Instance(row.id, row.started, json.loads(row.variables), *row[3:])
