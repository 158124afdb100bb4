"""Room for the servers of a case, on the disk that is measured, and servers that several cases share.

What always holds: whoever started a server ends it. A case that finds one in its folder leaves it running.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.servers import programs
from tests.servers.room import Room


@contextmanager
def room_in(folder: Path) -> Iterator[Room]:
    """Room for a server on the disk that is measured, unless the account that servers run under cannot get there."""
    folder.chmod(0o711)
    own = folder / f"servers-{secrets.token_hex(2)}"
    room = Room(own, os.getpid()) if programs.is_open_to_all(folder) else Room.new()
    try:
        yield room
    finally:
        room.close()


@contextmanager
def standing(folder: Path, name: str, started: Callable[[], AbstractContextManager[int]]) -> Iterator[int]:
    """The server of that name in a folder: the one that stands there, or one that is started for now. Gives its pid."""
    note = folder / f"{name}.pid"
    if note.exists():
        yield int(note.read_text(encoding="ascii"))
        return
    with started() as pid:
        note.write_text(str(pid), encoding="ascii")
        try:
            yield pid
        finally:
            note.unlink()
