"""Programs out of Debian's unstable suites, which run by the loader and the libraries of the tree they come in.

What always holds: nothing is fetched unasked, because the versions there move.
"""

import subprocess
from pathlib import Path

from tests.servers import programs
from tests.servers.programs import Programs, ServerMissing
from tests.servers.room import ROOT


def obtain(part: str, program: str) -> Programs:
    """The program and its `loader`; fetched if it was not yet.

    Raises:
        ServerMissing: it cannot be fetched here.
    """
    tree = programs.UNPACKED / part
    script = str(ROOT / "scripts" / "unpack-unstable")
    done = subprocess.run([script, part], capture_output=True, text=True, check=False)
    loader = next(iter(tree.glob("usr/lib*/ld-linux-*.so.*")), None)
    found = tree / program
    if done.returncode or loader is None or not all(_is_open(path) for path in (loader, found)):
        said = f"{part} could not be fetched, so it is not tested.\n{done.stderr[-1000:]}"
        raise ServerMissing(said.rstrip())
    return Programs({"loader": loader, found.name: found}, tree=tree)


def command(found: Programs, program: str, *, called: str = "") -> list[str]:
    """How the program is started, under another name if it does what it is called."""
    libraries = next(iter(found.tree.glob("usr/lib/*-linux-gnu")))
    name = ["--argv0", called] if called else []
    return [found["loader"], *name, "--library-path", str(libraries), found[program]]


def _is_open(path: Path) -> bool:
    return path.exists() and programs.is_open_to_all(path)
