"""`python -m examples.payments`: the gateway, the servers and the workers as processes, until Ctrl-C.

What always holds: nothing is printed as the address before it answers, and when this ends, everything it started ends.
"""

import argparse
import asyncio
import os
import sys
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from examples.launching.children import DidNotStart
from examples.launching.launcher import greet, keep_all, listen, make_folder, run_until_stopped, supervise
from examples.payments.processes import prepare, start
from semel.errors import SemelError

TRY = (
    "Send the sample file, or one of your own: nothing of it is paid before every line is accepted.",
    "Send it again, or in two tabs at once: it is the same bulk, and each payment is made once.",
    "Kill the worker in the middle (its process is examples.payments.working): it goes on where it was.",
)


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    port: int
    servers: int
    workers: int
    database: str | None


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.payments", description="Payments that happen once.")
    parser.add_argument("--port", type=int, default=8000, help="the next free one is taken if it is not free")
    parser.add_argument("--servers", type=int, default=1, help="how many server processes")
    parser.add_argument("--workers", type=int, default=1, help="how many processes that run bulks")
    parser.add_argument(
        "--database", help="sqlite:///payments.db, postgresql://… or mysql://…; a file in .payments/ by default"
    )
    try:
        asyncio.run(run_until_stopped(_run(Options(**vars(parser.parse_args())))))
    except (DidNotStart, OSError, ValueError, SQLAlchemyError, SemelError) as error:
        sys.exit(f"The service did not start: {error}")


async def _run(options: Options) -> None:
    folder = make_folder(".payments")
    url = options.database or os.environ.get("PAYMENTS_DATABASE") or f"sqlite:///{folder / 'payments.db'}"
    await prepare(url)
    with listen(options.port) as listener:
        async with supervise() as supervision:
            payments = await start(
                supervision,
                listener,
                url=url,
                ledger=folder / "ledger.jsonl",
                servers=options.servers,
                workers=options.workers,
            )
            greet("Payments are taken at", listener.getsockname()[1], options.port, TRY)
            await keep_all(payments.all)


if __name__ == "__main__":
    main()
