"""`python -m examples.hospital`: insurer, books, workers and pages as processes, until Ctrl-C.

What always holds: nothing is printed as the address before it answers, and when this ends, everything it started ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from examples.hospital.processes import prepare, start
from examples.launching.children import DidNotStart
from examples.launching.launcher import greet, keep_all, listen, make_folder, run_until_stopped, supervise
from semel.errors import SemelError

TRY = (
    "Start a claim, and start it again: one claim at the insurer, one payment in the books.",
    "Kill the worker while a task runs: the next one goes on, and nothing is done twice.",
    "Lose the insurer's reply, then start a claim: nobody knows, and it is asked again under the same key.",
)


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    port: int
    workers: int
    database: str | None
    delay: float


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.hospital", description="A claim that is submitted once.")
    parser.add_argument("--port", type=int, default=8000, help="the next free one is taken if it is not free")
    parser.add_argument("--workers", type=int, default=1, help="how many processes that run claims")
    parser.add_argument("--database", help="sqlite:///hospital.db or postgresql://…; a file in .hospital/ by default")
    parser.add_argument("--delay", type=float, default=2.0, help="seconds that insurer and books take to answer")
    try:
        asyncio.run(run_until_stopped(_run(Options(**vars(parser.parse_args())))))
    except (DidNotStart, OSError, ValueError, SQLAlchemyError, SemelError) as error:
        sys.exit(f"The hospital did not start: {error}")


async def _run(options: Options) -> None:
    folder = make_folder(".hospital")
    url = options.database or os.environ.get("HOSPITAL_DATABASE") or f"sqlite:///{folder / 'hospital.db'}"
    prepare(url)
    with listen(options.port) as pages:
        async with supervise() as supervision:
            hospital = await start(
                supervision, pages, url=url, folder=folder, delay=options.delay, workers=options.workers
            )
            greet("The hospital is open at", pages.getsockname()[1], options.port, TRY)
            await keep_all(hospital.all)


if __name__ == "__main__":
    main()
