"""The folder of one run: made when it starts, and gone when it ends, also where it ended by a kill.

What always holds: a folder belongs to the process that holds the lock in it. Whoever starts removes those that belong
to nobody any more, and never one that is in use.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from examples.launching.launcher import make_folder

PLACE: Final = ".start"
_LOCK: Final = "lock"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A new folder below the current one, which is gone at the end."""
    place = make_folder(PLACE)
    # Whoever removes folders holds the place while it looks: a folder that is just made and not yet locked is safe.
    with (place / _LOCK).open("w") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        _remove_left(place)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=place))
        held = _hold(folder)
    assert held is not None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        held.close()


def _remove_left(place: Path) -> None:
    for folder in place.glob("run-*"):
        if held := _hold(folder):
            shutil.rmtree(folder, ignore_errors=True)
            held.close()


def _hold(folder: Path) -> IO[str] | None:
    """The lock of a folder; None where another process has it."""
    held = (folder / _LOCK).open("w")
    with suppress(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return held
    held.close()
    return None
