"""Sealing again from code what `semel reseal` does on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.core.sealing.values import Sealer
from semel.engine.engine import engine_of
from semel.stores.sealing.resealing import ResealReport, reseal_store
from semel.stores.wrapper import innermost_store


def reseal(
    semel: Any,
    keyring: Sealer,
    *,
    page: int = 500,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ResealReport:
    """Seal with the active key what the store of `semel` has under others, or unsealed; it blocks until that is done.

    Args:
        semel: a `Semel` or `AsyncSemel`; the work is done on a connection of its own.
        keyring: has the keys that open, and seals with the active one.
        page: how many rows are looked at together.
        dry_run: only count what is left of each key.
        progress: told how many values were looked at, and how many there are.

    Raises:
        UsageError: its store cannot be sealed again in place.
        StoreUnavailable: the store did not answer; what was sealed again stays so.
    """
    store = innermost_store(engine_of(semel).store)
    return reseal_store(store, keyring, page=page, dry_run=dry_run, progress=progress)
