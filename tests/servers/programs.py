"""Finds the programs of a server on this machine, and has them installed when they are missing.

What always holds: what is found can be run by the account that servers run under.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import trust
from tests.servers.room import ROOT

UNPACKED = ROOT / ".servers"
"""Where `scripts/setup-system` unpacks packages when it may not install them."""

SYSTEM = Path("/")
_TIME_TO_INSTALL = 900.0
_LINES = 4


class ServerMissing(Exception):
    """A server is not on this machine and could not be installed; nothing was started."""


@dataclass(frozen=True)
class Programs:
    """Paths by name, and what the programs need in order to run from there."""

    paths: Mapping[str, Path]
    environment: Mapping[str, str] = field(default_factory=dict)
    tree: Path = SYSTEM
    """The root of the file system that the programs were packaged for."""

    def __getitem__(self, name: str) -> str:
        return str(self.paths[name])


def find(names: Sequence[str], places: Sequence[str]) -> Programs | None:
    """Look on the PATH, then in `places` (patterns below the root) of the system, then in the unpacked tree."""
    for folders, tree in (
        (os.get_exec_path(), SYSTEM),
        (_matching(SYSTEM, places), SYSTEM),
        (_matching(UNPACKED, places), UNPACKED),
    ):
        if paths := _all_of(names, [*folders, *_matching(tree, places)]):
            return Programs(paths, _environment(tree), tree)
    return None


def in_folder(names: Sequence[str], folder: Path) -> Programs | None:
    """The programs of one folder, if it holds all of them."""
    paths = _all_of(names, [str(folder)])
    return Programs(paths) if paths else None


def obtain(part: str, look: Callable[[], Programs | None]) -> Programs:
    """Look, have `scripts/setup-system` install what is missing, and look again.

    Raises:
        ServerMissing: it is still not there; the message ends with the command to run.
    """
    if programs := look():
        return programs
    said = _install(part)
    if programs := look():
        return programs
    message = (
        f"No {part} server was found and none could be installed; nothing was started, so what it does is not tested. "
        f"Run once, as root: scripts/setup-system {part}"
    )
    raise ServerMissing("\n".join([message, *said.splitlines()[-_LINES:]]))


def _install(part: str) -> str:
    script = ROOT / "scripts" / "setup-system"
    # One at a time, however many workers there are: the package manager is a single thing.
    with script.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [str(script), part],
            env=trust.environment_outside(),
            capture_output=True,
            text=True,
            timeout=_TIME_TO_INSTALL,
            check=False,
        )
    return done.stdout + done.stderr


def _matching(tree: Path, places: Sequence[str]) -> list[str]:
    """Folders below a tree, those with the highest version first."""
    return [str(folder) for place in places for folder in sorted(tree.glob(place), key=_version, reverse=True)]


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parts if part.isdecimal())


def _all_of(names: Sequence[str], folders: Sequence[str]) -> dict[str, Path]:
    where = os.pathsep.join(folders)
    paths = {name: Path(found).resolve() for name in names if (found := shutil.which(name, path=where))}
    return paths if len(paths) == len(names) and all(map(is_open_to_all, paths.values())) else {}


def is_open_to_all(path: Path) -> bool:
    """Whether the account that servers run under reaches a program; root's own home, for one, is closed to it."""
    return os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _environment(tree: Path) -> dict[str, str]:
    if tree == SYSTEM:
        return {}
    libraries = [*tree.glob("usr/lib/*-linux-gnu*"), *tree.glob("lib/*-linux-gnu*")]
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))}
