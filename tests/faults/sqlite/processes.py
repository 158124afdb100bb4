"""Starting the programs of this folder."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "PYTHONWARNINGS": "error"}


def start(name: str, *arguments: object, stdin: int | None = None) -> subprocess.Popen[str]:
    """A process that runs one program."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.sqlite.programs", name, *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(name: str, *arguments: object) -> str:
    """What the program prints; its failure is the test's."""
    process = start(name, *arguments)
    printed, complained = process.communicate(timeout=60)
    assert process.returncode == 0, complained
    return printed
