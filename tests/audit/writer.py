"""A process that appends many entries at the same time: `python -m tests.audit.writer URL NAME COUNT ENGINES`.

Each engine has a connection and a lane of its own: entries of one engine are sent together, those of several contend.
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from semel import AsyncSemel
from semel.server.audit import Audit


async def append_all(url: str, name: str, count: int, engines: int) -> None:
    async with AsyncExitStack() as stack:
        audits = [Audit(await stack.enter_async_context(AsyncSemel(url))) for _ in range(engines)]
        for audit in audits:
            await audit.append(scope="warm", actor=name, action="begin", target="", reason="")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        entries = await asyncio.gather(
            *(
                audits[number % engines].append(
                    scope="shop", actor=name, action="resolve", target=f"{name}/{number}", reason="why"
                )
                for number in range(count)
            )
        )
        sys.stdout.write(" ".join(str(entry.seq) for entry in entries) + "\n")


if __name__ == "__main__":
    asyncio.run(append_all(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
