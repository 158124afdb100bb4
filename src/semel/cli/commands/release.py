"""`semel release`: let the next claim run what is in doubt, or with --force what a live lease holds."""

from __future__ import annotations

from semel.cli.confirm import By, Reason, Yes
from semel.cli.decide import Force, Named, decide
from semel.cli.lookup import Operation, Scope, Which
from semel.cli.store_option import Url
from semel.core.record import DidNotHappen


def release(
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
    """Release a record that is in doubt: it did not happen, and the next claim of its key runs it.

    The same as semel resolve --did-not-happen. Look first at the place where its effect would be.
    """
    decide(Named(which, url, operation, scope, reason, by, yes), DidNotHappen(), force=force)
