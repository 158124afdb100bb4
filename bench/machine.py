"""What the figures depend on: the machine, the versions, and how the command was called."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "semel",
    "msgspec",
    "psycopg",
    "asyncpg",
    "PyMySQL",
    "asyncmy",
    "redis",
    "hiredis",
    "aiormq",
    "nats-py",
    "idemkit",
    "aws-lambda-powertools",
    "dbos",
)


def facts(folder: Path) -> dict[str, Any]:
    """All of it; `folder` is where the databases are."""
    return {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m bench", *sys.argv[1:]]),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": file_system(folder),
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: found for name in PACKAGES if (found := version_of(name))},
    }


class Watch:
    """Looks on while something is measured: how much of the machine this process takes, and how much the others.

    What this process started, and `servers` with what they started, are no others.
    """

    def __init__(self, servers: tuple[int, ...] = ()) -> None:
        self._roots = frozenset({os.getpid(), *servers})
        self._began = time.perf_counter()
        self._own = time.process_time()
        self._party = party_seconds(self._roots)
        self._all = _busy_seconds()

    def stop(self) -> tuple[float, float]:
        """The processor seconds of this process, and the share of all processors that others used meanwhile."""
        own = time.process_time() - self._own
        capacity = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        everybody = _busy_seconds() - self._all
        party = max(own, party_seconds(self._roots) - self._party)
        return own, max(0.0, everybody - party) / capacity


def party_seconds(roots: frozenset[int]) -> float:
    """Processor seconds of some processes and their children, those included that have ended and were waited for."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # The name of the program stands in parentheses and may hold anything.
        fields = " ".join(_lines(str(entry))).rpartition(")")[2].split()
        if fields and (int(entry.parent.name) in roots or int(fields[1]) in roots):
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _busy_seconds() -> float:
    """Processor seconds of all processes since the start of the machine; 0 where it cannot be known."""
    for line in _lines("/proc/stat")[:1]:
        user, nice, system, _idle, _wait, irq, softirq, *_ = map(int, line.split()[1:])
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return 0.0


def version_of(package: str) -> str | None:
    """The version of an installed package; semel itself may be used from the checkout without being installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "checkout" if package == "semel" else None


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def file_system(folder: Path) -> str:
    """The kind of file system that a folder is on."""
    best = ("", "unknown")
    for line in _lines("/proc/self/mounts"):
        _, point, kind, *_ = line.split(" ")
        if folder.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
