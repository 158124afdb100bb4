"""A process that loads a batch, runs some of it, reads results, and says how much memory it took at most, in MiB.

`python -m tests.batch.loading_memory URL COUNT RUN`: items are made one by one, so that nobody else keeps them.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from itertools import islice

from semel import Semel
from semel.batch import Batches, Item
from semel.batch.batches import stoppable

DETAILS = "a reference of fifty letters or so, as they come"


def main(url: str, count: str, run: str) -> None:
    stops: list[Callable[[], None]] = []
    most, done = int(run), iter(range(int(run)))

    def pay(item: Item) -> int:
        if next(done, None) is None:
            stops[0]()
        return item.position

    items = ({"id": f"payment-{n}", "amount": n, "details": DETAILS} for n in range(int(count)))
    with Semel(url) as semel:
        batch = stoppable(Batches(semel).start("large", items, operation="pay", item_id="id"), stops.append)
        status = batch.run(pay, concurrency=16, page=500)
        read = sum(1 for _ in islice(batch.results(), most))
    assert status.total == int(count), status
    assert min(status.completed, read) >= most, status
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])
