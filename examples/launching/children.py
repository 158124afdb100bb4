"""Child processes of a launcher.

What always holds: a child has started when it has said its first line. One that dies is started again. All of them
watch a pipe to the launcher, so that none is left, however the launcher ends.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

STOPS_WITHIN = 10.0
PAUSE = 0.5


class DidNotStart(Exception):
    """A child ended before it was ready; it has said why on stderr."""


class Child:
    """A module of an example, run as a process of its own."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        pipe: int,
        fds: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self.arguments = [*arguments, "--parent-fd", str(pipe)]
        self._fds = (pipe, *fds)
        self._environment = {**os.environ, **(variables or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Start it, and give its first line."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self.module, *self.arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=self._fds,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for the launcher, which stops servers before the gateway
        )
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode().strip()
        if not line:
            raise DidNotStart(f"{self.module} ended before it was ready. What it said is above.")
        return line

    async def keep(self) -> None:
        """Start it again whenever it ends."""
        while True:
            assert self._process is not None
            code = await self._process.wait()
            print(f"{self.module} ended with {code}; it is started again.", flush=True)
            await asyncio.sleep(PAUSE)
            with suppress(DidNotStart):
                await self.start()

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does; `keep` starts it again."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; one that has ended gets none."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOPS_WITHIN)
        except TimeoutError:
            process.kill()
            await process.wait()
