"""Worlds of the audit chain: how many writers there are, what each appends, and what may go wrong.

What always holds: a world is a value whose `repr` makes it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

AuditFault = Literal[
    "crash",  # the writer dies here; what it has begun stays as it is
    "lost",  # a statement is carried out, and its answer does not arrive: the writer sends its entry again
]
AUDIT_FAULTS: Final[tuple[AuditFault, ...]] = ("crash", "lost")


@dataclass(frozen=True, kw_only=True)
class AuditWorld:
    """What is simulated.

    Args:
        writers: how many processes append to one chain.
        entries: how many entries each of them appends.
        together: how many of them it asks for at a time.
        seals: how often somebody seals.
        faults: what may go wrong; `budget` is how often.
    """

    name: str
    writers: int = 2
    entries: int = 2
    together: int = 1
    seals: int = 1
    faults: tuple[AuditFault, ...] = AUDIT_FAULTS
    budget: int = 2


AUDIT_WORLDS: Final = (
    AuditWorld(name="audit: two writers"),
    AuditWorld(name="audit: three writers", writers=3, entries=1, seals=2),
    AuditWorld(name="audit: several at a time", entries=4, together=2, budget=3),
)
AUDIT_SOMETIMES: Final = frozenset(
    f"audit: {name}"
    for name in (
        "appended",
        "overtaken",
        "appended before",
        "sealed",
        "sealed by another",
        *(f"fault: {fault}" for fault in AUDIT_FAULTS),
    )
)
"""What has to happen in some schedule; otherwise the worlds prove less than they say."""
