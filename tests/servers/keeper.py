"""Waits for the end of a run and clears up what the run could not: `python -m tests.servers.keeper PID FOLDER`.

A run that is killed, or ended by a time limit, has no chance to stop its servers. This process does it then.
"""

import sys
from pathlib import Path

from tests.servers import process
from tests.servers.room import Room

A_DAY = 86_400.0


def main(owner: int, path: Path) -> None:
    """Close the room once its owner has ended; a run is over after a day at the latest."""
    process.wait_for_end(owner, A_DAY)
    Room(path, owner).close()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
