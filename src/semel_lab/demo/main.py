"""Playing the demo: a place for the files, the director, and the verdict on what came of it."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

from semel.api import Semel
from semel.cli.exit_codes import OTHER, Refused, usage_error
from semel.cli.printing import console
from semel_lab.demo.check import Verdict, judge
from semel_lab.demo.ledger import read as read_ledger
from semel_lab.demo.orchestrator import LEDGER, RECORDS, Cast, DemoFailed, Director
from semel_lab.demo.scenario import OPERATION, SHOP, Story
from semel_lab.demo.state import Scene
from semel_lab.demo.view import Screen

_TERMINATED = 143


def play(told: Story, keep: Path | None) -> Verdict:
    """Play a story, in a folder that is kept or in one that is gone afterwards.

    Raises:
        Refused: the folder cannot be used, or the demo could not be played to its end.
    """
    with _folder(keep) as folder, _ending_cleanly():
        return _play(told, folder, kept=keep is not None)


def _play(told: Story, folder: Path, *, kept: bool) -> Verdict:
    scene, screen = Scene(told), Screen(console())
    screen.begin(told)
    try:
        with Cast(folder, told.workers) as cast, screen:
            Director(scene, cast, screen).play()
        ledger = read_ledger(folder / LEDGER)
    except DemoFailed as problem:
        message = f"The demo could not be played to its end: {problem}."
        raise Refused("demo_failed", message, OTHER) from problem
    except msgspec.DecodeError as problem:
        message = f"The ledger is damaged, so nothing is proved: {problem}."
        raise Refused("demo_failed", message, OTHER) from problem
    with Semel(folder / RECORDS) as semel:
        records = {name: semel.read(name, operation=OPERATION, scope=SHOP) for name in scene.payments}
    verdict = judge(scene.payments.values(), ledger, records, scene.kill, told.duplicates)
    screen.finish(verdict, f"Kept: {folder / LEDGER}\nLook: semel list {folder / RECORDS}" if kept else "")
    return verdict


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where the files are: kept, or gone afterwards."""
    if keep is None:
        made = Path(tempfile.mkdtemp(prefix="semel-demo-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        taken = any(keep.iterdir())
    except OSError as problem:
        message = f"The folder {keep} cannot be used ({problem.strerror}); nothing was done."
        raise usage_error(message) from None
    if taken:
        message = f"The folder {keep} is not empty; nothing was done. Old records would answer for new payments."
        raise usage_error(message)
    yield keep.resolve()


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """Make SIGTERM unwind like Ctrl-C does, so that the workers are ended and the files removed."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
