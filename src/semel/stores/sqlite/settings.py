"""Settings of an SQLite store, and the check of its path: a local, writable file in an existing folder.

- A refusal names the path and the problem, and nothing was created.
- A file that is created here can be read by its owner alone, and so can the -wal and -shm beside it, which SQLite gives
  the mode of the database.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

from semel.errors import StoreMisconfigured, UsageError
from semel.stores.settings import StoreClock
from semel.validation import Duration, to_timedelta

MOUNTS = Path("/proc/self/mountinfo")
# Locks and shared memory do not hold across machines on these, and then SQLite loses data.
NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.smbnetfs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb2",
        "smb3",
        "smbfs",
    }
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def local_path(path: str | os.PathLike[str]) -> str:
    """`path` made absolute, so that neither a later chdir nor SQLite's own `file:` notation changes its meaning.

    Raises:
        UsageError: it is not the path of a file.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        message = f"{text!r} is not the path of a database file; nothing ran. Give a path such as semel.db."
        raise UsageError(message)
    if text.startswith((":memory:", "file:")):
        message = f"{text!r} is not a file on disk; nothing ran. For records in memory use memory://, else give a path."
        raise UsageError(message)
    try:
        return str(Path(text).resolve())
    except (OSError, RuntimeError) as problem:
        message = f"{text!r} is not the path of a database file ({problem}); nothing ran. Look at its symbolic links."
        raise UsageError(message) from problem


def check_place(path: str) -> None:
    """Refuse a path that cannot work, before anything is opened.

    Raises:
        StoreMisconfigured: the folder is missing, something is read-only, or the file lies on a network file system.
    """
    try:
        problem = _problem(Path(path)) or _network_problem(Path(path))
    except PermissionError as denied:
        problem = f"this user may not look at {denied.filename}; give it the right to enter the folders above"
    if problem is not None:
        message = f"The database file {path} cannot be used: {problem}. Nothing was recorded, and nothing ran."
        raise StoreMisconfigured(message, path=path)


def create_private(path: str) -> None:
    """Create the file, empty and for its owner alone, where there is none; one that is there is not even opened.

    To open and close it would let go of every lock that this process holds on it.
    """
    with suppress(OSError):  # it is there, or SQLite says what is wrong when it opens it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _problem(file: Path) -> str | None:
    folder = file.parent
    if not folder.exists():
        return f"the folder {folder} does not exist; create it"
    if not folder.is_dir():
        return f"{folder} is not a folder; look at the path"
    if file.is_dir():
        return "it is a folder; give the path of a file in it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the folder {folder} is read-only for this user, and SQLite keeps its log there; make it writable"
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        return "the file is not readable and writable for this user; change its permissions"
    return None


def _network_problem(file: Path) -> str | None:
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None  # not Linux: nothing to ask
    kind = filesystem_of(str(file), mounts)
    if kind not in NETWORK:
        return None
    return (
        f"it lies on a network file system ({kind}), where SQLite's locks do not hold and committed records can be "
        f"lost; use a local disk, or a database server"
    )


def filesystem_of(path: str, mounts: str) -> str:
    """The type of the file system that holds `path`, by the text of a mountinfo file; empty where it is not listed."""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:  # noqa: PLR2004 - the mount point is the fifth field
            continue
        point = _OCTAL.sub(lambda hit: chr(int(hit.group(1), 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two mounts on one point the later one is on top
            best, kind = point, right.split(" ")[0]
    return kind


Synchronous = Literal["FULL", "EXTRA", "NORMAL"]
_LONGEST_WAIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the file is and how it is used. `busy_for` is in seconds."""

    path: str
    synchronous: Synchronous
    busy_for: float
    clock: StoreClock
    migrate: bool

    @property
    def name(self) -> str:
        """How the store is called in messages."""
        return f"sqlite:///{self.path}"

    @staticmethod
    def of(
        path: str | PathLike[str], synchronous: str, busy_for: Duration, clock: StoreClock, *, migrate: bool
    ) -> Settings:
        """The settings, checked.

        Raises:
            UsageError: the path is no file, a word is unknown or a duration impossible.
        """
        words = get_args(Synchronous)
        if synchronous not in words:
            message = (
                f"synchronous must be one of {', '.join(words)}, not {synchronous!r}; nothing ran. "
                f"FULL keeps every acknowledged commit, NORMAL may lose the last ones when the power fails."
            )
            raise UsageError(message)
        patience = to_timedelta("busy_for", busy_for, may_be_zero=True, longest=_LONGEST_WAIT)
        return Settings(local_path(path), synchronous, patience.total_seconds(), clock, migrate)  # type: ignore[arg-type]
