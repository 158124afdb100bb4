"""What stores refuse alike, in one wording."""

from __future__ import annotations

from semel.errors import UsageError


def not_inside(what: str) -> UsageError:
    """The error for what has transactions of its own, and would hold rows of others until the caller's ends."""
    return UsageError(
        f"{what}() decides for everybody and is not part of your transaction; nothing was changed. Call it outside "
        f"within()."
    )


def no_notes(store: str) -> UsageError:
    """The error of a store that cannot stand behind a cache."""
    return UsageError(
        f"{store} keeps no notes of what caches have to forget; nothing was changed. Put a cache in front of a SQL "
        f"database only."
    )
