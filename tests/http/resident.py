"""How much memory a site takes: that of its server and of every process that its server started."""

from __future__ import annotations

from pathlib import Path

from tests.http.sites import Running

KIB = 1024
MIB = 1024 * KIB


def resident(site: Running) -> int:
    """The bytes of memory that are the site's own now: without files that it maps, which the kernel may drop."""
    return sum(_own_memory(pid) for pid in _tree(site._process.pid))


def _tree(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except FileNotFoundError:
        return []  # it has ended
    return [pid, *(one for child in children for one in _tree(child))]


def _own_memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * KIB
    return 0
