"""A private Redis for a case, with records in it before, and keys of their own for each variant.

What always holds: every write is appended to a file on the measured disk and flushed once a second, as most who keep
records in Redis have it; the file is not rewritten while anything is measured. All variants meet the same server and
the same number of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.room import room_in, standing
from bench.site import Site, Unavailable, reported
from bench.workload import once
from semel import Semel
from semel.stores.redis.connections import info_of
from tests.servers import programs, redis
from tests.servers.server import Options

_NOTE = "redis.url"
_SET = {"appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}
_SHOWN = ("appendonly", "appendfsync", "auto-aof-rewrite-percentage", "save", "maxmemory-policy", "io-threads")
_AT_ONCE = 10_000
_COPIES = """
for n = ARGV[1], ARGV[2] do
    redis.call('COPY', KEYS[1], 'semel:filled:' .. redis.sha1hex(n) .. string.sub(redis.sha1hex(-n), 1, 24))
end
"""


@contextmanager
def server(folder: Path, rows: int) -> Iterator[Site]:
    """A server for one case, which holds so many records."""
    with standing(folder, "redis", lambda: _started(folder, rows)) as pid:
        yield Site(_settings(folder), (pid,))


@contextmanager
def _started(folder: Path, rows: int) -> Iterator[int]:
    with room_in(folder) as room:
        try:
            started = redis.start(room, Options(settings=_SET))
        except programs.ServerMissing as missing:
            raise Unavailable(str(missing)) from None
        (folder / _NOTE).write_text(started.endpoint.url, encoding="utf-8")
        _fill(folder, rows)
        yield started.pid


def address(folder: Path) -> str:
    """The URL of the server."""
    return (folder / _NOTE).read_text(encoding="utf-8")


@contextmanager
def database(folder: Path, name: str) -> Iterator[str]:
    """Keys of its own for one variant; gives the URL that leads to them. They go with the server."""
    yield f"{address(folder)}?{urlencode({'pattern': name + ':{operation}:{digest}'})}"


def _fill(folder: Path, rows: int) -> None:
    """One record made by semel, and copies of it under other keys."""
    with Semel(address(folder)) as semel:
        once(semel)(0)
    keys = redis.said(address(folder), "KEYS", "semel:*")  # beside the record there may be the worker that made it
    (made,) = (key for key in keys if redis.said(address(folder), "HEXISTS", key, "fingerprint"))
    for first in range(1, rows, _AT_ONCE):
        redis.said(address(folder), "EVAL", _COPIES, 1, made, first, min(first + _AT_ONCE, rows) - 1)


def _settings(folder: Path) -> dict[str, object]:
    def ask(command: str) -> object:
        reply: Any = redis.said(address(folder), *command.split())
        return reply if isinstance(reply, int) else reply[1].decode()

    version = info_of(redis.said(address(folder), "INFO", "server"))["redis_version"]
    return {**reported(ask, "CONFIG GET {}", _SHOWN, "dir", "DBSIZE"), "redis_version": version}
