"""PgBouncer in front of a server."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers import process, programs
from tests.servers.room import Room, register
from tests.servers.server import free_port

HOST = "127.0.0.1"


@contextmanager
def bouncer(url: str, room: Room) -> Iterator[str]:
    """PgBouncer before `url`, with two sessions for everybody, which change hands after each transaction.

    Raises:
        ServerMissing: it is not on this machine, and could not be installed.
    """
    program = programs.obtain("pgbouncer", lambda: programs.find(["pgbouncer"], ["usr/sbin"]))["pgbouncer"]
    at, folder = urlsplit(url), room.folder("pgbouncer")
    port = free_port()
    settings = Path(folder, "pgbouncer.ini")
    settings.write_text(
        f"[databases]\n* = host={at.hostname} port={at.port} user={at.username}\n"
        f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nserver_round_robin = 1\n"
    )
    settings.chmod(0o644)
    command = [program, str(settings)]
    pid = process.spawn(command, output=folder / "server.log", environment={}, **process.account())
    register(folder, pid, signal.SIGTERM)
    try:
        _until_it_listens(port, pid)
        yield at._replace(netloc=f"{at.username}@{HOST}:{port}").geturl()
    finally:
        process.stop(pid, signal.SIGTERM)


def _until_it_listens(port: int, pid: int) -> None:
    while True:
        try:
            socket.create_connection((HOST, port)).close()
        except OSError:
            assert process.is_alive(pid), "PgBouncer did not start"
            time.sleep(0.02)
        else:
            return
