"""A private PostgreSQL as a process: `python -m examples.launching.postgresql --parent-fd 3`.

What always holds: its first line is the URL of the server, with `{}` for the name of a database, and the server
answers from then on. Nobody but this machine reaches it. SIGUSR1 ends it as a crash would, SIGUSR2 starts it again on
the same data and port. SIGTERM and the end of `--parent-fd` end it, and nothing of it is left: no process, no file.
What a SIGKILL has left is ended and removed by the next one that starts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pwd
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from examples.launching.folders import locked_folder
from examples.launching.launcher import HOST

CHECKOUT: Final = Path(__file__).parents[2]
PLACES: Final = (Path("/usr/lib/postgresql"), CHECKOUT / ".servers/usr/lib/postgresql", Path("/usr/local/pgsql"))
USER: Final = "semel"
ANSWERS_WITHIN: Final = 30.0
MISSING: Final = (
    "no PostgreSQL server was found on this machine; nothing was started. Install one (as root: scripts/setup-system "
    "postgresql, or apt install postgresql), or put its programs `initdb` and `postgres` on the PATH, or leave "
    "`--on postgresql` out: SQLite needs nothing."
)


class ServerMissing(Exception):
    """There is no PostgreSQL here, or it did not start; the message says what to do."""


class PrivateServer:
    """One server with its data in a folder of its own."""

    def __init__(self, programs: Path, folder: Path, databases: Sequence[str]) -> None:
        self._programs = programs
        self._folder = folder
        self._databases = databases
        self._process: asyncio.subprocess.Process | None = None
        self.port = _free_port()

    @property
    def url(self) -> str:
        """Of each of its databases."""
        return f"postgresql://{USER}@{HOST}:{self.port}/{{}}"

    async def prepare(self) -> None:
        """Make the data and the databases, and start."""
        data = ["-D", str(self._folder / "data")]
        options = [f"--username={USER}", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        await self._run([str(self._programs / "initdb"), *data, *options])
        commands = "\n".join(f"CREATE DATABASE {name};" for name in self._databases) + "\n"
        # Without a port: a server for one user, which reads its commands from a pipe and ends with them.
        await self._run([str(self._programs / "postgres"), "--single", *data, "postgres"], commands.encode())
        await self.start()

    async def start(self) -> None:
        """Start on the data that is there, and wait until it answers."""
        if self._process is not None and self._process.returncode is None:
            return
        settings = {
            "listen_addresses": HOST,
            "port": self.port,
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",  # in the data folder, so that nothing is left in the machine's memory
            "max_connections": 200,
            "fsync": "off",  # the data lives as long as the machine at most
            "log_min_messages": "fatal",
            "log_min_error_statement": "panic",
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(str(self._programs / "postgres"), "-D", str(self._folder / "data"), *arguments),
                **self._options(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await self._wait_until_it_answers()

    async def stop(self, number: signal.Signals) -> None:
        """End it: in order by SIGINT, as a crash does by SIGQUIT."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.send_signal(number)
        await self._process.wait()

    async def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = asyncio.get_running_loop().time() + ANSWERS_WITHIN
        while not await self._answers():
            if self._process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                end = (self._folder / "server.log").read_text(errors="replace")[-2000:]
                raise ServerMissing(f"PostgreSQL did not start; the end of its log:\n{end}")
            await asyncio.sleep(0.05)

    async def _answers(self) -> bool:
        """Whether it accepts sessions: it says `R` to somebody who asks for one, and an error while it starts."""
        body = (196608).to_bytes(4, "big") + f"user\0{USER}\0database\0postgres\0\0".encode()
        try:
            reader, writer = await asyncio.open_connection(HOST, self.port)
        except OSError:
            return False
        try:
            writer.write((len(body) + 4).to_bytes(4, "big") + body)
            return await reader.read(1) == b"R"
        except OSError:
            return False
        finally:
            writer.close()

    async def _run(self, command: Sequence[str], given: bytes = b"") -> None:
        process = await asyncio.create_subprocess_exec(
            *command,
            **self._options(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate(given)
        if process.returncode:
            raise ServerMissing(f"{Path(command[0]).name} failed:\n{said.decode(errors='replace')[-2000:]}")

    def _options(self) -> dict[str, Any]:
        """An ordinary user, because the server refuses root's rights, and a clean environment."""
        libraries = [str(path) for path in (CHECKOUT / ".servers/usr/lib").glob("*-linux-gnu*")]
        unpacked = CHECKOUT / ".servers" in self._programs.parents
        variables = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": str(self._folder)}
        if unpacked:
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        return {"env": variables, "cwd": "/", "start_new_session": True, **_account()}


def find_programs() -> Path:
    """The folder with the programs of PostgreSQL, of the newest version.

    Raises:
        ServerMissing: there is none.
    """
    versions = [found for place in PLACES for found in sorted(place.glob("*/bin"), key=_version, reverse=True)]
    on_path = [Path(folder) for folder in os.get_exec_path()]
    for folder in (*on_path, *versions, PLACES[-1] / "bin"):
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return (folder / "initdb").resolve().parent
    raise ServerMissing(MISSING)


def _version(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdecimal() else 0


def _account() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


async def _serve(databases: Sequence[str], parent: int | None) -> None:
    programs = find_programs()
    ended, loop, commands = asyncio.Event(), asyncio.get_running_loop(), asyncio.Lock()
    with locked_folder(Path(tempfile.gettempdir()), f"semel-postgresql-{os.geteuid()}-", end=end_left) as folder:
        if account := _account():
            os.chown(folder, account["user"], account["group"])
        server = PrivateServer(programs, folder, databases)
        running: set[asyncio.Task[None]] = set()

        async def crash() -> None:
            async with commands:
                await server.stop(signal.SIGQUIT)

        async def start() -> None:
            async with commands:
                await server.start()

        loop.add_signal_handler(signal.SIGUSR1, lambda: running.add(asyncio.create_task(crash())))
        loop.add_signal_handler(signal.SIGUSR2, lambda: running.add(asyncio.create_task(start())))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        if parent is not None:
            loop.add_reader(parent, _look_at_parent, parent, ended)
        try:
            await server.prepare()
            print(server.url, flush=True)
            await ended.wait()
            await asyncio.gather(*running)
        finally:
            await server.stop(signal.SIGINT)


def end_left(folder: Path) -> None:
    """End the server whose process was killed: it runs on in its folder."""
    with suppress(OSError, ValueError):
        pid = int((folder / "data/postmaster.pid").read_text().split("\n", 1)[0])
        if str(folder / "data") in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)  # what it started ends with it


def _look_at_parent(parent: int, ended: asyncio.Event) -> None:
    if not os.read(parent, 1):
        asyncio.get_running_loop().remove_reader(parent)
        ended.set()


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.launching.postgresql", description="A private server.")
    parser.add_argument("databases", nargs="+", help="their names")
    parser.add_argument("--parent-fd", type=int, help="a pipe; the server stops at its end of file")
    options = parser.parse_args()
    try:
        asyncio.run(_serve(options.databases, options.parent_fd))
    except ServerMissing as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
