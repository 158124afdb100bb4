"""What semel's own sessions are set to. The caller's connections are never touched."""

from __future__ import annotations

from semel.stores.served.settings import Settings


def session_settings(settings: Settings) -> dict[str, str]:
    """The settings of a new session."""
    path = {"search_path": settings.schema} if settings.schema else {}
    return {
        "application_name": "semel",
        "statement_timeout": f"{settings.statement_timeout * 1000:.0f}",
        "lock_timeout": f"{settings.lock_timeout * 1000:.0f}",
        "default_transaction_isolation": "read committed",
        # On a table that was never analysed the planner would keep a hash join over all records in its prepared plan.
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
        **path,
    }
