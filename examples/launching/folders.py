"""Folders that belong to a process, and are gone when it ends, also where it ended by a kill.

What always holds: a folder belongs to the process that holds the lock in it. Whoever makes one removes those that
belong to nobody any more, and never one that is in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

_LOCK: Final = "lock"


def _leave(folder: Path) -> None:
    """Nothing runs in a folder, as a rule."""


@contextmanager
def locked_folder(place: Path, prefix: str, *, end: Callable[[Path], None] = _leave) -> Iterator[Path]:
    """A new folder at that place, which is gone at the end; `end` is told of each that was left, and it is removed."""
    # Whoever removes folders holds the place while it looks: a folder that is just made and not yet locked is safe.
    with _open(place / f".{prefix}lock") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        _remove_abandoned(place, prefix, end)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        held = _hold(folder)
    assert held is not None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        held.close()


def _remove_abandoned(place: Path, prefix: str, end: Callable[[Path], None]) -> None:
    for folder in place.glob(f"{prefix}*"):
        if held := _hold(folder):
            end(folder)
            shutil.rmtree(folder, ignore_errors=True)
            held.close()


def _hold(folder: Path) -> IO[str] | None:
    """The lock of a folder; None where another process has it, or the folder is another user's."""
    with suppress(OSError):
        held = _open(folder / _LOCK)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
        else:
            return held
    return None


def _open(path: Path) -> IO[str]:
    """A file to be locked, which nobody else has put a link in the place of."""
    return open(path, "w", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))
