"""The director: starts the workers, asks, kills one of them, and listens until every caller has an answer.

What always holds: when `play` ends, in whatever way, none of its processes is left.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import semel
from semel_lab.demo.messages import Answered, Ask, Charged, Event, Ready, Runs, Unanswered, encode, event_of
from semel_lab.demo.scenario import Payment
from semel_lab.demo.state import Scene

RECORDS = "semel.db"
LEDGER = "ledger.jsonl"
_TICK = 0.04
_START_UP = 30.0
_BEFORE_THE_KILL = 0.9
_PARTING = 6.0


class DemoFailed(Exception):
    """The demo could not be played to its end."""


class Watcher(Protocol):
    """Whoever shows what happens."""

    def note(self, seconds: float, text: str, style: str = "") -> None:
        """Something worth a line happened, so long after the beginning."""

    def update(self, scene: Scene) -> None:
        """The scene may have changed."""


class Cast:
    """The worker processes. `heard` gives what they say, and None from one that has ended."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._said: queue.SimpleQueue[tuple[str, Event | None]] = queue.SimpleQueue()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._listeners: list[threading.Thread] = []
        self._names = names

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                self._start(name)
        except BaseException:
            self._end(0.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(_PARTING if kind is None else 0.0)

    def _start(self, name: str) -> None:
        # -P and the path: the worker runs this very package, whatever lies in the current folder.
        command = [sys.executable, "-P", "-m", "semel_lab.demo.worker", name]
        command += [str(self._folder / RECORDS), str(self._folder / LEDGER)]
        with self.log(name).open("wb") as log:
            # A process group of its own: Ctrl-C is for the director, which then ends the workers.
            process = subprocess.Popen(  # noqa: S603 - our own module, our own arguments
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, process_group=0, env=_environment()
            )
        self._processes[name] = process
        self._listeners.append(threading.Thread(target=self._listen, args=(name, process), daemon=True))
        self._listeners[-1].start()

    def log(self, name: str) -> Path:
        """Where a worker's stderr goes."""
        return self._folder / f"{name}.log"

    def _listen(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with process.stdout:
            for line in process.stdout:
                if line.endswith(b"\n"):  # a worker killed while it spoke leaves half a line
                    self._said.put((name, event_of(line)))
        self._said.put((name, None))

    def ask(self, asks: Iterable[tuple[str, Ask]]) -> None:
        """Send each worker its asks, all at once."""
        lines: dict[str, bytes] = {}
        for name, ask in asks:
            lines[name] = lines.get(name, b"") + encode(ask) + b"\n"
        for name, text in lines.items():
            stdin = self._processes[name].stdin
            assert stdin is not None  # noqa: S101 - it is a pipe
            with suppress(BrokenPipeError):  # it has ended; its asks are handed out again when that is heard
                stdin.write(text)
                stdin.flush()

    def heard(self, wait: float) -> list[tuple[str, Event | None]]:
        """All that was said by now; waits for the first word a little."""
        said: list[tuple[str, Event | None]] = []
        with suppress(queue.Empty):
            said.append(self._said.get(timeout=wait))
            while True:
                said.append(self._said.get_nowait())
        return said

    def kill(self, name: str) -> None:
        """SIGKILL: no handler, no clean-up, no last word."""
        self._processes[name].kill()

    def _end(self, patience: float) -> None:
        """End every worker: those that listen by closing their stdin, the others by force."""
        for process in self._processes.values():
            with suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
        deadline = time.monotonic() + patience
        try:
            for process in self._processes.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(deadline - time.monotonic(), 0.0))
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()
            for listener in self._listeners:
                listener.join()


def _environment() -> dict[str, str]:
    here = str(Path(semel.__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))}


class Director:
    """Plays one story."""

    def __init__(self, scene: Scene, cast: Cast, watcher: Watcher) -> None:
        self._scene = scene
        self._cast = cast
        self._watcher = watcher
        self._began = time.monotonic()
        self._kill_at: tuple[float, str] | None = None

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _note(self, text: str, style: str = "") -> None:
        self._watcher.note(self._now, text, style)

    def play(self) -> None:
        """Ask, kill, listen; ends when every caller has an answer.

        Raises:
            DemoFailed: a worker ended by itself, or the callers wait too long.
        """
        self._gather()
        self._began = time.monotonic()
        waiting = list(self._scene.story.payments)
        longest = 60.0 + self._scene.story.calls / 20
        while not self._scene.done:
            while waiting and waiting[0].asked_at <= self._now:
                self._ask(waiting.pop(0))
            self._strike()
            self._listen(_TICK)
            if self._now > longest:
                message = f"after {longest:.0f} s there are still callers without an answer"
                raise DemoFailed(message)
        self._watcher.update(self._scene)

    def _gather(self) -> None:
        deadline = time.monotonic() + _START_UP
        while any(view.state == "starting" for view in self._scene.workers.values()):
            self._listen(_TICK)
            if time.monotonic() > deadline:
                message = f"the workers did not start within {_START_UP:.0f} s"
                raise DemoFailed(message)

    def _ask(self, payment: Payment) -> None:
        self._cast.ask(self._scene.asks(payment))

    def _strike(self) -> None:
        if self._kill_at is None or self._now < self._kill_at[0]:
            return
        worker, self._kill_at = self._kill_at[1], None
        self._cast.kill(worker)
        kill = self._scene.struck(worker, self._scene.story.fateful.name)
        self._note(f"SIGKILL hits {worker} (pid {kill.pid}) inside {kill.payment}: charged, not recorded", "bold red")

    def _listen(self, wait: float) -> None:
        for worker, event in self._cast.heard(wait):
            if event is None:
                self._ended(worker)
            else:
                self._scene.heard(worker, event)
                self._comment(worker, event)
        self._watcher.update(self._scene)

    def _ended(self, worker: str) -> None:
        if self._scene.workers[worker].state != "killed":
            log = self._cast.log(worker).read_text(errors="replace").strip().splitlines()
            message = f"worker {worker} ended by itself: {log[-1] if log else 'it said nothing'}"
            raise DemoFailed(message)
        orphans = self._scene.orphans(worker)
        self._note(f"its {len(orphans)} callers lost their connection and ask again elsewhere", "red")
        self._cast.ask(orphans)

    def _comment(self, worker: str, event: Event) -> None:
        match event:
            case Runs(payment, attempt, in_doubt) if attempt > 1:
                doubt = ", in doubt" if in_doubt else ""
                self._note(f"{worker} takes {payment} over as its lease has ended: attempt {attempt}{doubt}", "yellow")
            case Charged(payment, attempt, charge, recognised):
                self._charged(worker, payment, attempt, charge, recognised=recognised)
            case Answered(_, payment):
                self._answered(payment)
            case Unanswered(_, payment, code, message):
                self._note(f"a caller of {payment} got {code}: {message}", "red")
            case Ready() | Runs():
                pass

    def _charged(self, worker: str, payment: str, attempt: int, charge: str, *, recognised: bool) -> None:
        if recognised:
            self._note(f"the provider knows the key of {payment}: still {charge}, not charged twice", "yellow")
        elif payment == self._scene.story.fateful.name and attempt == 1 and self._scene.kill is None:
            self._kill_at = (self._now + _BEFORE_THE_KILL, worker)

    def _answered(self, payment: str) -> None:
        view = self._scene.payments[payment]
        if view.answered == self._scene.story.duplicates:
            runs = " and ".join(f"at {worker}" for worker in view.ran_by)
            self._note(
                f"{payment} done: ran {runs}, replayed {view.replayed} times ({view.waited} had waited)", "green"
            )
