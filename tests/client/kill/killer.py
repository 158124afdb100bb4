"""The killer: leads each order through its lives, kills them where the plan says, and writes down what happened.

What always holds: a kill is SIGKILL to a process that was not reaped yet, and a life begins only when the one before
it is dead. Between two lives the store's clock goes forward. Time decides only how long a run takes, and when a life
is killed at a random moment.
"""

import os
import queue
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from semel.core.policy import microseconds
from tests.client.kill.plans import RoundPlan
from tests.client.kill.positions import TOLD_BY_LIFE, At
from tests.client.kill.scene import Scene
from tests.client.kill.script import Script
from tests.client.kill.story import Life, Story
from tests.client.kill.task import Task

_ROOT: Final = Path(__file__).parents[3]
_PATIENCE: Final = 60.0


class Killer:
    """Rounds on one scene, with their key files in `folder`."""

    def __init__(self, folder: Path, mutant: str = "") -> None:
        self._folder = folder
        self._mutant = mutant
        self._scene = Scene()

    def __enter__(self) -> Self:
        self._scene.__enter__()
        command = [sys.executable, "-m", "tests.client.kill.zygote"]
        self._zygote = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._zygote:
            pass  # closes its input, which ends it, and waits for that
        self._scene.__exit__(kind, error, trace)

    def round(self, plan: RoundPlan) -> Story:
        """Lead one order through its lives."""
        story = Story(plan)
        file = self._folder / f"keys-{plan.number}.db"
        ahead = timedelta(0)
        for turn, life_plan in enumerate(plan.lives, 1):
            life = Life(life_plan)
            story.lives.append(life)
            stop = life_plan.stop.name if life_plan.stop in TOLD_BY_LIFE and life_plan.stop is not None else ""
            task = Task(
                round=plan.number,
                turn=turn,
                library=plan.library.value,
                named=plan.named,
                stop=stop,
                mutant=self._mutant,
                file=str(file),
                ahead=microseconds(ahead),
                port=self._scene.port,
                line=self._scene.line,
            )
            self._live(task, self._scene.begin(plan.number, turn, life), life)
            ahead += life_plan.then
        self._scene.finish(story)
        for left in self._folder.glob(f"{file.name}*"):
            left.unlink()
        return story

    def _live(self, task: Task, script: Script, life: Life) -> None:
        pid = self._order(task.line_of_text())
        at = self._wait(script, life)
        if at is not None:
            os.kill(pid, signal.SIGKILL)
            if os.waitstatus_to_exitcode(self._order(str(pid))) == -signal.SIGKILL:
                life.killed = at
            while script.events.get(timeout=_PATIENCE) is not None:
                pass  # what it said before it died
        else:
            self._order(str(pid))
        if not life.plan.late:
            self._scene.let_go(script)

    def _wait(self, script: Script, life: Life) -> At | None:
        """Where the life is to be killed now; None where it has ended by itself."""
        at_random = life.plan.stop is At.MOMENT
        try:
            return script.events.get(timeout=life.plan.moment if at_random else _PATIENCE)
        except queue.Empty:
            life.overdue = not at_random
            return At.MOMENT

    def _order(self, line: str) -> int:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        print(line, file=self._zygote.stdin, flush=True)
        answer = self._zygote.stdout.readline()
        if not answer:
            raise AssertionError("The zygote is gone; what it had to say is on the standard error stream.")
        return int(answer)
