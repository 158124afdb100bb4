"""`semel` for the shells of a page: the command itself, forked from a process that has imported it.

A page runs up to twenty commands, and to start Python and import the command line takes longer than most of them. What
always holds: each command is a process of its own, in the folder, with the environment and on the streams of whoever
asked, and it ends as Python ends: what that brings to light is on its stderr. That the command starts from nothing is
proved in `tests/cli`.
"""

import marshal
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST = 1 << 20
_CLIENT = """\
import marshal, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
    asking.connect({address!r})
    order = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ)))
    socket.send_fds(asking, [order], [0, 1, 2])
    sys.exit(int(asking.recv(16) or 1))
"""


@contextmanager
def forked_commands(folder: Path) -> Iterator[str]:
    """The line of a shell that runs `semel` with its arguments, while this lasts. Nothing may be open yet."""
    address = f"\0semel-{os.getpid()}"  # of no file, whose path might be too long
    client = folder / "semel.py"
    client.write_text(_CLIENT.format(address=address), encoding="utf-8")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        server = os.fork()
        if server == 0:
            _serve(listener)
    try:
        yield f'exec {sys.executable} -I -S {client} "$@"\n'
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def _serve(listener: socket.socket) -> None:
    """Fork a process for each command, one after the other; only those leave this, by ending."""
    import typer.main

    from semel.cli.app import build_app

    typer.main.get_command(build_app())  # imports every command, and what reads their options
    while True:
        asking, _ = listener.accept()
        with asking:
            order, streams, _, _ = socket.recv_fds(asking, _LONGEST, 3)
            child = os.fork()
            if child == 0:
                listener.close()
                asking.close()
                _run(order, streams)
            for stream in streams:
                os.close(stream)
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
            asking.send(str(code if code >= 0 else 128 - code).encode())


def _run(order: bytes, streams: list[int]) -> None:
    from semel.cli import main

    arguments, folder, environment = marshal.loads(order)  # noqa: S302 - of this very program
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(main(arguments))
