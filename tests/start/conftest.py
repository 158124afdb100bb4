"""The start page as a person has it: one command in a folder, a browser, and Ctrl-C."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

from tests.processes import child

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "artifacts" / "start"
PATIENCE = 240.0  # seconds, for a loaded machine; what is waited for comes at once or never


@dataclass
class Launched:
    """The launcher, and where its page is."""

    process: Popen[str]
    address: str
    said: list[str]

    def processes(self) -> dict[int, str]:
        """All that it started, and what those started, with what they run."""
        found = dict(_children(self.process.pid))
        for pid in list(found):
            found |= dict(_children(pid))
        return found


def _children(pid: int) -> Iterator[tuple[int, str]]:
    for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(name), Path(f"/proc/{name}/cmdline").read_text().replace("\0", " ")


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def launched(folder: Path, *arguments: str, root: Path = ROOT) -> Iterator[Launched]:
    """`python -m examples.start` of this checkout or of a clone, once everything answers."""
    command = [sys.executable, "-m", "examples.start", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'src'}"}
    with child(command, cwd=folder, env=environment, stdout=PIPE) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(4)]
        address = re.search(r"http://\S+", said[0])
        assert address, said
        yield Launched(process, address[0], said)
