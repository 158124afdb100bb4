"""`semel cancel`: end a doubt, or with --force a live lease, so that it never runs again."""

from __future__ import annotations

from semel.cli.confirm import By, Reason, Yes
from semel.cli.decide import Force, Named, decide
from semel.cli.lookup import Operation, Scope, Which
from semel.cli.store_option import Url
from semel.core.record import Cancelled


def cancel(
    which: Which,
    url: Url = None,
    *,
    force: Force = False,
    reason: Reason,
    by: By = None,
    operation: Operation = None,
    scope: Scope = None,
    yes: Yes = False,
) -> None:
    """Cancel a record that is in doubt: it never runs again, and duplicates get FailedBefore.

    The same as semel resolve --cancelled. semel reopen takes it back.
    """
    decide(Named(which, url, operation, scope, reason, by, yes), Cancelled(), force=force)
