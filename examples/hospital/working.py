"""The worker: runs the instances of the process. `python -m examples.hospital.working --name worker-1`.

What always holds: an instance is saved after each task. What a worker did and had not saved when it died, the next one
of its name asks for again, and gets from the record.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from examples.hospital.clients import Books, Insurer
from examples.hospital.coder import Coder
from examples.hospital.delegates import HospitalTask, Outside, make_delegates
from examples.hospital.instances import NAME, Became, Instance, Instances
from examples.hospital.process import data_of, load, run_steps, save, start
from examples.hospital.settings import SEMEL, Settings
from examples.launching.logs import set_up_logging
from semel import Policy, Semel
from semel.workflow import BpmnError, Completed, Incident, Retry
from semel.workflow.engines.spiff import ScriptEngine, TaskNotDone

log = logging.getLogger(__name__)
End = Completed | BpmnError | Retry | Incident


class Stopping(Exception):
    """The worker was told to end, between two tasks."""


class RecordedTask:
    """A delegate whose runs are written down for the page."""

    is_async = False

    def __init__(self, task: HospitalTask, instances: Instances) -> None:
        self._task = task
        self._instances = instances

    @property
    def semel(self) -> Semel:
        """The engine whose records the delegate keeps."""
        return self._task.semel

    @property
    def policy(self) -> Policy:
        """That of the delegate."""
        return self._task.policy

    def run(self, variables: Mapping[str, Any], *, activity: str, **place: Any) -> End:
        """Run the delegate, and write down what became of it."""
        number = self._instances.begin_task(variables[NAME], activity)
        end = self._task.run(variables, activity=activity, **place)
        key = self._task.identify(variables)
        record = self._task.semel.read(key)
        became, note = _judge(end)
        attempts = 0 if record is None else record.attempts
        self._instances.end_task(number, became, reference=key.reference, attempts=attempts, note=note)
        return end


def _judge(end: End) -> tuple[Became, str]:
    match end:
        case Completed():
            return ("replayed", "Found in the record.") if end.variables["idempotencyDuplicate"] else ("ran", "")
        case BpmnError():
            return "refused", str(end)
        case Retry():
            return ("in-doubt" if end.counts else "waiting"), end.reason
        case Incident():
            return "in-doubt", end.reason


class Worker:
    """Runs instances, one after the other."""

    def __init__(self, name: str, instances: Instances, delegates: Mapping[str, HospitalTask]) -> None:
        self.name = name
        self.stopped = threading.Event()
        self._instances = instances
        tasks = {operator: RecordedTask(task, instances) for operator, task in delegates.items()}
        self._engine = ScriptEngine(tasks)

    def work(self, poll_every: float) -> None:
        """Look for instances and run them, until stopped."""
        self._instances.give_all_back(self.name)
        while not self.stopped.is_set():
            if not self.run_one():
                self.stopped.wait(poll_every)

    def run_one(self) -> bool:
        """Run an instance as far as it goes now; false where there is none to run."""
        instance = self._instances.take(self.name)
        if instance is None:
            return False
        try:
            self._run(instance)
        except Stopping:
            self._instances.give_back(instance.id)
        except Exception as error:
            log.exception("The instance %s cannot be run.", instance.id)
            self._instances.give_back(instance.id, "stopped", why=f"{type(error).__name__}: {error}")
        return True

    def _run(self, instance: Instance) -> None:
        saved = instance.saved
        workflow = start(self._engine, instance.variables) if saved is None else load(self._engine, saved)

        def keep(task: Any = None) -> None:
            self._instances.save(instance.id, save(workflow), data_of(workflow))

        try:
            end = run_steps(workflow, self._stop_before, keep)
        except TaskNotDone as not_done:
            keep()
            match not_done.end:
                case Retry(after=after, reason=reason):
                    self._instances.give_back(instance.id, after=after.total_seconds(), why=reason)
                case why:
                    self._instances.give_back(instance.id, "stopped", why=str(why))
        else:
            keep()
            self._instances.give_back(instance.id, "ended", ended_at=end)

    def _stop_before(self, task: Any) -> None:
        if self.stopped.is_set():
            raise Stopping


def watch_for_kill(worker: Worker, instances: Instances, kill: Callable[[], None], every: float = 0.1) -> None:
    """Kill this process as soon as somebody asks for it, wherever its work is."""
    while not worker.stopped.wait(every):
        with suppress(Exception):  # the next look may do
            if instances.shall_die(worker.name):
                kill()


def _kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _watch_parent(parent: int, worker: Worker) -> None:
    while os.read(parent, 1):
        pass
    worker.stopped.set()


def main() -> None:
    """Work until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.hospital.working", description="Runs processes.")
    parser.add_argument("--name", default="worker-1", help="no two that live have the same")
    parser.add_argument("--parent-fd", type=int, help="a pipe; the worker stops at its end of file")
    options = parser.parse_args()
    set_up_logging()
    settings = Settings.from_environment()
    instances = Instances(settings.database)
    outside = Outside(Insurer(settings.insurer), Books(settings.books), Coder(settings.codes))
    with Semel.from_settings(SEMEL) as semel:
        worker = Worker(options.name, instances, make_delegates(semel, outside))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: worker.stopped.set())
        threading.Thread(
            target=watch_for_kill, args=(worker, instances, _kill_this_process), daemon=True, name="kill"
        ).start()
        if options.parent_fd is not None:
            threading.Thread(target=_watch_parent, args=(options.parent_fd, worker), daemon=True, name="parent").start()
        print("ready", flush=True)
        worker.work(settings.poll_every)
    outside.close()
    instances.close()


if __name__ == "__main__":
    main()
