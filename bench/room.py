"""Room for the servers of a case, on the disk that is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import programs
from tests.servers.room import Room


@contextmanager
def room_in(folder: Path) -> Iterator[Room]:
    """Room for a server on the disk that is measured, unless the account that servers run under cannot get there."""
    folder.chmod(0o711)
    room = Room(folder / "servers", os.getpid()) if programs.is_open_to_all(folder) else Room.new()
    try:
        yield room
    finally:
        room.close()
