"""Operations and answers in a trace that people can read."""

from __future__ import annotations

from semel.core.operations import Claim, Fail, Granted


def told(value: object) -> str:
    """An operation or answer in a trace."""
    name = type(value).__name__
    lease = getattr(value, "lease", None)
    if isinstance(value, Claim):
        return f"Claim {value.nonce.decode()}"
    if isinstance(value, Granted):
        return f"Granted fence {value.record.fence}{' in doubt' if value.in_doubt else ''}"
    if isinstance(value, Fail):
        return f"Fail {value.ending} {value.lease.nonce.decode()} fence {value.lease.fence}"
    if lease is not None:
        return f"{name} {lease.nonce.decode()} fence {lease.fence}"
    return name
