"""The temporary folder of one run: all servers live in it, and it ends with its owner.

What always holds: when the owner is gone, even killed, so are the servers and the folder; `keeper` sees to it.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers import process

ROOT = Path(__file__).parents[2]
_DAEMON = "daemon.pid"
_KEEPER = "keeper.pid"
_LOGS = ROOT / ".servers" / "logs"
_RUNS = 5


@dataclass(frozen=True)
class Room:
    """A folder that is made when the first server needs it."""

    path: Path
    owner: int
    """The process whose end is the end of the room."""

    @classmethod
    def new(cls) -> "Room":
        """A room of this process, under a name that cannot be guessed; nothing is made yet."""
        return cls(Path(tempfile.gettempdir()) / f"semel-{secrets.token_hex(6)}", os.getpid())

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep other processes of the run out; makes the room if it is not there."""
        # Traversable by others: the servers run under another account when the tests run as root.
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(mode=0o711)
        with (self.path / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def folder(self, name: str) -> Path:
        """A new folder for one server, which belongs to the account it runs under."""
        self._keep()
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.path))
        process.hand_over(folder)
        return folder

    @property
    def logs(self) -> Path:
        """Where the logs of a run that failed are kept."""
        return _LOGS / self.path.name

    def daemons(self) -> Iterator[tuple[str, int]]:
        """The servers that live here: the name of the folder of each, and its process."""
        for note in sorted(self.path.glob(f"*/{_DAEMON}")):
            yield note.parent.name.partition("-")[0], int(note.read_text().split()[0])

    def close(self, *, keep_logs: bool = False) -> None:
        """End all servers and remove everything; logs are kept on request, those of the last few runs."""
        if not self.path.exists():
            return
        with contextlib.suppress(FileNotFoundError):
            keeper = int((self.path / _KEEPER).read_text())
            if keeper != os.getpid():
                process.stop(keeper, signal.SIGTERM)
        for folder in self.path.iterdir():
            end(folder)
        if keep_logs:
            self._save_logs()
        shutil.rmtree(self.path, ignore_errors=True)

    def _save_logs(self) -> None:
        for log in self.path.glob("*/*.log"):
            target = self.logs / log.parent.name / log.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, target)
        kept = sorted(_LOGS.iterdir(), key=lambda folder: folder.stat().st_mtime)
        for old in kept[:-_RUNS]:
            shutil.rmtree(old, ignore_errors=True)

    def _keep(self) -> None:
        with self.lock("keeper"):
            note = self.path / _KEEPER
            if not note.exists():
                command = [sys.executable, "-m", "tests.servers.keeper", str(self.owner), str(self.path)]
                note.write_text(str(process.spawn(command, output=None, environment=os.environ, cwd=str(ROOT))))


def register(folder: Path, pid: int, how_to_stop: signal.Signals) -> None:
    """Note which process lives in a folder, for whoever has to end it."""
    (folder / _DAEMON).write_text(f"{pid} {how_to_stop.value}")


def end(folder: Path, *, kill: bool = False) -> None:
    """End the process that lives in a folder, if there is one."""
    note = folder / _DAEMON
    if not note.exists():
        return
    pid, how = note.read_text().split()
    if kill:
        process.kill(int(pid))
    else:
        process.stop(int(pid), signal.Signals(int(how)))
    note.unlink()
