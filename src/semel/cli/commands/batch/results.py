"""`semel batch results`: what became of items, as JSON lines in the order of the input."""

from __future__ import annotations

import sys
from typing import Annotated, Any, cast

import typer

from semel.batch import ItemResult
from semel.batch.items import STATUS_NAMES, ResultStatus
from semel.cli.commands.batch.opening import Id, Scope, open_batch
from semel.cli.record_view import as_line
from semel.cli.store_option import Url


def results(
    id_: Id,
    url: Url = None,
    *,
    status: Annotated[
        str | None, typer.Option(help=f"Only items of this status: {', '.join(STATUS_NAMES)}.", show_default=False)
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(min=-1, metavar="POSITION", help="Go on after this position.", show_default=False),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.", show_default=False)] = None,
    scope: Scope = None,
    as_json: Annotated[bool, typer.Option("--json", help="Lines are JSON objects always.")] = True,
) -> None:
    """Print a JSON object for each item: id, position, status, value, error and attempts.

    They are streamed. Whoever was cut off goes on with --after and the position of the last line. Values may hold
    personal data.
    """
    del as_json
    with open_batch(id_, url, scope) as batch:
        found = batch.results(status=cast("ResultStatus | None", status), after=after)
        for count, result in enumerate(found, 1):
            sys.stdout.write(as_line(result_object(result)) + "\n")
            if count == limit:
                break


def result_object(result: ItemResult[Any]) -> dict[str, Any]:
    """A result for machines."""
    error = result.error
    return {
        "id": result.id,
        "position": result.position,
        "status": result.status,
        "value": result.value,
        "error": None if error is None else {"type": error.type, "message": error.message},
        "attempts": result.attempts,
    }
