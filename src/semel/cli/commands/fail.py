"""`semel fail`: end a doubt, or with --force a live lease, as a failure for good."""

from __future__ import annotations

from typing import Annotated

import typer

from semel.cli.confirm import By, Reason, Yes
from semel.cli.decide import Force, Named, decide
from semel.cli.lookup import Operation, Scope, Which
from semel.cli.store_option import Url
from semel.core.record import Failed


def fail(
    which: Which,
    url: Url = None,
    *,
    error: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What duplicates are told. Default: the reason.", show_default=False),
    ] = None,
    force: Force = False,
    reason: Reason,
    by: By = None,
    operation: Operation = None,
    scope: Scope = None,
    yes: Yes = False,
) -> None:
    """Record that what is in doubt has failed for good: duplicates get FailedBefore.

    The same as semel resolve --failed TEXT. semel reopen takes it back.
    """
    decide(
        Named(which, url, operation, scope, reason, by, yes), Failed(reason if error is None else error), force=force
    )
