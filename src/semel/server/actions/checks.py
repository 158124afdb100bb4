"""What every action has in common: permission, scope, a reason, and the audit chain around what changes something.

- A permission is checked before anything is read, and the scope before anything is told.
- A change is written into the chain before it begins and again when it has ended, so a crash in between leaves a trace.
- The chain names records by reference and people by name; it holds no key, no value and no personal data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from semel.api import AsyncSemel, Semel
from semel.core.flow import Flow
from semel.errors import SemelError
from semel.server.access import Permission, User
from semel.server.audit import Audit
from semel.server.engines import as_async, perform
from semel.server.refusals import Forbidden, Invalid, NotFound, ReadOnly, refusal_of

T = TypeVar("T")
LONGEST_REASON: Final = 1000
BULK: Final = "semel:bulk"
"""The operation of bulk actions and of their items, whose keys name records of any scope."""


class ActionsBase:
    """Checks, and the chain.

    Args:
        semel: the engine whose records are looked after; its hooks are asked, where it has any.
        audit: the chain. None: everything can be looked at, and nothing changed.
    """

    def __init__(self, semel: Semel | AsyncSemel, audit: Audit | None) -> None:
        self.given = semel
        self.semel = as_async(semel)
        self.audit = audit

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be changed here."""
        return self.audit is None

    def demand(self, user: User, permission: Permission) -> None:
        """Refuse a user who lacks a permission.

        Raises:
            Forbidden: they do.
        """
        if not user.may(permission):
            raise Forbidden(
                f"{user.name} may not {permission}; nothing was done. The roles here: {_join(user.roles)}.",
                permission=str(permission),
            )

    def demand_everywhere(self, user: User, permission: Permission) -> None:
        """Refuse what reaches beyond the scopes of a user.

        Raises:
            Forbidden: the user lacks the permission, or has it for some scopes alone.
        """
        self.demand(user, permission)
        if user.scopes is not None:
            raise Forbidden(
                f"{permission} is not bound to a scope, and {user.name} is; nothing was done.", because="scoped"
            )

    def scopes_asked(self, user: User, scope: str | None) -> tuple[str | None, ...]:
        """The scopes to look at: (None,) is all of them, and () is none that exists for the user."""
        if scope is not None:
            return (scope,) if user.reaches(scope) else ()
        return (None,) if user.scopes is None else tuple(sorted(user.scopes))

    async def perform(self, flow: Flow[Any]) -> Any:
        """Carry out a flow, and say in words what came of it.

        Raises:
            Refused: it could not be done.
        """
        return await self.told(perform(self.semel, flow))

    async def told(self, work: Awaitable[T]) -> T:
        """What is awaited; an error of the engine is raised as a refusal."""
        try:
            return await work
        except SemelError as error:
            raise refusal_of(error) from error

    async def change(
        self,
        user: User,
        permission: Permission,
        work: Callable[[], Awaitable[T]],
        *,
        scope: str,
        target: str,
        reason: str,
        detail: Mapping[str, Any] | None = None,
        name: Callable[[T], str] | None = None,
    ) -> T:
        """Carry out what changes something, with its beginning and its end in the chain.

        Args:
            user: who does it.
            permission: what is needed for it, and what it is called in the chain.
            work: does it.
            scope: whose it is.
            target: what it is done to.
            reason: why.
            detail: further facts for the chain.
            name: what its end is called in the chain, by what `work` gives; without it "done".

        Raises:
            Refused: there is no reason, no chain, or it could not be done.
        """
        why = check_reason(reason)
        if self.audit is None:
            raise ReadOnly("This store keeps no audit chain, so nothing can be changed here; nothing was changed.")
        told = {name: str(value) for name, value in (detail or {}).items()}
        async with self.audit.record(
            scope=scope, actor=user.name, action=str(permission), target=target, reason=why, detail=told
        ) as action:
            done = await self.told(work())
            if name is not None:
                action.outcome = name(done)
            return done

    async def note_look(self, user: User, permission: Permission, *, scope: str, target: str) -> None:
        """Write down that somebody looked at what is a right of its own; a store without a chain shows it unwritten."""
        if self.audit is not None:
            await self.audit.append(
                scope=scope, actor=user.name, action=str(permission), target=target, reason="", outcome="shown"
            )


def check_reason(reason: object) -> str:
    """The reason, without what surrounds it.

    Raises:
        Invalid: it is none, too long, or holds what no audit entry can.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise Invalid("A reason is needed, for those who read the record later; nothing was changed.", because="reason")
    if "\0" in reason:
        raise Invalid("A reason holds no NUL character; nothing was changed.", because="reason")
    if len(reason) > LONGEST_REASON:
        raise Invalid(
            f"A reason has at most {LONGEST_REASON} characters; nothing was changed. Say it in fewer.", because="reason"
        )
    return reason.strip()


def not_found_error(what: str) -> NotFound:
    """The refusal for what is not there; the same words for what is in another scope."""
    return NotFound(f"There is no {what}; nothing was done.")


def _join(words: frozenset[Any]) -> str:
    return ", ".join(sorted(words)) or "none"
