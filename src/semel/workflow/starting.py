"""Starting a process, which is an operation too: asked for twice, it is started once, under an id that stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Unpack

from semel.api import AsyncSemel
from semel.core.key import SHARED
from semel.core.policy import PolicyFields
from semel.engine.engine import engine_of
from semel.workflow.delegate import KEEP_FOR
from semel.workflow.tasks import refuse_in_workflow

STARTS = "start:"
"""What the operations of starts begin with."""
STEP = "start"
"""What the id of a process is derived for."""


@dataclass(frozen=True, slots=True)
class Start:
    """What an engine is asked for.

    Attributes:
        id: what the instance is to be known by; the same on every attempt.
        in_doubt: whether an earlier attempt may have started it.
        keep_for: how long its record is kept, and so how long the engine has to know that it was started.
    """

    id: str
    in_doubt: bool
    keep_for: timedelta


async def start_once(
    semel: AsyncSemel,
    process: str,
    key: str | tuple[object, ...],
    begin: Callable[[Start], Awaitable[str]],
    *,
    asked: Any,
    scope: Any = SHARED,
    **policy: Unpack[PolicyFields],
) -> str:
    """Start a process once for its key, and give what names its instance.

    Args:
        semel: the engine.
        process: which process; part of the identity.
        key: what makes this start this one, such as the claim that the process is about.
        begin: starts it at the engine.
        asked: what is compared: the variables it is started with.
        scope: for whom.
        policy: fields of the policy; `keep_for` is 7 days.

    Raises:
        KeyReused: it was started with other variables.
        TryLater: somebody else is starting it, or the store does not answer.
        UsageError: the settings file is strict and does not declare `start:` and the name of the process.
    """
    refuse_in_workflow()
    fields: PolicyFields = {"keep_for": KEEP_FOR}
    fields |= policy
    operation = f"{STARTS}{process}"
    settled = engine_of(semel).policy_for(operation, None, fields)

    async def start() -> str:
        attempt = semel.current()
        return await begin(Start(attempt.derive(STEP), attempt.in_doubt, settled.keep_for))

    result = await semel.run(key, start, operation=operation, fingerprint=asked, scope=scope, policy=settled)
    return result.value
